from __future__ import annotations

import json
import subprocess
import sys

import pytest

from halfmask import __version__
from halfmask.cli.console import TerminalProgress
from halfmask.cli.recipes import description
from halfmask.data.folder import folder_records

COMMANDS = (["train"], ["evaluate"], ["predict"], ["compare"], ["pretrain"], ["data"], ["data", "export"], ["recipes"])


def test_version(halfmask) -> None:
    result = halfmask("--version")
    assert (result.code, result.out) == (0, f"halfmask {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_of_every_command(halfmask, command) -> None:
    result = halfmask(*command, "--help")
    assert result.code == 0 and "Usage: halfmask " + " ".join(command) in result.out


def test_every_option_is_explained() -> None:
    from typer.main import get_command

    from halfmask.cli.app import app

    def walk(command, path):
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{path}: {parameter.name} has no help"
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{path} {name}")

    walk(get_command(app), "halfmask")


def test_help_needs_no_heavy_module() -> None:
    code = "import sys; from halfmask.cli.app import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('torch', 'cv2', 'numpy', 'scipy', 'plotly', 'dp_accounting') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_recipes(halfmask) -> None:
    result = halfmask("recipes")
    assert "pose/pretrain" in result.out and "Public people only" in result.out
    listed = {entry["name"]: entry["about"] for entry in json.loads(halfmask("recipes", "--json").out)}
    assert listed["pose/pretrain"].startswith("Public people only")
    assert description("# First σ = 0.5\n# and whole. Then more.\na: 1\n") == "First σ = 0.5 and whole." and description("a: 1") == ""


def test_pretrain_makes_weights_that_train_accepts(halfmask, recipe, folder, tmp_path) -> None:
    out = tmp_path / "public"
    changes = [f"data.name={folder}", "model.weights=null", "batch=6"]
    sets = [part for change in changes for part in ("--set", change)]
    result = halfmask("pretrain", recipe, "--epochs", 0.5, "--seed", 1, "--out", out, *sets)
    assert result.code == 0, result.err
    assert str(out / "model.safetensors") in result.out
    body = json.loads((out / "metrics.json").read_text())
    assert body["split"] == "public"
    start = ("train", recipe, "--method", "public-only", "--out", tmp_path / "r", "--set", f"model.weights={out / 'model.safetensors'}")
    # What was learnt in three steps does not bear the usual rate: the run would be stopped.
    result = halfmask(*start, "--set", "optimiser.learning_rate=0.0001")
    assert result.code == 0, result.err


def test_data_export(halfmask, tmp_path) -> None:
    out = tmp_path / "people"
    result = halfmask("data", "export", out, "--private", 3, "--public", 2, "--test", 1, "--seed", 5)
    assert result.code == 0, result.err
    assert f"halfmask train --data {out}" in result.out
    assert {split: len(records) for split, records in folder_records(out).items()} == {"private": 3, "public": 2, "test": 1}
    assert "already holds a dataset" in halfmask("data", "export", out).error
    assert halfmask("data", "export", tmp_path / "b", "--private", -1).code == 2


def test_bars_say_what_is_public() -> None:
    from io import StringIO

    from rich.console import Console

    for terminal in (True, False):
        progress = TerminalProgress()
        screen = StringIO()
        progress.console = Console(file=screen, force_terminal=terminal, width=80)
        with progress:
            progress.stage("drawing private people", 5, 10)
            progress.stage("drawing private people", 10, 10)
            progress.step(10, 100, 3.25, 0.123)
            progress.step(11, 100, 3.24, None)
            progress.step(20, 100, 3.2, None)
            if terminal:
                assert progress._bars is not None
                progress._bars.refresh()
            progress.next_run()
            progress.stage("drawing private people", 10, 10)
        shown = screen.getvalue()
        assert "drawing private people" in shown and "training" in shown
        assert "public loss 3.200" in shown and "ε 0.123" in shown
