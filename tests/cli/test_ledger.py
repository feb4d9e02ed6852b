"""`halfmask ledger`, through the real command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.data.prints import named_prints
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import VIEWS, Account, Publication
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.spends import Spend

pytestmark = pytest.mark.usefixtures("quick_accounting")
SPEND = Spend("aa", "dpsgd", "zero-out", "crop", 1000, 0, 49, 0.01, 4.0, 0.1, 10.0, "test")


def account(first: int, last: int) -> Account:
    return Account(named_prints([f"picture {number}" for number in range(first, last)]))


def book(halfmask, account: Account) -> dict:
    (found,) = json.loads(halfmask("ledger", "show", account.ledger.dataset, "--json").out)
    return found


def test_show_lists_runs_and_the_total(halfmask, fresh_home: Path) -> None:
    people = account(0, 20)
    people.begin(replace(SPEND, last_step=119), (3.0, 1e-5), publications=[Publication(VIEWS, "every silhouette")])
    for spend in (SPEND, replace(SPEND, first_step=50, last_step=99), replace(SPEND, run="bb", method="feature")):
        people.pay(spend)
    found = book(halfmask, people)
    shown = [(entry["run"], entry["method"], entry["steps"], entry["reserved"]) for entry in found["runs"]]
    assert shown == [("aa", "dpsgd", 100, 20), ("bb", "feature", 50, 0)]
    assert found["total"] == pytest.approx(epsilon([SampledGaussian(4.0, 0.01, 150)], 1e-5), rel=1e-9)
    assert found["budgets"] == [[3.0, 1e-5]] and found["public"] == ["every silhouette"] and not found["related"]
    result = halfmask("ledger", "show", people.ledger.dataset[:6])
    for words in ("feature", "total ε", "to one crop", "budget: ε = 3 at δ = 1e-05", "public for good: every silhouette"):
        assert words in result.out


def test_show_says_which_dataset_where_when_and_at_what_cost(halfmask, fresh_home: Path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    people = account(0, 20)
    people.name_run("aa", "clinic", "/runs/first")
    spends = (SPEND, replace(SPEND, run="bb"), replace(SPEND, run="cc", last_step=99), replace(SPEND, run="dd", noise_multiplier=0.0))
    for spend in spends:
        people.pay(spend)
    found = book(halfmask, people)
    assert found["names"] == ["clinic"]
    assert [(run["dataset"], run["folder"]) for run in found["runs"]] == [("clinic", "/runs/first"), ("", ""), ("", ""), ("", "")]
    once, twice = (epsilon([SampledGaussian(4.0, 0.01, steps)], 1e-5) for steps in (50, 100))
    assert [run["epsilon"] for run in found["runs"]] == [pytest.approx(once), pytest.approx(once), pytest.approx(twice), "infinity"]
    assert all(run["date"] == people.ledger.lines("spend")[0]["time"][:10] for run in found["runs"])
    shown = halfmask("ledger", "show").out
    for words in ("(clinic)", "/runs/first", found["runs"][0]["date"], f"{once:.4g}", "∞"):
        assert words in shown
    assert people.ledger.verify() == 6, "a line that names a run is a line like any other"


def test_whoever_leaves_is_promised_nothing_where_something_of_them_is_public(halfmask, fresh_home: Path) -> None:
    plain, posed, related = account(0, 20), account(50, 60), account(55, 70)
    plain.pay(SPEND)
    posed.begin(SPEND, None, publications=[Publication(VIEWS, "of every record: the pose of every person")])
    posed.pay(SPEND)
    related.pay(replace(SPEND, run="bb"))
    for people, bounded in ((plain, True), (posed, False), (related, False)):
        (found,) = json.loads(halfmask("ledger", "show", people.ledger.dataset, "--adjacency", "add-remove", "--json").out)
        assert (found["total"] != "infinity") == bounded and ("the pose of every person" in found["no_bound"]) != bounded
        assert book(halfmask, people)["total"] != "infinity"


def test_people_of_another_dataset_are_counted_with_it(halfmask, fresh_home: Path) -> None:
    first, second, strangers = account(0, 20), account(15, 40), account(50, 60)
    for people, run in ((first, "aa"), (second, "bb"), (strangers, "cc")):
        people.pay(replace(SPEND, run=run))
    found = book(halfmask, first)
    assert found["related"] == [second.ledger.dataset] and [run["run"] for run in found["runs"]] == ["aa"]
    assert found["total"] == pytest.approx(epsilon([SampledGaussian(4.0, 0.01, 100)], 1e-5), rel=1e-9)
    assert second.ledger.dataset[:12] in halfmask("ledger", "show", first.ledger.dataset).out
    assert book(halfmask, strangers)["total"] < found["total"]


WITHOUT_A_BOUND = {
    "no noise": (replace(SPEND, noise_multiplier=0.0, method="non-private"), "without noise"),
    "a seed": (replace(SPEND, unprotected="the noise came from a seed"), "the noise came from a seed"),
}


@pytest.mark.parametrize("kind", WITHOUT_A_BOUND)
def test_what_has_no_bound_is_infinite_and_said_so(kind: str, halfmask, fresh_home: Path) -> None:
    spend, reason = WITHOUT_A_BOUND[kind]
    people, related = account(0, 20), account(10, 30)
    people.pay(SPEND)
    people.pay(replace(spend, run="bb"))
    related.pay(replace(SPEND, run="cc"))
    assert book(halfmask, people)["total"] == "infinity" == book(halfmask, related)["total"]
    shown = halfmask("ledger", "show", people.ledger.dataset).out
    assert "total ε = ∞" in shown and f"run bb has no bound: {'it read the data ' if kind == 'no noise' else ''}{reason}" in shown
    assert reason in halfmask("ledger", "show", related.ledger.dataset).out


def test_an_open_read_ends_an_account(halfmask, fresh_home: Path) -> None:
    people = account(0, 20)
    people.pay(SPEND)
    assert book(halfmask, people)["total"] < 1
    people.record_read("scores", "its people were scored openly")
    assert book(halfmask, people)["total"] == "infinity"
    assert "its people were scored openly" in halfmask("ledger", "show").out


def test_visible_batches_are_counted_without_amplification(halfmask, fresh_home: Path) -> None:
    hidden, visible = account(0, 20), account(50, 70)
    hidden.pay(SPEND)
    visible.pay(replace(SPEND, visible_batches=True))
    plan = SampledGaussian(4.0, 0.01, 50, Adjacency.ZERO_OUT, visible_batches=True)
    found = book(halfmask, visible)["total"]
    assert found == pytest.approx(epsilon([plan], 1e-5), rel=1e-9) and found > 2 * book(halfmask, hidden)["total"]
    # A crop among four of a subject: no bound is known for all four together where batches are seen.
    visible.pay(replace(SPEND, run="bb", visible_batches=True, group_sizes={"subject": 4}))
    visible.pay(replace(SPEND, run="cc", unit="subject"))
    assert book(halfmask, visible)["total"] == "infinity"


def test_raising_a_budget_needs_a_reason_and_is_on_the_record(halfmask, fresh_home: Path) -> None:
    people = account(0, 20)
    people.begin(SPEND, (0.2, 1e-5))
    people.pay(SPEND)
    people.begin(None, (5.0, 1e-9))
    assert book(halfmask, people)["budgets"] == [[0.2, 1e-5], [5.0, 1e-9]], "a later one holds besides, not instead"
    later, dataset = replace(SPEND, run="bb", last_step=9999), people.ledger.dataset
    with pytest.raises(HalfmaskError, match=r"budget is ε = 0\.2 "):
        people.begin(later, (5.0, 1e-5))
    lines = people.ledger.lines()
    assert halfmask("ledger", "raise-budget", dataset, "--to", 5, "--delta", 1e-5).code == 2
    assert "--reason is empty" in halfmask("ledger", "raise-budget", dataset, "--to", 5, "--delta", 1e-5, "--reason", "  ").error
    assert "epsilon" in halfmask("ledger", "raise-budget", dataset, "--to", -1, "--delta", 1e-5, "--reason", "why not").error
    assert people.ledger.lines() == lines, "what is refused is not written"
    with pytest.raises(HalfmaskError, match=r"budget is ε = 0\.2 "):
        people.begin(later, None)
    result = halfmask("ledger", "raise-budget", dataset[:8], "--to", 5, "--delta", 1e-5, "--reason", "the ethics board agreed")
    assert result.code == 0 and "before: ε = 0.2 at δ = 1e-05" in result.out
    (line,) = people.ledger.lines("raise")
    assert (line["epsilon"], line["delta"], line["reason"]) == (5.0, 1e-5, "the ethics board agreed")
    assert book(halfmask, people)["budgets"] == [[5.0, 1e-5]]
    left = people.begin(later, None).left
    assert left is not None and 0 < left < 5


def test_release_gives_back_what_was_not_taken(halfmask, fresh_home: Path) -> None:
    people = account(0, 20)
    people.begin(replace(SPEND, last_step=99), None)
    people.pay(SPEND)
    dataset = people.ledger.dataset
    assert sum(spend.steps for spend in people.committed()) == 100
    assert "has nothing reserved" in halfmask("ledger", "release", dataset, "bb").error
    result = halfmask("ledger", "release", dataset, "aa")
    assert result.code == 0 and "50 steps of aa are given back" in result.out
    assert sum(spend.steps for spend in people.committed()) == 50 == sum(spend.steps for spend in people.spends())
    assert "has nothing reserved" in halfmask("ledger", "release", dataset, "aa").error


def test_verify_says_what_is_broken(halfmask, fresh_home: Path) -> None:
    whole, broken = account(0, 5), account(10, 15)
    for people in (whole, broken):
        people.pay(SPEND)
        people.pay(replace(SPEND, first_step=50, last_step=99))
    assert halfmask("ledger", "verify").code == 0
    lines = broken.ledger.path.read_text().splitlines()
    broken.ledger.path.write_text("".join(line + "\n" for line in lines[:-1]))
    result = halfmask("ledger", "verify")
    assert result.code == 2
    assert f"{whole.ledger.dataset}: 3 lines, intact" in result.out
    assert broken.ledger.dataset in result.err and "changed or cut" in result.err


def test_records_that_were_taken_away_are_missed(halfmask, fresh_home: Path) -> None:
    people = account(0, 5)
    people.pay(SPEND)
    people.ledger.path.with_suffix(".records").unlink()
    result = halfmask("ledger", "verify")
    assert result.code == 2 and "can no longer be recognised" in result.err


def test_a_ledger_that_was_deleted_is_missed(halfmask, fresh_home: Path) -> None:
    ledger = Ledger("people")
    ledger.append(SPEND)
    ledger.path.unlink()
    assert "changed or cut" in halfmask("ledger", "verify").err


def test_unknown_and_ambiguous_datasets(halfmask, fresh_home: Path) -> None:
    assert "no ledger" in halfmask("ledger", "show", "nobody").error
    for number in range(17):
        account(10 * number, 10 * number + 5).pay(SPEND)
    names = sorted(path.stem for path in (fresh_home / "ledgers").glob("*.jsonl"))
    shared = next(start for start in "0123456789abcdef" if sum(name.startswith(start) for name in names) > 1)
    assert "give more of it" in halfmask("ledger", "release", shared, "aa").error
    assert math.isfinite(account(0, 5).total(1e-5, Adjacency.ZERO_OUT))
