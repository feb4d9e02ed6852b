"""A run as it would be: known before anything is spent, computed or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.privacy.account import Account
from halfmask.training import setup as preparation
from halfmask.training.config import RunConfig
from halfmask.training.plan import RunPlan, plan_run
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


def ledger_files(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.glob("ledgers/*") if path.name != "lock"}


@pytest.mark.parametrize("method", ["dpsgd", "feature-projective", "public-only", "non-private"])
def test_a_plan_is_the_run_that_would_be_made(method: str, tiny_config: Build, monkeypatch: pytest.MonkeyPatch, fresh_home: Path) -> None:
    config = tiny_config(method=method)
    whole = prepare(config, Progress())
    for name in ("with_view", "with_lower_features"):
        monkeypatch.setattr(preparation, name, lambda *a, **k: pytest.fail("a plan computes nothing about anybody"))
    found = plan_run(config, Progress())
    facts = found.facts
    assert not found.problems and (facts["units"], facts["steps"]) == (len(whole.units), whole.steps)
    assert (facts["noise_multiplier"], facts["sampling_rate"]) == (whole.noise_multiplier, whole.sampling_rate)
    assert ("signal_at_best" in facts) == (whole.method.private == "noised")
    assert ("judged_by" in facts) == (whole.method.private != "unread") and ledger_files(fresh_home) == {}


def test_a_plan_that_would_be_refused_says_why_and_writes_nothing(tiny_config: Build, tmp_path: Path, fresh_home: Path) -> None:
    secure = replace(tiny_config(budget=0.85), insecure_seed=None)
    run_training(secure, tmp_path / "run")
    before = ledger_files(fresh_home)
    (problem,) = plan_run(secure, Progress()).problems
    assert "RDP filter" in problem
    (problem,) = plan_run(replace(secure, batch=41), Progress()).problems
    assert "41" in problem
    hopeless = plan_run(replace(tiny_config(), even_so=False, budget=None), Progress())
    assert any("coordinates could carry" in line for line in hopeless.problems)
    assert ledger_files(fresh_home) == before


def test_a_seed_that_is_written_down_is_no_plan_for_a_budget(tiny_config: Build, fresh_home: Path) -> None:
    """What training would refuse, a plan refuses."""
    (problem,) = plan_run(tiny_config(budget=3.0), Progress()).problems
    assert "no bound" in problem


def test_what_is_said_on_the_way_is_kept(tiny_config: Build, fresh_home: Path) -> None:
    said = plan_run(tiny_config(delta=0.04), Progress())
    assert any("not below 1/N" in remark for remark in said.remarks)
    shown = [text for text, _ in RunPlan(("too few",), {"units": 1200, "noise_multiplier": 1.23456, "left": None}, ("mind",)).lines()]
    assert shown == ["units: 1,200", "noise multiplier: 1.235", "mind", "this run would be refused: too few"]
    assert Account(prepare(tiny_config(), Progress()).data.fingerprints).ledger.lines() == []
