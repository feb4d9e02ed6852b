"""A dataset's account: its own ledger and those of every dataset that shares records with it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import Fingerprints, overlapping
from halfmask.privacy.ledger import Ledger, Spend, check_budget_left, total_epsilon


class Account:
    """What was spent on the people of a dataset, under whatever name, and what may still be."""

    def __init__(self, fingerprints: Fingerprints, folder: Path | None = None):
        self.ledger = Ledger(fingerprints.dataset, folder)
        fingerprints.save(self.ledger.folder)
        self.related_names = overlapping(fingerprints, self.ledger.folder)
        self._related = [Ledger(name, folder) for name in self.related_names]

    def spends(self) -> list[Spend]:
        """Everything spent here and on related datasets."""
        return [spend for ledger in (self.ledger, *self._related) for spend in ledger.spends()]

    def total(self, delta: float, adjacency: Adjacency) -> float:
        """ε of all of it, as if all runs had been fixed in advance."""
        return total_epsilon(self.spends(), delta, adjacency)

    def set_budget(self, budget: float, delta: float) -> None:
        """Bind this and every later run."""
        self.ledger.set_budget(budget, delta)

    def check(self, planned: Spend) -> float | None:
        """Refuse a plan that would pass any budget set here or on a related dataset; return the least that would be left."""
        budgets = [budget for ledger in (self.ledger, *self._related) if (budget := ledger.budget()) is not None]
        left = [check_budget_left(self.spends(), planned, *budget) for budget in budgets]
        return min(left) if left else None

    def pay(self, spend: Spend) -> None:
        """Write the spend down, unless a budget forbids it; nobody else can write between the check and the entry."""
        ledgers = sorted((self.ledger, *self._related), key=lambda ledger: ledger.dataset)
        with ExitStack() as locks:
            # In one order for everyone, so that two runs on related datasets never wait for each other.
            for ledger in ledgers:
                locks.enter_context(ledger.locked())
            self.check(spend)
            self.ledger.append(spend)
