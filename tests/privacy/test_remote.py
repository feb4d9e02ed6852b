"""One budget, many machines: a guest and its host in one process, with a home each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfmask.data.prints import named_prints
from halfmask.errors import HalfmaskError, OverBudget
from halfmask.privacy.account import RAW, Account, Publication
from halfmask.privacy.account import protected_among as protected_here
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_images, key
from halfmask.privacy.guest import Host, Unreachable, host, visiting
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.remote import Desk, RemoteAccount, open_account, protected_among
from halfmask.privacy.spends import Spend, total_epsilon

SPEND = Spend("run", "dpsgd", "zero-out", "crop", 20, 0, 39, 0.05, 2.0, 0.1, 1.0, "test")


class Machines:
    """A host with a desk, and a machine elsewhere with a home and a key of its own."""

    def __init__(self, place: Path, at_home: Callable[[Path], AbstractContextManager[None]]):
        self.at_home = at_home
        self.host, self.elsewhere = place / "host", place / "elsewhere"
        self.asked: list[str] = []
        with self.at_home(self.host):
            self.desk, self.key = Desk(), key()
            self.desk.lend("lease", place / "run").opened()

    def ask(self, question: str, *about: Any) -> Any:
        self.asked.append(question)
        with self.at_home(self.host):
            return self.desk.answer("lease", question, *about).opened()

    @contextmanager
    def working(self, ask: Callable[..., Any] | None = None) -> Iterator[None]:
        with self.at_home(self.elsewhere), visiting(Host(self.key, ask or self.ask)):
            yield


@pytest.fixture
def machines(tmp_path: Path, at_home) -> Machines:
    return Machines(tmp_path, at_home)


def people(first: int = 0, last: int = 20) -> Fingerprints:
    return named_prints([f"picture {number}" for number in range(first, last)])


def test_two_homes_name_the_same_people_differently(machines) -> None:
    """Why guests exist: without them, the second machine opens an account of its own."""
    with machines.at_home(machines.host):
        here = people().dataset
    with machines.at_home(machines.elsewhere):
        assert people().dataset != here


def test_the_same_people_are_one_account_from_either_machine(machines) -> None:
    with machines.at_home(machines.host):
        account = Account(people())
        account.begin(replace(SPEND, run="here"), (2.0, 1e-5))
        account.pay(replace(SPEND, run="here"))
    with machines.working():
        there = open_account(people(), "crop")
        assert isinstance(there, RemoteAccount) and there.ledger.dataset == account.ledger.dataset
        assert [spend.run for spend in there.spends()] == ["here"] and there.ledger.budgets() == [(2.0, 1e-5)]
        there.begin(replace(SPEND, run="there"), None)
        there.pay(replace(SPEND, run="there"))
        assert there.ledger.reserved("there") == SPEND.steps
        lines = there.ledger.lines()
    with machines.at_home(machines.host):
        assert ledger_names() == [account.ledger.dataset] and account.ledger.lines() == lines
        assert [spend.run for spend in account.spends()] == ["here", "there"] and account.ledger.verify()
    left = {path.name for path in machines.elsewhere.rglob("*")}
    assert not left & {"fingerprint.key", "ledgers"}, "a guest's own machine learns neither the key nor of any spending"


def test_a_budget_binds_from_either_machine(machines) -> None:
    alone = total_epsilon([SPEND], 1e-5, Adjacency.ZERO_OUT, "rdp")
    with machines.working():
        account = open_account(people(), "crop")
        account.begin(SPEND, (1.2 * alone, 1e-5))
        account.pay(SPEND)
        with pytest.raises(OverBudget, match="spent or reserved"):
            account.consider(replace(SPEND, run="second"), None)
        with pytest.raises(OverBudget, match="spent or reserved"):
            account.begin(replace(SPEND, run="second"), None)
        with pytest.raises(OverBudget):
            account.pay(replace(SPEND, run="second"))
    with machines.at_home(machines.host), pytest.raises(OverBudget):
        Account(people()).begin(replace(SPEND, run="third"), None)


def test_everything_an_account_answers_is_the_hosts_answer(machines) -> None:
    with machines.at_home(machines.host):
        # A dataset that shares some of these people, one of whom it gave up; and weights that a run released.
        other = Account(people(15, 40))
        row = other.prints.exact[0].tobytes().hex()
        other.begin(replace(SPEND, run="related"), None, publications=[Publication(RAW, "somebody was given up", (row,))])
        other.pay(replace(SPEND, run="related"))
        other.record_model("related", "digest", ["tensor"], ["before"])
        local = Account(people(), "crop")
        expected = (local.related_names, local.publications(), local.given_up(people()), local.runs_behind({"tensor"}, set()))
        among = protected_here(people())
    assert expected[0] and expected[2].sum() == 1 and expected[3] == ["related", "before"] and among
    with machines.working():
        account = open_account(people(), "crop")
        found = (account.related_names, account.publications(), account.given_up(people()), account.runs_behind({"tensor"}, set()))
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
        assert [spend.run for spend in account.spends()] == ["related"] and protected_among(people()) == among
        account.begin(SPEND, None)
        account.record_model("run", "mine", ["t"])
        account.record_read("run", "somebody looked")
        assert account.release("run") == SPEND.steps - 1, "a read is an entry of one step"
        assert [line["kind"] for line in account.ledger.lines()] == ["open", "reserve", "model", "spend", "release"]


def test_a_guest_cannot_open_a_ledger_of_its_own(machines) -> None:
    with machines.working():
        for act in (
            lambda: Ledger("anything"),
            ledger_names,
            lambda: Account(people()),
            lambda: protected_here(people()),
            Desk,
            lambda: open_account(people(), "crop").ledger.write("spend", {}),
            lambda: open_account(people(), "crop").ledger.release("run"),
        ):
            with pytest.raises(HalfmaskError, match="a second budget"):
                act()
    assert host() is None and not (machines.elsewhere / "ledgers").exists()


def test_another_key_is_found_out(machines) -> None:
    with machines.at_home(machines.elsewhere):
        other = key()
    with machines.at_home(machines.elsewhere), visiting(Host(other, machines.ask)), pytest.raises(HalfmaskError, match="by another key"):
        open_account(people(), "crop")
    with machines.at_home(machines.host):
        assert ledger_names() == []


def test_an_attempt_that_was_given_up_can_do_nothing_more(machines, tmp_path) -> None:
    with machines.working():
        account = open_account(people(), "crop")
        account.begin(SPEND, None)
        machines.desk.take_back("lease")
        for act in (lambda: account.pay(SPEND), lambda: account.record_model("run", "", []), lambda: account.ledger.lines()):
            with pytest.raises(HalfmaskError, match="given up"):
                act()
    with machines.at_home(machines.host):
        assert not Account(people()).spends()
        # The folder is free for the next attempt, and for nobody beside it.
        machines.desk.lend("next", tmp_path / "run").opened()
        with pytest.raises(HalfmaskError, match="another process is at work"):
            Desk().lend("other", tmp_path / "run").opened()


def test_only_questions_that_are_known_are_answered(machines) -> None:
    with pytest.raises(HalfmaskError, match="open it first"):
        machines.ask("lines", "anything")
    with machines.working():
        open_account(people(), "crop")
    for question in ("_enrol", "ledger", "__class__"):
        with pytest.raises(HalfmaskError, match="knows no question"):
            machines.ask(question)


def test_pictures_cross_as_hashes_and_sealed_sketches(machines) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 3, 64, 64), dtype=np.uint8)
    sent: list[Any] = []

    def ask(question: str, *about: Any) -> Any:
        sent.extend(about)
        return machines.ask(question, *about)

    with machines.working(ask):
        open_account(fingerprint_images(images), "crop")
    with machines.at_home(machines.host):
        assert fingerprint_images(images).dataset == sent[0].dataset
    assert {type(one) for one in sent} == {Fingerprints, str}
    assert images[0].tobytes()[:64] not in b"".join(array.tobytes() for array in sent[0].arrays().values())


def test_whoever_cannot_be_reached_is_told_apart(machines) -> None:
    def silent(question: str, *about: Any) -> Any:
        raise Unreachable("nobody answers")

    with machines.working(silent), pytest.raises(Unreachable):
        open_account(people(), "crop")
