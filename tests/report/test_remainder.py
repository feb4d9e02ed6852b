"""What ledgers say is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmask.data.prints import named_prints
from halfmask.privacy.account import Account
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.spends import Spend, total_epsilon
from halfmask.report.remainder import number, remainder, told

SPEND = Spend("run", "dpsgd", "zero-out", "crop", 1000, 0, 39, 0.05, 2.0, 1.0, 50.0, "secure")


def account() -> Account:
    return Account(named_prints([f"picture {number}" for number in range(20)]))


def certificate(fingerprint: str) -> dict:
    return {"dataset_fingerprint": fingerprint, "delta": 1e-5, "adjacency": "zero-out", "dataset": "people", "ledger_total": 0.7}


def test_a_ledger_that_is_elsewhere_leaves_what_the_certificate_remembers(fresh_home: Path) -> None:
    (line,) = told(certificate("0" * 32))
    assert "not read here" in line and "ε = 0.7" in line


def test_what_is_left_is_what_the_filter_would_grant(fresh_home: Path) -> None:
    own = account()
    own.begin(SPEND, (2.0, 1e-5))
    own.pay(SPEND)
    found = remainder(certificate(own.ledger.dataset))
    assert found is not None and found.unit == "crop" and not found.why
    assert found.spent == pytest.approx(total_epsilon([SPEND], 1e-5, Adjacency.ZERO_OUT))
    ((allowed, at, left),) = found.budgets
    assert (allowed, at) == (2.0, 1e-5) and left == pytest.approx(2.0 - total_epsilon([SPEND], 1e-5, Adjacency.ZERO_OUT, "rdp"))
    assert any("must stay within ε = 2 at δ = 1e-05" in line for line in told(certificate(own.ledger.dataset)))
    own.record_read("look", "somebody looked")
    again = told(certificate(own.ledger.dataset))
    assert "ε = ∞" in again[0] and "somebody looked" in again[0] and "ε = 0 of it is left" in again[1], (
        "what was said before is not said again"
    )


def test_without_a_budget_nothing_is_bounded(fresh_home: Path) -> None:
    own = account()
    own.begin(SPEND, None)
    own.pay(SPEND)
    assert "No budget was set" in told(certificate(own.ledger.dataset))[1]


def test_numbers_as_files_have_them() -> None:
    assert [number(value) for value in (None, "infinity", float("inf"), 0.812345)] == ["—", "∞", "∞", "0.8123"]
