"""Sweeps of runs of a few steps, for whoever hands them out; and several processes, for what a run does on more than one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from halfmask.training.sweep import PlannedRun, expand, plan_sweep
from halfmask.training.sweep_jobs import Board, Job, News, Outcome

# Three steps each. σ is given: to find it takes longer than the steps.
_RECIPE: dict[str, Any] = {
    "strategy": "top",
    "batch": 8,
    "epochs": 0.6,
    "delta": 1e-3,
    "noise_multiplier": 3.0,
    "accountant": "rdp",
    "even_so": True,
    "data": {"private": 40, "public": 20, "test": 4},
    "model": {"weights": None, "input_size": [64, 48], "size": "nano"},
}


@pytest.fixture
def quick_sweep(fresh_home: Path, tmp_path: Path) -> Callable[..., list[PlannedRun]]:
    """Plans runs of one method with as many seeds, in `tmp_path/table`, with a home in which nothing was ever spent."""

    def plan(seeds: int, **changes: Any) -> list[PlannedRun]:
        return plan_sweep(_RECIPE | changes, expand(["dpsgd"], [9.0], [0.1], range(seeds)), [], tmp_path / "table")

    return plan


class ActingBoard(Board):
    """Does something once, when the first step of a run is told of; keeps why runs are tried again."""

    def __init__(self, act: Callable[[int], None]):
        self.act: Callable[[int], None] | None = act
        self.failed: list[str] = []

    def hear(self, news: News) -> None:
        if news.call == "step" and self.act is not None:
            act, self.act = self.act, None
            act(news.number)

    def again(self, job: Job, outcome: Outcome) -> None:
        self.failed.append(outcome.words)


@pytest.fixture
def acting() -> type[ActingBoard]:
    return ActingBoard


@dataclass
class Launched:
    """Processes of a run that were started; `wait` for them before looking at what they left."""

    pids: list[int]
    folder: Path
    _launcher: Launcher
    codes: list[int | None] | None = None

    def wait(self, seconds: float = 60, besides: int | None = None) -> list[int | None]:
        """Their exit codes; None for those that did not end in time, or for one that nobody need wait for."""
        return self._launcher.ask({"pids": self.pids, "seconds": seconds, "besides": None if besides is None else self.pids[besides]})

    def seen(self, name: str) -> list[dict[str, Any]]:
        """What each of them saw of a job."""
        return [json.loads((self.folder / f"{name}.{rank}.json").read_text()) for rank in range(len(self.pids))]

    def kept(self, name: str, rank: int) -> dict[str, list[torch.Tensor]]:
        """Tensors that a process had in its hands."""
        return torch.load(self.folder / f"{name}.{rank}.pt", weights_only=True)

    def said(self) -> str:
        """All that all of them printed."""
        return "".join((self.folder / f"said.{rank}").read_text() for rank in range(len(self.pids)))


class Launcher:
    """Talks to `rank_worker.py`, which imports once and forks as often as asked."""

    def __init__(self, home: Path, folder: Path):
        self.home, self._folder, self._count = home, folder, 0
        variables = {"OMP_NUM_THREADS": "1", "HALFMASK_HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("rank_worker.py"))],
            env={name: value for name, value in os.environ.items() if name != "HALFMASK_DATA"} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, world: int, *jobs: dict[str, Any], **request: Any) -> Launched:
        """Start processes that do some jobs one after the other."""
        self._count += 1
        folder = self._folder / f"launch{self._count}"
        folder.mkdir()
        request |= {"world": world, "jobs": list(jobs), "folder": str(folder)}
        return Launched(self.ask(request), folder, self)

    def run(self, world: int, *jobs: dict[str, Any], seconds: float = 60, **request: Any) -> Launched:
        """The same, to their end."""
        launched = self.start(world, *jobs, **request)
        launched.codes = launched.wait(seconds)
        return launched

    def home_like(self, name: str) -> Path:
        """A home in which nothing was spent, under the key and with the drawn people of this one."""
        home = self._folder / name
        shutil.copytree(self.home, home, ignore=shutil.ignore_patterns("ledgers", "locks"))
        return home

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Starts processes of runs."""
    home = tmp_path_factory.mktemp("ranks-home")
    launcher = Launcher(home, tmp_path_factory.mktemp("ranks"))
    yield launcher
    launcher.close()
