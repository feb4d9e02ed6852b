"""A dataset's account: its own ledger and those of every dataset that shows the same people.

Whoever opens an account reads; the first entry enrols the dataset, so that a run that is refused leaves nothing behind. Related datasets
are looked up under the same lock that an entry is written under: two runs on overlapping datasets, side by side, see each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.errors import OverBudget
from halfmask.privacy import relations
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.spends import Spend, epsilon_left, total_epsilon
from halfmask.privacy.units import told_by_id

# What may have been made public of people, for good.
VIEWS, RAW = "views", "raw"


@dataclass(frozen=True)
class Publication:
    """Something of a dataset's people that a run takes, or took, to be public: it stays so for every later run on them.

    Attributes:
        what: `views` (ψ and labels) or `raw` (whole records: S_pub).
        words: for certificates.
        records: keyed hashes of the records, where they are not all.
    """

    what: str
    words: str
    records: tuple[str, ...] = ()


@dataclass(frozen=True)
class Admission:
    """A run that may begin: what will be left of the tightest budget after it, and who judged so."""

    left: float | None
    judge: str


class Account:
    """What was spent on the people of a dataset, under whatever name, and what may still be.

    Args:
        unit: what the present run protects. Under `subject`, other pictures of the same subjects are the same people.
    """

    def __init__(self, prints: Fingerprints, unit: str = "crop", folder: Path | None = None):
        self.prints, self.unit = prints, unit
        self.ledger = Ledger(prints.dataset, folder)
        # Each file of records is compared once for as long as it stays what it is: subjects may be added under the same name.
        self._verdicts: dict[tuple[str, int, int], tuple[bool, bool]] = {}
        self._others: dict[str, Ledger] = {}
        self._kept = False

    @property
    def related_names(self) -> list[str]:
        """Other known datasets that show some of these people."""
        names = []
        for name in ledger_names(self.ledger.folder):
            other, records = self._other(name), self.ledger.folder / f"{name}.records"
            if name == self.ledger.dataset:
                continue
            if not records.exists():
                # Nobody knows whom it speaks of: if anything was spent, it may have been on anybody.
                other.verify()
                continue
            status = records.stat()
            known = (name, status.st_mtime_ns, status.st_size)
            if known not in self._verdicts:
                self._verdicts[known] = relations.related(self.prints, Fingerprints.load(records), self.ledger.folder)
            pictures, subjects = self._verdicts[known]
            if pictures or subjects:
                other.verify()
            if pictures or (subjects and any(map(told_by_id, (self.unit, *(spend.unit for spend in other.committed()))))):
                names.append(name)
        return names

    def related(self) -> list[Ledger]:
        """Their ledgers."""
        return [self._other(name) for name in self.related_names]

    def _other(self, name: str) -> Ledger:
        return self._others.setdefault(name, Ledger(name, self.ledger.folder))

    def spends(self) -> list[Spend]:
        """Everything spent here and on related datasets."""
        return [spend for ledger in (self.ledger, *self.related()) for spend in ledger.spends()]

    def committed(self) -> list[Spend]:
        """Everything spent or reserved, here and on related datasets."""
        return [spend for ledger in (self.ledger, *self.related()) for spend in ledger.committed()]

    def total(self, delta: float, adjacency: Adjacency) -> float:
        """ε of everything spent, as if all runs had been fixed in advance; infinite where that has no meaning."""
        return math.inf if self.missed(adjacency) else total_epsilon(self.spends(), delta, adjacency)

    def missed(self, adjacency: Adjacency) -> str:
        """Why somebody who leaves these people would be missed, whatever was noised; nothing where they would not."""
        if adjacency is not Adjacency.ADD_REMOVE:
            return ""
        found = [line["words"] for ledger in (self.ledger, *self.related()) for line in ledger.lines("published") if line["what"] == VIEWS]
        return f"a run here took something to be public that would be missed if a unit were removed ({found[0]})" if found else ""

    def begin(
        self, plan: Spend | None, budget: tuple[float, float] | None, accountant: str = "pld", publications: Sequence[Publication] = ()
    ) -> Admission:
        """Admit a run, or refuse it and write nothing.

        A run whose people were never spent on was fixed before anything was seen, so its own accountant may judge it. Every other one may
        have been chosen after seeing results, and goes through the Rényi filter over all that is spent or reserved. Either way the whole
        plan is reserved in one line, under the lock: it will not run out of budget half-way, and nobody else can be promised the same.

        Args:
            plan: all steps of the run, from 0; None for one that reads nothing private. Of a run that goes on, what it has paid is not
                judged again.
            budget: (ε, δ) to bind this and every later run to.
            publications: what the run takes to be public of these people.
        """
        with self.ledger.locked():
            admission = self.consider(plan, budget, accountant)
            self._enrol()
            adjacency = Adjacency.ZERO_OUT.value if plan is None else plan.adjacency
            stricter = adjacency == Adjacency.REPLACE_ONE.value and not self.ledger.bounds_replacement()
            known = any(eps <= budget[0] and delta <= budget[1] for eps, delta in self.ledger.budgets()) if budget is not None else True
            if budget is not None and (stricter or not known):
                self.ledger.write("budget", {"epsilon": budget[0], "delta": budget[1], "adjacency": adjacency})
            for publication in publications:
                self._publish(publication, plan)
            if plan is not None:
                self.ledger.write("reserve", asdict(plan) | {"judge": admission.judge})
        return admission

    def consider(self, plan: Spend | None, budget: tuple[float, float] | None, accountant: str = "pld") -> Admission:
        """Whether a run would be admitted now; refuses it if not. Writes nothing."""
        ledgers = (self.ledger, *self.related())
        budgets = [one for ledger in ledgers for one in ledger.budgets()] + ([budget] if budget is not None else [])
        committed = [spend for ledger in ledgers for spend in ledger.committed()]
        judge = "its own accountant" if not committed else "the Rényi filter"
        if plan is None:
            return Admission(None, judge)
        paid = sum(spend.steps for spend in committed if spend.run == plan.run)
        rest = self._under_budgets(replace(plan, first_step=paid), ledgers)
        left = [self._judged(rest, committed, one, accountant) for one in budgets if rest.steps > 0]
        return Admission(min(left) if left else None, judge)

    @staticmethod
    def _under_budgets(plan: Spend, ledgers: Sequence[Ledger]) -> Spend:
        """The plan as the budgets look at it: one that was set for replace-one is not kept by counting less."""
        if any(ledger.bounds_replacement() for ledger in ledgers):
            return replace(plan, adjacency=Adjacency.REPLACE_ONE.value)
        return plan

    @staticmethod
    def _judged(plan: Spend, committed: Sequence[Spend], budget: tuple[float, float], accountant: str) -> float:
        if committed or plan.unbounded:
            return epsilon_left(committed, plan, *budget)
        needed = total_epsilon([plan], budget[1], Adjacency(plan.adjacency), accountant)
        if needed > budget[0]:
            raise OverBudget(
                f"the dataset's budget is ε = {budget[0]:g} at δ = {budget[1]:g}, and this run alone would cost {needed:.4g}: "
                f"lower --epsilon, "
                "or take fewer epochs"
            )
        return budget[0] - needed

    def pay(self, spend: Spend) -> None:
        """Write the spend down; a step that no reservation covers must pass the Rényi filter first."""
        with self.ledger.locked():
            self._enrol()
            if spend.last_step >= self.ledger.reserved(spend.run):
                ledgers = (self.ledger, *self.related())
                # What the run itself has reserved is spent by this, not spent besides.
                committed = [one for ledger in ledgers for one in ledger.committed()]
                for budget in (one for ledger in ledgers for one in ledger.budgets()):
                    epsilon_left(committed, self._under_budgets(spend, ledgers), *budget)
            self.ledger.append(spend)

    def release(self, run: str) -> int:
        """Give back what a run has reserved and will not spend; returns the number of steps."""
        return self.ledger.release(run)

    def record_model(self, run: str, digest: str, tensors: Sequence[str], behind: Sequence[str] = ()) -> None:
        """Remember weights that a run released, so that whoever goes on from them is told what they cost.

        Args:
            digest: SHA-256 of the file.
            tensors: keyed hashes of the tensors that were trained, which survive being renamed or saved in another format.
            behind: runs whose weights this one went on from.
        """
        with self._entering():
            self.ledger.write("model", {"run": run, "weights_sha256": digest, "tensors": list(tensors), "behind": list(behind)})

    def name_run(self, run: str, dataset: str, folder: str) -> None:
        """Remember what a run's dataset was called and where its folder was, for whoever reads the ledger; nothing depends on it."""
        with self._entering():
            self.ledger.write("run", {"run": run, "dataset": dataset, "folder": folder})

    def record_read(self, run: str, reason: str) -> None:
        """Write down that private people were read outside the mechanism: ε = ∞ from here on."""
        with self._entering():
            self.ledger.append(
                Spend(run, "read", "zero-out", self.unit, len(self.prints), 0, 0, 1.0, 0.0, 0.0, 1.0, "none", False, {}, reason)
            )

    def publications(self) -> list[str]:
        """What of these people is public for good, in words, because some run here or on a related dataset took it to be."""
        words = [line["words"] for ledger in (self.ledger, *self.related()) for line in ledger.lines("published")]
        return list(dict.fromkeys(words))

    def given_up(self, prints: Fingerprints, by_subject: bool = False) -> np.ndarray:
        """Which of these records are public for good, raw: one flag each.

        Args:
            by_subject: which are of somebody of whom a record is, in this picture or in another: where subjects are protected, there is
                nothing left to promise them.
        """
        public = np.zeros(len(prints), bool)
        for ledger in (self.ledger, *self.related()):
            hashes = {record for line in ledger.lines("published") if line["what"] == RAW for record in line["records"]}
            if not hashes:
                continue
            theirs = self.prints if ledger is self.ledger else Fingerprints.load(ledger.path.with_suffix(".records"))
            rows = np.array([row.tobytes().hex() in hashes for row in theirs.exact])
            gone = theirs.take(np.flatnonzero(rows))
            public |= prints.in_subjects_of(gone) if by_subject else prints.in_pictures_of(gone)
        return public

    def runs_behind(self, tensors: set[str], runs: set[str]) -> list[str]:
        """Runs on these people whose released weights are among these tensors, or that go by one of these names; and those behind them."""
        found: list[str] = []
        for ledger in (self.ledger, *self.related()):
            for line in ledger.lines("model"):
                if line["run"] in runs or tensors.intersection(line["tensors"]):
                    found += [line["run"], *line["behind"]]
            found += [spend.run for spend in ledger.spends() if spend.run in runs]
        return list(dict.fromkeys(found))

    def _publish(self, publication: Publication, plan: Spend | None) -> None:
        body: Mapping[str, Any] = asdict(publication) | {"records": list(publication.records)}
        known = [{name: line[name] for name in body} for line in self.ledger.lines("published")]
        if body not in known:
            self.ledger.write("published", dict(body) | {"run": "" if plan is None else plan.run})

    @contextmanager
    def _entering(self) -> Iterator[None]:
        with self.ledger.locked():
            self._enrol()
            yield

    def _enrol(self) -> None:
        """The dataset's first line, then its records: records without a ledger are a ledger that was deleted."""
        if not self.ledger.verify():
            self.ledger.write("open", {"unit": self.unit, "records": len(self.prints)})
        if not self._kept or not self.ledger.path.with_suffix(".records").exists():
            # Once: to add people to those that are there means to read and compare them all.
            self.prints.save(self.ledger.folder)
            self._kept = True


def account_of(ledger: Ledger) -> Account | None:
    """The account that a ledger belongs to, from the records beside it; None for one that was never enrolled."""
    records = ledger.folder / f"{ledger.dataset}.records"
    if not records.exists():
        ledger.verify()
        return None
    units = {spend.unit for spend in ledger.committed()}
    return Account(Fingerprints.load(records), next(filter(told_by_id, sorted(units)), "crop"), ledger.folder)


def protected_among(prints: Fingerprints, folder: Path | None = None) -> dict[str, int]:
    """How many of these records show people whom some account here protects, by the name of the account."""
    found = {}
    for name in ledger_names(folder):
        account = account_of(Ledger(name, folder))
        if account is None:
            continue
        recur = prints.in_pictures_of(account.prints)
        if told_by_id(account.unit):
            recur |= prints.in_subjects_of(account.prints)
        recur &= ~account.given_up(prints)
        if recur.any():
            found[name] = int(recur.sum())
    return found
