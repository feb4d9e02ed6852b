"""An account: who the same people are, what all runs on them come to, and who may begin."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.prints import named_prints
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import RAW, VIEWS, Account, Publication, account_of, protected_among
from halfmask.privacy.accounting import calibrate, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.spends import Spend, common_unit, epsilon_in_turn, no_bound, total_epsilon

pytestmark = pytest.mark.usefixtures("quick_accounting")
SIGMA = calibrate(0.8, 1e-5, 0.05, 60)
PLAN = Spend("aa", "dpsgd", "zero-out", "crop", 1000, 0, 59, 0.05, SIGMA, 0.1, 50.0, "test", group_sizes={"image": 2, "subject": 4})


def people(first: int, last: int, subject: Callable[[int], str] | None = None) -> Fingerprints:
    numbers = range(first, last)
    return named_prints([f"picture {i}" for i in numbers], None if subject is None else [subject(i) for i in numbers])


def ledger_files(home: Path) -> set[str]:
    return {path.name for path in (home / "ledgers").glob("*") if path.name != "lock"} if (home / "ledgers").exists() else set()


# ---- who may begin -------------------------------------------------------------------------------------------------------


def test_the_first_run_is_judged_by_its_own_accountant(fresh_home: Path) -> None:
    """PLD says 0.8, the Rényi filter more than 0.85: a plan that was fixed in advance need not pay for having been able to choose."""
    assert total_epsilon([PLAN], 1e-5, Adjacency.ZERO_OUT, "rdp") > 0.85
    account = Account(people(0, 40))
    admission = account.begin(PLAN, (0.85, 1e-5))
    assert admission.judge == "its own accountant" and admission.left == pytest.approx(0.05, abs=1e-3)
    with pytest.raises(HalfmaskError, match="RDP filter"):
        account.begin(replace(PLAN, run="bb", last_step=0), None)


def test_the_whole_plan_is_reserved_at_once(fresh_home: Path) -> None:
    first, copy = Account(people(0, 40)), Account(people(20, 80))
    first.begin(PLAN, (1.1, 1e-5))
    assert first.spends() == [] and sum(spend.steps for spend in copy.committed()) == 60
    with pytest.raises(HalfmaskError, match="spent or reserved"):
        copy.begin(replace(PLAN, run="bb"), None)
    for start in range(0, 60, 20):
        first.pay(replace(PLAN, first_step=start, last_step=start + 19))
    assert sum(spend.steps for spend in first.committed()) == 60 == sum(spend.steps for spend in first.spends())


def test_a_step_beyond_the_plan_goes_through_the_filter(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, (0.85, 1e-5))
    account.pay(PLAN)
    before = account.spends()
    with pytest.raises(HalfmaskError, match="RDP filter"):
        account.pay(replace(PLAN, first_step=60, last_step=60))
    assert account.spends() == before


def test_what_was_released_can_be_spent_by_others_and_not_by_its_run(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, (0.9, 1e-5))
    account.pay(replace(PLAN, last_step=9))
    other = replace(PLAN, run="bb", last_step=9)
    with pytest.raises(HalfmaskError, match="reserved"):
        account.begin(other, None)
    assert account.release("aa") == 50 and account.release("aa") == 0
    account.begin(other, None)
    with pytest.raises(HalfmaskError, match="RDP filter"):
        account.pay(replace(PLAN, first_step=10))


def test_a_run_that_goes_on_is_not_judged_twice(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(replace(PLAN, last_step=29), (1.2, 1e-5))
    account.pay(replace(PLAN, last_step=29))
    account.release("aa")
    account.begin(PLAN, None)
    assert sum(spend.steps for spend in account.committed()) == 60


def test_a_refused_run_leaves_nothing_behind(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    with pytest.raises(HalfmaskError, match="this run alone would cost"):
        account.begin(PLAN, (0.5, 1e-5), publications=[Publication(VIEWS, "views")])
    assert ledger_files(fresh_home) == set()
    account.begin(PLAN, (0.85, 1e-5))
    lines = account.ledger.lines()
    with pytest.raises(HalfmaskError):
        Account(people(0, 50)).begin(replace(PLAN, run="bb"), (5.0, 1e-5), publications=[Publication(VIEWS, "views")])
    assert account.ledger.lines() == lines and len(list((fresh_home / "ledgers").glob("*.jsonl"))) == 1


@pytest.mark.parametrize("change", [{"adjacency": "replace-one"}, {"visible_batches": True}])
def test_what_the_filter_cannot_judge_may_be_first_and_never_later(change: dict, fresh_home: Path) -> None:
    plan = replace(PLAN, noise_multiplier=20.0, **change)
    account = Account(people(0, 40))
    account.begin(plan, (5.0, 1e-5))
    with pytest.raises(HalfmaskError, match=r"use --adjacency zero-out|public\.shared_batch"):
        account.begin(replace(plan, run="bb"), None)


# ---- budgets -------------------------------------------------------------------------------------------------------------


def test_the_smallest_budget_ever_set_holds(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, (1.0, 1e-5))
    with pytest.raises(HalfmaskError, match="budget is ε = 1 "):
        account.begin(replace(PLAN, run="bb"), (50.0, 1e-5))
    assert account.ledger.budgets() == [(1.0, 1e-5)]
    account.ledger.write("raise", {"epsilon": 50.0, "delta": 1e-5, "reason": "the ethics board said so"})
    account.begin(replace(PLAN, run="bb"), None)
    with pytest.raises(HalfmaskError, match=r"budget is ε = 1\.3 "):
        account.begin(replace(PLAN, run="cc"), (1.3, 1e-5))
    assert account.ledger.budgets() == [(50.0, 1e-5)], "what was refused set no budget either"


def test_a_budget_of_another_delta_holds_beside_the_first(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, (1.0, 1e-5))
    account.begin(None, (3.0, 1e-9))
    assert account.ledger.budgets() == [(1.0, 1e-5), (3.0, 1e-9)]


def test_a_budget_for_replacement_is_not_kept_by_counting_less(fresh_home: Path) -> None:
    """Two runs of which each is cheap under zero-out, and which together break the promise that the budget was set for."""
    account, related = Account(people(0, 40)), Account(people(39, 80))
    plan = replace(PLAN, noise_multiplier=3 * SIGMA, adjacency="replace-one")
    limit = 1.1 * total_epsilon([plan], 1e-5, Adjacency.REPLACE_ONE)
    account.begin(replace(plan, noise_multiplier=3 * SIGMA), (limit, 1e-5))
    account.pay(plan)
    later = replace(plan, run="bb", adjacency="zero-out")
    assert total_epsilon([plan, later], 1e-5, Adjacency.ZERO_OUT, "rdp") < limit < total_epsilon([plan, later], 1e-5, Adjacency.REPLACE_ONE)
    for one in (account, related):
        with pytest.raises(HalfmaskError, match=r"replace-one.*raise-budget"):
            one.begin(later, None)
        with pytest.raises(HalfmaskError, match=r"replace-one.*raise-budget"):
            one.pay(later)
    account.ledger.write("raise", {"epsilon": limit, "delta": 1e-5, "reason": "zero-out is what was meant"})
    account.begin(later, None)


def test_a_budget_for_replacement_is_set_beside_a_smaller_one(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(None, (1.0, 1e-5))
    account.begin(replace(PLAN, noise_multiplier=20 * SIGMA, adjacency="replace-one"), (2.0, 1e-5))
    assert account.ledger.bounds_replacement() and account.ledger.budgets() == [(1.0, 1e-5), (2.0, 1e-5)]


@pytest.mark.parametrize("before", [False, True])
def test_each_budget_is_judged_at_its_own_delta(before: bool, fresh_home: Path) -> None:
    """ε = 1 at δ = 1e-5 leaves room for the plan; the same ε at δ = 1e-9 does not, whichever budget was set first."""
    account = Account(people(0, 40))
    if before:
        account.begin(replace(PLAN, run="bb", noise_multiplier=200.0), None)
    for budget in ((1.2, 1e-5), (1.2, 1e-9)):
        account.begin(None, budget)
    with pytest.raises(HalfmaskError, match="at δ = 1e-09"):
        account.begin(PLAN, None)


def test_a_refusal_names_the_cause_that_matters(fresh_home: Path) -> None:
    open_read = Account(people(0, 10))
    open_read.begin(replace(PLAN, noise_multiplier=0.0, method="non-private"), None)
    with pytest.raises(HalfmaskError, match="without noise"):
        open_read.begin(replace(PLAN, run="bb"), (1.0, 1e-5))
    mixed = Account(people(20, 30))
    mixed.begin(replace(PLAN, group_sizes={}), None)
    with pytest.raises(HalfmaskError, match="different units"):
        mixed.begin(replace(PLAN, run="bb", unit="subject", group_sizes={}), (9.0, 1e-5))
    seeded = replace(PLAN, unprotected="the noise came from a seed")
    with pytest.raises(HalfmaskError, match="from a seed"):
        Account(people(40, 50)).begin(seeded, (9.0, 1e-5))


# ---- units ---------------------------------------------------------------------------------------------------------------


def test_runs_at_a_finer_unit_compose_into_the_coarser_one(fresh_home: Path) -> None:
    """By group size, never by adding: a subject has four crops, each with a coin of its own."""
    crops = replace(PLAN, group_sizes={"image": 2, "subject": 4})
    subjects = replace(PLAN, run="bb", unit="subject", units=250, group_sizes={})
    plans = [replace(crops.plan(), group_size=4), subjects.plan()]
    assert common_unit([crops, subjects]) == "subject" and common_unit([crops]) == "crop"
    assert total_epsilon([crops, subjects], 1e-5, Adjacency.ZERO_OUT) == pytest.approx(epsilon(plans, 1e-5), rel=1e-9)
    by_filter = total_epsilon([crops, subjects], 1e-5, Adjacency.ZERO_OUT, "rdp")
    assert total_epsilon([crops, subjects], 1e-5, Adjacency.ZERO_OUT) < by_filter < math.inf


def test_units_that_do_not_lie_in_each_other_have_no_total() -> None:
    images, subjects = replace(PLAN, unit="image", group_sizes={}), replace(PLAN, unit="subject", group_sizes={})
    assert total_epsilon([images, subjects], 1e-5, Adjacency.ZERO_OUT) == math.inf and "different units" in no_bound([images, subjects])
    both = replace(PLAN, unit="image", group_sizes={"subject": 3})
    assert total_epsilon([both, subjects], 1e-5, Adjacency.ZERO_OUT) < math.inf


def test_runs_in_turn_say_nothing_about_a_unit_they_do_not_share() -> None:
    """Crops of a run behind which a run on subjects stands: the one has no bound about crops alone, the other none about subjects."""
    images, crops = replace(PLAN, unit="image", group_sizes={}), replace(PLAN, run="bb", group_sizes={"image": 2})
    assert epsilon_in_turn([images, crops], "crop", 1e-5, Adjacency.ZERO_OUT) == math.inf
    assert epsilon_in_turn([images, crops], "image", 1e-5, Adjacency.ZERO_OUT) < math.inf
    both = [PLAN, replace(PLAN, run="bb")]
    fixed = total_epsilon(both, 1e-5, Adjacency.ZERO_OUT)
    assert epsilon_in_turn(both, "crop", 1e-5, Adjacency.ZERO_OUT) > fixed, "the second was chosen after seeing the first"
    replaced = epsilon_in_turn(both, "crop", 1e-5, Adjacency.REPLACE_ONE)
    assert replaced == pytest.approx(2 * total_epsilon([PLAN], 5e-6, Adjacency.REPLACE_ONE))


# ---- the same people -----------------------------------------------------------------------------------------------------


def test_other_pictures_of_the_same_subjects_are_the_same_people(fresh_home: Path) -> None:
    first = Account(people(0, 40, lambda i: f"patient {i // 4}"), "subject")
    first.begin(replace(PLAN, unit="subject", group_sizes={}), None)
    later = people(100, 140, lambda i: f"patient {i - 100}")
    assert Account(later, "subject").related_names == [first.ledger.dataset]
    assert Account(later, "crop").related_names == [first.ledger.dataset], "a promise was made to the subjects"
    strangers = people(100, 140, lambda i: f"patient {i + 900}")
    assert Account(strangers, "subject").related_names == []


def test_at_unit_crop_other_pictures_of_a_subject_are_others(fresh_home: Path) -> None:
    Account(people(0, 40, lambda i: f"patient {i // 4}")).begin(PLAN, None)
    assert Account(people(100, 140, lambda i: f"patient {i - 100}")).related_names == []


def test_a_relative_that_comes_later_is_seen_when_paying(fresh_home: Path) -> None:
    """Two overlapping datasets side by side: neither knew of the other when it was opened."""
    first, second = Account(people(0, 40)), Account(people(30, 80))
    assert first.related_names == [] == second.related_names
    first.begin(PLAN, (1.0, 1e-5))
    with pytest.raises(HalfmaskError, match="budget is ε = 1 "):
        second.begin(replace(PLAN, run="bb"), None)
    second.ledger.verify()
    with pytest.raises(HalfmaskError, match="budget is ε = 1 "):
        second.pay(replace(PLAN, run="bb"))


def test_what_is_learnt_of_a_relative_later_is_seen(fresh_home: Path) -> None:
    """The same images come with ids for the first time: whoever had looked before must look again."""
    mine = Account(people(0, 40, lambda i: f"patient {i}"), "subject")
    others = people(100, 140)
    Account(others).begin(PLAN, None)
    assert mine.related_names == []
    Account(people(100, 140, lambda i: f"patient {i - 100}")).begin(replace(PLAN, run="bb"), None)
    assert mine.related_names == [others.dataset]


def _compete(first: int, last: int, run: str) -> None:
    account = Account(people(first, last))
    try:
        account.begin(replace(PLAN, run=run), (1.0, 1e-5))
        account.pay(replace(PLAN, run=run))
    except HalfmaskError:
        raise SystemExit(2) from None


def test_of_two_runs_at_once_one_is_refused(fresh_home: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(3):
        start = 1000 * attempt
        workers = [context.Process(target=_compete, args=(start + a, start + a + 50, f"run{a}")) for a in (0, 25, 49)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        codes = sorted(worker.exitcode or 0 for worker in workers)
        # The first two overlap, and so do the last two; the first and the last do not.
        assert codes in ([0, 2, 2], [0, 0, 2])
        middle = Account(people(start + 25, start + 75))
        assert total_epsilon(middle.spends(), 1e-5, Adjacency.ZERO_OUT) <= 1.2 if codes == [0, 2, 2] else True


# ---- what is public for good ---------------------------------------------------------------------------------------------


def test_what_was_made_public_stays_so_for_related_datasets(fresh_home: Path) -> None:
    first = Account(people(0, 40))
    first.begin(None, None, publications=[Publication(VIEWS, "ψ: a blur"), Publication(VIEWS, "ψ: a blur")])
    assert first.publications() == ["ψ: a blur"] == Account(people(39, 60)).publications()
    assert len(first.ledger.lines("published")) == 1
    assert Account(people(40, 60)).publications() == []


def test_records_given_up_are_known_by_every_later_account(fresh_home: Path) -> None:
    everyone = people(0, 40)
    first = Account(everyone)
    hashes = tuple(row.tobytes().hex() for row in everyone.take(np.arange(5)).exact)
    first.begin(PLAN, None, publications=[Publication(RAW, "five records", hashes)])
    assert Account(everyone).given_up(everyone).nonzero()[0].tolist() == [0, 1, 2, 3, 4]
    other = people(3, 60)
    assert Account(other).given_up(other).nonzero()[0].tolist() == [0, 1], "those records, not the dataset"
    assert total_epsilon(first.committed(), 1e-5, Adjacency.ZERO_OUT) < 1


def test_protected_people_are_found_in_what_is_to_be_scored(fresh_home: Path) -> None:
    everyone = people(0, 40)
    hashes = tuple(row.tobytes().hex() for row in everyone.take(np.arange(5)).exact)
    Account(everyone).begin(PLAN, None, publications=[Publication(RAW, "five records", hashes)])
    assert protected_among(people(30, 60)) == {everyone.dataset: 10}
    assert protected_among(people(0, 5)) == {} == protected_among(people(50, 60))


def test_protected_subjects_are_found_in_other_pictures(fresh_home: Path) -> None:
    """Where subjects are protected, scoring or pre-training on another picture of one of them reads them as well."""
    mine = people(0, 40, lambda i: f"patient {i // 4}")
    elsewhere = people(100, 108, lambda i: f"patient {i - 92}")  # patients 8 and 9 are protected, 10 to 15 are not
    Account(mine).begin(replace(PLAN, run="bb"), None)
    assert protected_among(elsewhere) == {}, "crops are protected: another picture is somebody else"
    Account(mine, "subject").begin(replace(PLAN, unit="subject", group_sizes={}), None)
    assert protected_among(elsewhere) == {mine.dataset: 2}
    unknown = people(200, 204)
    assert protected_among(unknown) == {}, "no id is nobody's id"


def test_subjects_of_records_given_up_are_known_in_other_pictures(fresh_home: Path) -> None:
    open_ones = people(100, 104, lambda i: f"patient {i - 100}")
    hashes = tuple(row.tobytes().hex() for row in open_ones.exact[:2])
    Account(open_ones).begin(None, None, publications=[Publication(RAW, "weights were trained on them", hashes)])
    mine = people(0, 8, lambda i: f"patient {i // 2}")
    account = Account(mine, "subject")
    assert account.given_up(mine, by_subject=True).nonzero()[0].tolist() == [0, 1, 2, 3], "patients 0 and 1, not all of the dataset"
    assert not account.given_up(mine).any(), "these pictures of them are not public"


def test_an_open_read_ends_the_account(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.record_read("somebody", "its people were scored openly")
    assert account.total(1e-5, Adjacency.ZERO_OUT) == math.inf
    assert "scored openly" in no_bound(account.spends())


# ---- weights -------------------------------------------------------------------------------------------------------------


def test_runs_behind_weights_are_found_by_tensor_and_by_name(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, None)
    account.record_model("aa", "digest", ["t1", "t2"])
    account.record_model("bb", "digest", ["t3"], behind=["aa"])
    assert account.runs_behind({"t2", "x"}, set()) == ["aa"]
    assert account.runs_behind({"t3"}, set()) == ["bb", "aa"]
    account.pay(PLAN)
    assert account.runs_behind(set(), {"aa"}) == ["aa"] and account.runs_behind({"x"}, {"zz"}) == []
    assert Account(people(39, 41)).runs_behind({"t1"}, set()) == ["aa"] and Account(people(50, 51)).runs_behind({"t1"}, set()) == []


# ---- files ---------------------------------------------------------------------------------------------------------------


def test_a_deleted_ledger_is_missed(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, None)
    account.pay(PLAN)
    for path in (account.ledger.path, account.ledger.folder / "index"):
        path.unlink()
    for again in (Account(people(0, 40)), Account(people(39, 41))):
        with pytest.raises(HalfmaskError, match="changed or cut"):
            again.begin(replace(PLAN, run="bb"), None)
    with pytest.raises(HalfmaskError, match="changed or cut"):
        Ledger(account.ledger.dataset).verify()


def test_records_that_were_taken_away_are_missed(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, None)
    account.pay(PLAN)
    (account.ledger.folder / f"{account.ledger.dataset}.records").unlink()
    with pytest.raises(HalfmaskError, match="no longer be recognised"):
        Account(people(39, 41)).begin(replace(PLAN, run="bb"), None)


def test_an_account_is_found_from_its_ledger(fresh_home: Path) -> None:
    account = Account(people(0, 40))
    account.begin(PLAN, None)
    found = account_of(Ledger(account.ledger.dataset))
    assert found is not None and found.ledger.dataset == account.ledger.dataset and len(found.prints) == 40
