"""A process that is killed at any moment: the ledger never knows of less than what reached a file."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from halfmask.privacy.account import Account
from halfmask.privacy.accounting import epsilon
from halfmask.training import running
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import Setup, prepare

KILLS = 16

# The first optimiser of a process imports half of torch: here, so that children forked later need not.
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _child(config: RunConfig, out: Path, resume: bool) -> None:
    torch.set_num_threads(1)
    run_training(config, out, resume=resume)


def _start(config: RunConfig, out: Path, resume: bool) -> multiprocessing.process.BaseProcess:
    # Forked after the imports: the child starts training within milliseconds.
    process = multiprocessing.get_context("fork").Process(target=_child, args=(config, out, resume))
    process.start()
    return process


def _seconds_to_a_checkpoint(config: RunConfig, out: Path) -> float:
    """How long a child takes, on a machine as busy as this one is now, until steps have reached a file."""
    process, begin = _start(config, out, resume=False), time.perf_counter()
    while _steps_that_reached_a_file(out) == 0:
        assert process.is_alive() and time.perf_counter() - begin < 60
        time.sleep(0.01)
    process.kill()
    process.join()
    return time.perf_counter() - begin


def _steps_that_reached_a_file(out: Path) -> int:
    return int(RunFolder(out).load_checkpoint()["step"]) if (out / "checkpoint" / "state.pt").exists() else 0


@pytest.fixture
def long_config(tiny_config: Callable[..., RunConfig], quick_accounting: None) -> RunConfig:
    # Checkpoints every few steps, and enough steps that no child reaches the end between two kills.
    return tiny_config("data.test=0", "data.public=0", epochs=800.0, batch=20, insecure_seed=None)


@pytest.mark.alone
def test_killed_at_any_moment_the_ledger_knows_enough(
    long_config: RunConfig, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    setup = prepare(long_config, Progress())
    # Preparation is the same each time and spends nothing: done once, so that the kills fall on training.
    monkeypatch.setattr(running, "prepare", lambda config, progress, **_: setup)
    # ε for the screen: of no interest here, and with epochs of two steps it would take most of the time.
    monkeypatch.setattr(Setup, "spent", lambda setup, steps, grid=None: 0.0)
    ledger = Account(setup.data.fingerprints).ledger
    plan = setup.plan
    assert plan is not None
    rng = random.Random(0)
    folders, kills, advanced = [tmp_path / "run0"], 0, 0
    usual = _seconds_to_a_checkpoint(long_config, folders[0])
    while kills < KILLS:
        run = folders[-1]
        before = _steps_that_reached_a_file(run)
        process = _start(long_config, run, resume=(run / "checkpoint" / "state.pt").exists())
        time.sleep(rng.uniform(0.02, 2 * usual))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        if process.exitcode == 0 or not (run / "checkpoint" / "state.pt").exists():
            # It ended, or died before it had a name: the next one starts anew, on the same dataset.
            folders.append(tmp_path / f"run{len(folders)}")
        kills += process.exitcode == -signal.SIGKILL
        ledger.verify()
        paid = sum(spend.steps for spend in ledger.spends())
        taken = sum(_steps_that_reached_a_file(folder) for folder in folders)
        assert paid >= taken
        if kills % 10 == 0:
            spent = ledger.total(long_config.delta, plan.adjacency)
            assert spent >= epsilon([replace(plan, steps=taken)], long_config.delta) - 1e-12
        advanced += _steps_that_reached_a_file(run) > before
    assert advanced >= 4, "hardly any child got as far as a checkpoint: the test shows nothing"


def test_two_runs_at_once_lose_no_entry(long_config: RunConfig, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    short = replace(long_config, epochs=5.0)
    setup = prepare(short, Progress())
    monkeypatch.setattr(running, "prepare", lambda config, progress, **_: setup)
    processes = [_start(short, tmp_path / name, resume=False) for name in ("a", "b")]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    spends = Account(setup.data.fingerprints).ledger.spends()
    by_run = {spend.run: sum(s.steps for s in spends if s.run == spend.run) for spend in spends}
    assert list(by_run.values()) == [setup.steps, setup.steps]
