"""An account whose ledger is on another machine: what a guest asks, and the desk that answers.

What crosses, all of it: of the guest, fingerprints (keyed hashes and sealed sketches), plans and spends, words about what it takes to be
public, digests and keyed hashes of released weights; of the host, the lines of the ledgers of these people, verdicts, and, once, the key.
No image, no label, no gradient.

How it crosses is not told here. A desk answers to `lease`s: whoever sends runs out lends one for each attempt and takes it back when the
attempt is over, or was given up. A worker that was taken for dead and is not can then pay for nothing more, certify nothing, and so take
no further block of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from halfmask.errors import HalfmaskError, OverBudget
from halfmask.privacy import account as accounts
from halfmask.privacy.account import Account, Admission, Publication
from halfmask.privacy.fingerprints import Fingerprints, key
from halfmask.privacy.guest import Host, host, refuse_guests
from halfmask.privacy.home import folder_lock
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.spends import Spend

_ABOUT_PEOPLE = ("related_names", "consider", "begin", "pay", "release", "record_model", "name_run", "record_read", "given_up")


def open_account(prints: Fingerprints, unit: str) -> Account:
    """The account of these people: in this machine's home, or in the one that this process is a guest of."""
    visited = host()
    return Account(prints, unit) if visited is None else RemoteAccount(prints, unit, visited)


def protected_among(prints: Fingerprints) -> dict[str, int]:
    """How many of these records show people whom some account protects, by the name of the account; of a guest, in its host's home."""
    visited = host()
    found: dict[str, int] = accounts.protected_among(prints) if visited is None else visited.ask("protected_among", prints)
    return found


@dataclass(frozen=True)
class Answer:
    """What a desk says: a value, or why there is none. Refusals travel as words, because exceptions do not travel well."""

    value: Any = None
    refused: str = ""
    over_budget: bool = False

    def opened(self) -> Any:
        """The value; raises what was refused."""
        if self.refused:
            raise (OverBudget if self.over_budget else HalfmaskError)(self.refused)
        return self.value


class RemoteLedger(Ledger):
    """The lines of one dataset, in the host's home. They can be read from here, and are written by what an account asks for alone."""

    def __init__(self, dataset: str, visited: Host):
        self.dataset, self._visited = dataset, visited

    def lines(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every line, after the host has checked the whole file."""
        lines: list[dict[str, Any]] = self._visited.ask("lines", self.dataset)
        return lines if kind is None else [line for line in lines if line["kind"] == kind]

    def write(self, kind: str, body: Any) -> None:
        """Refused: a check and its entry belong together, under the host's lock."""
        refuse_guests()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refused, for the same reason."""
        refuse_guests()
        yield


class RemoteAccount(Account):
    """What was spent on the people of a dataset, by the ledgers of the host."""

    def __init__(self, prints: Fingerprints, unit: str, visited: Host):
        self.prints, self.unit, self._visited = prints, unit, visited
        self._others: dict[str, Ledger] = {}
        self.ledger = self._other(prints.dataset)
        visited.ask("enter", prints, unit, prints.dataset)

    def _other(self, name: str) -> Ledger:
        return self._others.setdefault(name, RemoteLedger(name, self._visited))

    @property
    def related_names(self) -> list[str]:  # noqa: D102
        names: list[str] = self._visited.ask("related_names")
        return names

    def consider(self, plan: Spend | None, budget: tuple[float, float] | None, accountant: str = "pld") -> Admission:  # noqa: D102
        admission: Admission = self._visited.ask("consider", plan, budget, accountant)
        return admission

    def begin(  # noqa: D102
        self, plan: Spend | None, budget: tuple[float, float] | None, accountant: str = "pld", publications: Sequence[Publication] = ()
    ) -> Admission:
        admission: Admission = self._visited.ask("begin", plan, budget, accountant, tuple(publications))
        return admission

    def pay(self, spend: Spend) -> None:  # noqa: D102
        self._visited.ask("pay", spend)

    def release(self, run: str) -> int:  # noqa: D102
        return int(self._visited.ask("release", run))

    def record_model(self, run: str, digest: str, tensors: Sequence[str], behind: Sequence[str] = ()) -> None:  # noqa: D102
        self._visited.ask("record_model", run, digest, tuple(tensors), tuple(behind))

    def name_run(self, run: str, dataset: str, folder: str) -> None:  # noqa: D102
        self._visited.ask("name_run", run, dataset, folder)

    def record_read(self, run: str, reason: str) -> None:  # noqa: D102
        self._visited.ask("record_read", run, reason)

    def given_up(self, prints: Fingerprints, by_subject: bool = False) -> np.ndarray:  # noqa: D102
        return np.asarray(self._visited.ask("given_up", prints, by_subject), bool)


class Desk:
    """Answers for this machine's home. One at a time: its answers are given in the order in which they are asked for."""

    def __init__(self) -> None:
        refuse_guests()
        self._folders: dict[str, FileLock] = {}
        self._accounts: dict[str, Account] = {}

    def lend(self, lease: str, folder: Path) -> Answer:
        """Let an attempt at a run spend here, and keep everybody else off its folder."""

        def lend() -> None:
            self._folders[lease] = folder_lock(folder)

        return _answered(lend)

    def take_back(self, lease: str) -> None:
        """Answer this attempt no more."""
        lock = self._folders.pop(lease, None)
        if lock is not None:
            lock.release()
        self._accounts.pop(lease, None)

    def answer(self, lease: str, question: str, *about: Any) -> Answer:
        """One question of a guest."""
        return _answered(lambda: self._answer(lease, question, *about))

    def _answer(self, lease: str, question: str, *about: Any) -> Any:
        if lease not in self._folders:
            raise HalfmaskError("this attempt at the run was given up, and another may be under way: nothing more is spent by this one")
        if question == "key":
            return key()
        if question == "enter":
            return self._enter(lease, *about)
        if question == "protected_among":
            return accounts.protected_among(*about)
        account = self._accounts.get(lease)
        if account is None:
            raise HalfmaskError("it was not said whose account this is about: open it first")
        if question == "lines":
            return next(one for one in (account.ledger, *account.related()) if [one.dataset] == [*about]).lines()
        if question == "related_names":
            return account.related_names
        if question not in _ABOUT_PEOPLE:
            raise HalfmaskError(f"a desk knows no question '{question}'")
        return getattr(account, question)(*about)

    def _enter(self, lease: str, prints: Fingerprints, unit: str, name: str) -> None:
        if prints.dataset != name:
            raise HalfmaskError(
                f"the same fingerprints are called {prints.dataset[:8]}… here and {name[:8]}… where the run works: it names people by "
                "another key, and they would get a second budget"
            )
        self._accounts[lease] = Account(prints, unit)


def _answered(act: Any) -> Answer:
    try:
        return Answer(act())
    except HalfmaskError as error:
        return Answer(refused=str(error), over_budget=isinstance(error, OverBudget))
