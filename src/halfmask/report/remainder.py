"""What the ledger says is left for the people of a run: how much was spent on them by all runs, the budgets, and what remains of those.

These are public parameters: ε of what was paid for, and ε of what was allowed. Nothing else of a ledger is read for a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.account import account_of
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.spends import common_unit, no_bound, total_epsilon


@dataclass(frozen=True)
class Remainder:
    """What is left.

    Attributes:
        spent: ε of everything ever spent on these people, as if all runs had been fixed in advance.
        budgets: (ε, δ) that binds them, and what is left of it by the Rényi filter; None where that cannot be told.
        why: why there is no bound, where there is none.
    """

    spent: float
    delta: float
    adjacency: str
    unit: str
    budgets: tuple[tuple[float, float, float | None], ...]
    why: str = ""


def remainder(certificate: Mapping[str, Any]) -> Remainder | None:
    """What the ledger of a certificate's dataset says now; None where that ledger is not read here."""
    dataset = str(certificate.get("dataset_fingerprint") or "")
    try:
        if not dataset or dataset not in ledger_names():
            return None
        ledger = Ledger(dataset)
        # Related ledgers count too, so that nothing said before holds once any of them has changed.
        written = sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in ledger.folder.glob("*.jsonl"))
        if not ledger.lines():
            return None
        return _remainder(dataset, str(ledger.folder), tuple(written), float(certificate["delta"]), str(certificate["adjacency"]))
    except (HalfmaskError, OSError):
        # A ledger that is broken, or may not be read here: 'halfmask ledger verify' says what is wrong with it.
        return None


@lru_cache(maxsize=256)
def _remainder(dataset: str, home: str, written: tuple[Any, ...], delta: float, adjacency: str) -> Remainder:
    ledger = Ledger(dataset)
    account = account_of(ledger)
    spends = ledger.spends() if account is None else account.spends()
    committed = ledger.committed() if account is None else account.committed()
    ledgers = [ledger] if account is None else [account.ledger, *account.related()]
    replaced = any(one.bounds_replacement() for one in ledgers)
    budgets = []
    for allowed, at in dict.fromkeys(budget for one in ledgers for budget in one.budgets()):
        taken = math.inf if replaced else total_epsilon(committed, at, Adjacency.ZERO_OUT, "rdp")
        budgets.append((allowed, at, None if replaced else max(0.0, allowed - taken)))
    spent = total_epsilon(spends, delta, Adjacency(adjacency))
    return Remainder(spent, delta, adjacency, common_unit(spends) or "unit", tuple(budgets), no_bound(spends))


def told(certificate: Mapping[str, Any]) -> list[str]:
    """The remainder in sentences; where the ledger is elsewhere, what the certificate remembers of it."""
    found = remainder(certificate)
    name = str(certificate.get("dataset", "the dataset"))
    if found is None:
        total = number(certificate.get("ledger_total"))
        return [
            f"The ledger of {name} is not read here. When the certificate was written, all runs on these people together had cost "
            f"ε = {total}; what has been spent since, and what is left, its holder can tell ('halfmask ledger show')."
        ]
    lines = [
        f"Everything ever run on these people ({name}) has cost ε = {number(found.spent)} to one {found.unit} at δ = {found.delta:g}, "
        f"{found.adjacency}, as if all runs had been fixed in advance" + (f": {found.why}." if found.why else ".")
    ]
    for allowed, at, left in found.budgets:
        rest = "what is left of it cannot be told: it was set for replace-one" if left is None else f"ε = {number(left)} of it is left"
        lines.append(f"All runs together must stay within ε = {allowed:g} at δ = {at:g}: {rest}.")
    if not found.budgets:
        lines.append("No budget was set, so nothing keeps later runs from spending more.")
    return lines


def number(value: Any) -> str:
    """An ε for reading, as files have it."""
    if value is None:
        return "—"
    if value == "infinity" or (isinstance(value, float) and math.isinf(value)):
        return "∞"
    return f"{float(value):.4g}"
