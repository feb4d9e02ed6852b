"""Real processes, one home between them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy import locking
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.training.sweep import cost_together, read_certificate, run_state
from halfmask.training.sweep_jobs import Board, Ending, carry_out
from halfmask.training.sweep_workers import LocalWorkers

DELTA = 1e-3


def process_of(crew: LocalWorkers, number: int) -> int:
    pids = [one.process.pid for one in crew._workers if one is not None and one.job is not None and one.job.number == number]
    assert pids and pids[0] is not None
    return pids[0]


def test_a_killed_worker_is_replaced_and_a_budget_ends_in_the_middle(quick_sweep, acting, fresh_home) -> None:
    budget = epsilon([SampledGaussian(3.0, 0.2, 8)], DELTA, "rdp")
    runs, crew = quick_sweep(4, budget=budget), LocalWorkers(2, 1)
    board = acting(lambda number: os.kill(process_of(crew, number), signal.SIGKILL))
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


def test_ctrl_c_and_the_same_command_again(quick_sweep, acting) -> None:
    runs, crew = quick_sweep(2, epochs=6), LocalWorkers(2, 1)

    def interrupt(number: int) -> None:
        assert os.getpgid(process_of(crew, number)) != os.getpgid(0), "Ctrl-C in a terminal would reach a worker twice"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(runs, crew, acting(interrupt))
    stopped = [run for run in runs if (run.folder / "certificate.json").is_file()]
    assert stopped, "at least the run that had taken a step is whole"
    for run in stopped:
        certificate = read_certificate(run.folder)
        assert 0 < certificate["steps"] < certificate["planned_steps"] and run_state(run).value == "continue"
    (run,) = quick_sweep(1, epochs=6)
    before = read_certificate(run.folder)["run"] if run in stopped else None
    (outcome,) = carry_out([run], LocalWorkers(1, 1), Board())
    assert outcome.ending is Ending.DONE and read_certificate(run.folder)["steps"] == 30
    assert before in (None, read_certificate(run.folder)["run"])


def test_a_home_that_does_not_lock_is_refused_before_any_run(quick_sweep, tmp_path, monkeypatch) -> None:
    def broken(folder: Path, kind: str) -> None:
        raise HalfmaskError("two processes held one lock")

    monkeypatch.setattr(locking, "_try", broken)
    with pytest.raises(HalfmaskError, match="two processes held one lock"):
        carry_out(quick_sweep(1), LocalWorkers(2, 1), Board())
    assert not tmp_path.joinpath("table").exists()
