"""Real processes, one home between them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy import locking
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.training.sweep import PlannedRun, cost_together, expand, plan_sweep, read_certificate, run_state
from halfmask.training.sweep_jobs import Board, Ending, Job, News, Outcome, carry_out
from halfmask.training.sweep_workers import LocalWorkers

DELTA = 1e-3
RECIPE: dict[str, Any] = {
    "strategy": "top",
    "batch": 8,
    "epochs": 0.6,
    "delta": DELTA,
    "epsilon": 9.0,
    "noise_multiplier": 3.0,
    "accountant": "rdp",
    "even_so": True,
    "data": {"private": 40, "public": 20, "test": 4},
    "model": {"weights": None, "input_size": [64, 48], "size": "nano"},
}


def planned(out: Path, seeds: int, **changes: Any) -> list[PlannedRun]:
    return plan_sweep(RECIPE | changes, expand(["dpsgd"], [RECIPE["epsilon"]], [0.1], range(seeds)), [], out)


class Acting(Board):
    """Does something once, at a run's first step."""

    def __init__(self, act: Callable[[int], None]):
        self.act: Callable[[int], None] | None = act
        self.failed: list[str] = []

    def hear(self, news: News) -> None:
        if news.call == "step" and self.act is not None:
            act, self.act = self.act, None
            act(news.number)

    def again(self, job: Job, outcome: Outcome) -> None:
        self.failed.append(outcome.words)


def process_of(crew: LocalWorkers, number: int) -> int:
    pids = [one.process.pid for one in crew._workers if one is not None and one.job is not None and one.job.number == number]
    assert pids and pids[0] is not None
    return pids[0]


def test_a_killed_worker_is_replaced_and_a_budget_ends_in_the_middle(fresh_home, tmp_path) -> None:
    budget = epsilon([SampledGaussian(3.0, 0.2, 8)], DELTA, "rdp")
    runs, crew = planned(tmp_path, 4, budget=budget), LocalWorkers(2, 1)
    board = Acting(lambda number: os.kill(process_of(crew, number), signal.SIGKILL))
    outcomes = carry_out(runs, crew, board)
    endings = [one.ending for one in outcomes]
    assert endings.count(Ending.DONE) == endings.count(Ending.REFUSED) == 2
    assert board.failed == ["its process ended by signal 9"]
    (dataset,) = ledger_names()
    done = [run for run, ending in zip(runs, endings, strict=True) if ending is Ending.DONE]
    certified = [SampledGaussian(3.0, 0.2, read_certificate(run.folder)["steps"]) for run in done]
    assert sum(spend.steps for spend in Ledger(dataset).spends()) == sum(plan.steps for plan in certified) == 6
    assert cost_together(done)[1] == pytest.approx(epsilon(certified, DELTA), rel=1e-9)
    assert Ledger(dataset).verify() and not list((fresh_home / "logs").iterdir())


def test_ctrl_c_and_the_same_command_again(fresh_home, tmp_path) -> None:
    runs, crew = planned(tmp_path, 2, epochs=6), LocalWorkers(2, 1)

    def interrupt(number: int) -> None:
        assert os.getpgid(process_of(crew, number)) != os.getpgid(0), "Ctrl-C in a terminal would reach a worker twice"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(runs, crew, Acting(interrupt))
    stopped = [run for run in runs if (run.folder / "certificate.json").is_file()]
    assert stopped, "at least the run that had taken a step is whole"
    for run in stopped:
        certificate = read_certificate(run.folder)
        assert 0 < certificate["steps"] < certificate["planned_steps"] and run_state(run).value == "continue"
    (run,) = planned(tmp_path, 1, epochs=6)
    before = read_certificate(run.folder)["run"] if run in stopped else None
    (outcome,) = carry_out([run], LocalWorkers(1, 1), Board())
    assert outcome.ending is Ending.DONE and read_certificate(run.folder)["steps"] == 30
    assert before in (None, read_certificate(run.folder)["run"])


def test_a_home_that_does_not_lock_is_refused_before_any_run(fresh_home, tmp_path, monkeypatch) -> None:
    def broken(folder: Path, kind: str) -> None:
        raise HalfmaskError("two processes held one lock")

    monkeypatch.setattr(locking, "_try", broken)
    with pytest.raises(HalfmaskError, match="two processes held one lock"):
        carry_out(planned(tmp_path, 1), LocalWorkers(2, 1), Board())
    assert not tmp_path.joinpath("runs").exists()
