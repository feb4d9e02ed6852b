"""Sweeps of runs of a few steps, for whoever hands them out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
