"""`halfmask ledger`, through the real command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from halfmask.privacy.ledger import Ledger, Spend

SPEND = Spend("aa", "dpsgd", "zero-out", "crop", 1000, 0, 49, 0.01, 4.0, 0.1, 10.0, "test")


def test_show_lists_runs_and_the_total(halfmask, fresh_home: Path) -> None:
    ledger = Ledger("people")
    for spend in (SPEND, replace(SPEND, first_step=50, last_step=99), replace(SPEND, run="bb", method="feature")):
        ledger.append(spend)
    ledger.set_budget(3.0, 1e-5)
    (book,) = json.loads(halfmask("ledger", "show", "--json").out)
    assert [(entry["run"], entry["method"], entry["steps"]) for entry in book["runs"]] == [("aa", "dpsgd", 100), ("bb", "feature", 50)]
    assert 0 < book["total"] < 3 and book["budget"] == [3.0, 1e-5]
    shown = halfmask("ledger", "show", "peo")
    assert "feature" in shown.out and "total ε" in shown.out and "budget" in shown.out


def test_a_run_without_noise_is_infinite(halfmask, fresh_home: Path) -> None:
    Ledger("people").append(replace(SPEND, noise_multiplier=0.0))
    assert json.loads(halfmask("ledger", "show", "--json").out)[0]["total"] == "infinity"
    assert "∞" in halfmask("ledger", "show").out


def test_verify_says_what_is_broken(halfmask, fresh_home: Path) -> None:
    whole, broken = Ledger("aaa"), Ledger("bbb")
    for ledger in (whole, broken):
        ledger.append(SPEND)
        ledger.append(replace(SPEND, first_step=50, last_step=99))
    assert halfmask("ledger", "verify").code == 0
    lines = broken.path.read_text().splitlines()
    broken.path.write_text(lines[0] + "\n")
    result = halfmask("ledger", "verify")
    assert result.code == 2
    assert "aaa: 2 lines, intact" in result.out
    assert "bbb" in result.err and "changed or cut" in result.err


def test_a_ledger_that_was_deleted_is_missed(halfmask, fresh_home: Path) -> None:
    ledger = Ledger("people")
    ledger.append(SPEND)
    ledger.path.unlink()
    assert "changed or cut" in halfmask("ledger", "verify").err


def test_unknown_dataset(halfmask, fresh_home: Path) -> None:
    assert "no ledger" in halfmask("ledger", "show", "nobody").error
