"""A run of poses and the file that was exported from it, made once for all tests of a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from halfmask.inference.export import export
from halfmask.training.config import build_config
from halfmask.training.running import run_training

RECIPE = {
    "method": "public-only",
    "strategy": "top",
    "batch": 8,
    "epochs": 0.4,
    "even_so": True,
    "data": {"private": 24, "public": 60, "test": 6},
    "subspace": {"samples": 16, "dim": 8},
    "model": {"weights": None, "input_size": [64, 48]},
}


@pytest.fixture(scope="session")
def pose_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished and certified; tests that change it take a copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFMASK_HOME", str(tmp_path_factory.mktemp("home-of-poses")))
        return run_training(build_config(RECIPE, {}, []), tmp_path_factory.mktemp("runs") / "poses")


@pytest.fixture(scope="session")
def exported(pose_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return export(pose_run, tmp_path_factory.mktemp("exported") / "model.onnx").path


# Whatever tries to import torch fails, as it would where there is none.
BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("there is no torch here")

sys.meta_path.insert(0, Absent())
from halfmask.cli.app import main

try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]
print("done without torch")
"""


@pytest.fixture
def without_torch() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command where torch cannot be imported; it says so at its end if it did without."""

    def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", BLOCKED, *map(str, arguments)], capture_output=True, text=True, check=False)

    return run
