"""Tiny runs through the real command, in this process; what is drawn is drawn once for all tests."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from halfmask.cli.app import main
from halfmask.data.export import export_figures
from halfmask.models.simcc import PoseModel

INPUT_SIZE = (128, 96)
RECIPE = """# Tiny people for tests: nothing can come of them, and nothing need.
strategy: top
even_so: true
epochs: 0.5
batch: 8
data: {{private: 40, public: 40, test: 6}}
model: {{size: nano, input_size: [128, 96], weights: {weights}}}
subspace: {{samples: 16, dim: 8}}
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of a failure."""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert self.code == 2, (self.code, self.err)
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


def run(*arguments: object) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, shared_home: Path) -> Iterator[None]:
    monkeypatch.setenv("HALFMASK_HOME", str(shared_home))
    monkeypatch.delenv("HALFMASK_DATA", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    torch.manual_seed(0)
    save_file(PoseModel("nano", 16, INPUT_SIZE).state_dict(), path)
    return path


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE.format(weights=weights))
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, recipe: Path, shared_home: Path) -> tuple[Path, Result]:
    """A finished run, and what the command said. Tests that change the folder take a copy."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALFMASK_HOME", str(shared_home))
        torch.set_num_threads(1)
        result = run("train", recipe, "--method", "feature-projective", "--seed", 3, "--out", out)
    return out, result


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "people"
    export_figures(folder, {"private": 10, "public": 18, "test": 3}, seed=1)
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    """A copy of the exported dataset, to damage."""
    return Path(shutil.copytree(exported, tmp_path / "people"))


@pytest.fixture
def halfmask() -> Callable[..., Result]:
    return run
