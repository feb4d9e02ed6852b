"""Fixtures that all tests share: a private home of their own, quick accounting, tiny datasets and configs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import halfmask.privacy.accounting as accounting
from halfmask.data.figures import JOINT_NAMES
from halfmask.data.figures_records import figures_records
from halfmask.data.records import PoseRecords
from halfmask.training.config import RunConfig, build_config

TINY_SIZE = (64, 48)


@pytest.fixture(autouse=True, scope="session")
def halfmask_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ledgers, caches and keys of the tests go to a folder that is thrown away, never to the user's."""
    home = tmp_path_factory.mktemp("halfmask-home")
    before = {name: os.environ.get(name) for name in ("HALFMASK_HOME", "HALFMASK_DATA")}
    os.environ["HALFMASK_HOME"] = str(home)
    os.environ.pop("HALFMASK_DATA", None)
    yield home
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which nothing was ever spent or cached."""
    home = tmp_path / "home"
    monkeypatch.setenv("HALFMASK_HOME", str(home))
    return home


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in one order: what byte-for-byte comparisons need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def _quick_calibrate(*arguments: Any) -> float:
    return accounting.calibrate(*arguments)


@pytest.fixture
def quick_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real accountants on a coarse grid (still an upper bound), each plan calibrated once per session."""
    real = accounting.PLDAccountant

    def coarse(*, neighboring_relation: Any, value_discretization_interval: float) -> Any:
        return real(
            neighboring_relation=neighboring_relation,
            value_discretization_interval=max(1e-3, value_discretization_interval),
        )

    monkeypatch.setattr(accounting, "PLDAccountant", coarse)
    monkeypatch.setattr("halfmask.training.setup.calibrate", _quick_calibrate)


@pytest.fixture
def tiny_config() -> Callable[..., RunConfig]:
    """Builds the config of a run of a few steps on a few figures."""

    def build(*assignments: str, **flags: Any) -> RunConfig:
        recipe = {
            "method": "dpsgd",
            "strategy": "top",
            "batch": 8,
            "epochs": 0.4,
            "delta": 1e-3,
            "insecure_seed": 1,
            "data": {"private": 40, "public": 60, "test": 8},
            "subspace": {"samples": 16, "dim": 8},
            "model": {"weights": None, "input_size": list(TINY_SIZE)},
        }
        return build_config(recipe, flags, list(assignments))

    return build


@pytest.fixture
def tiny_records() -> PoseRecords:
    """Twelve public figures, small."""
    return figures_records("public", 12, size=TINY_SIZE)


@pytest.fixture
def random_records() -> Callable[..., PoseRecords]:
    """Builds records of noise, with the ids one asks for."""

    def build(count: int = 6, image_ids: Any = None, subjects: Any = None, key: str = "random", seed: int = 0) -> PoseRecords:
        rng = np.random.default_rng(seed)
        joints = len(JOINT_NAMES)
        return PoseRecords(
            images=rng.integers(0, 256, (count, 3, *TINY_SIZE), dtype=np.uint8),
            joints=(rng.random((count, joints, 2)) * 40 + 4).astype(np.float32),
            labelled=np.ones((count, joints), bool),
            head_boxes=np.tile(np.float32([10, 10, 22, 24]), (count, 1)),
            image_ids=np.arange(count) if image_ids is None else np.asarray(image_ids),
            subjects=None if subjects is None else np.asarray(subjects),
            key=key,
        )

    return build
