"""What `import halfmask` gives, and what it does not load."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

import halfmask

HEAVY = ("torch", "numpy", "scipy", "cv2", "dp_accounting", "typer", "yaml")


def seconds(code: str) -> float:
    """The quickest of several fresh interpreters: others may be at work on the machine."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_importing_costs_next_to_nothing() -> None:
    assert seconds("import halfmask") - seconds("pass") < 0.3


@pytest.mark.parametrize(
    ("use", "spared"), [("halfmask.__version__, dir(halfmask)", HEAVY), ("halfmask.account", ("torch", "cv2", "typer"))]
)
def test_nothing_heavy_is_loaded_before_it_is_asked_for(use: str, spared: tuple[str, ...]) -> None:
    code = f"import sys, halfmask; {use}; print([name for name in {spared} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(halfmask._HOMES))
def test_names_are_those_of_their_homes(name: str) -> None:
    assert getattr(halfmask, name) is getattr(importlib.import_module(halfmask._HOMES[name]), name)


def test_every_name_has_a_home_and_is_listed() -> None:
    assert set(halfmask.__all__) == {*halfmask._HOMES, "__version__"} <= set(dir(halfmask))


def test_other_names_are_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'halfmask' has no attribute 'trian'"):
        _ = halfmask.trian
    assert not hasattr(halfmask, "numpy")


def test_every_name_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
    missing = [name for name in halfmask.__all__ if not any(word in page for word in (f"`{name}`", f"halfmask.{name}"))]
    assert not missing


def test_a_recipe_from_python(tmp_path: Path, quick_accounting: None) -> None:
    tiny = {"data.private": 12, "data.public": 0, "data.test": 4, "model.input_size": [64, 48], "model.weights": None}
    tiny |= {"optimiser.learning_rate": 0.125, "optimiser": {"momentum": 0.5}}
    run = halfmask.run("pose/figures", tmp_path / "run", settings=tiny | {"method": "non-private", "batch": 6, "epochs": 0.5})
    assert "learning_rate: 0.125\n" in (run.folder / "config.yaml").read_text()
    assert run.certificate["method"] == "non-private" and run.folder == tmp_path / "run" and "pckh@0.5" in run.scores
