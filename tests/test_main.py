"""`python -m halfmask` is the command."""

from __future__ import annotations

import subprocess
import sys

import halfmask


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "halfmask", *arguments], capture_output=True, text=True)


def test_it_says_its_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"halfmask {halfmask.__version__}\n", "")


def test_mistakes_are_one_line_and_usage_names_the_command() -> None:
    done = run("recipes", "show", "pose/bset")
    assert done.returncode == 2 and done.stderr.startswith("error: unknown recipe") and "Traceback" not in done.stderr
    assert "Usage: halfmask recipes" in run("recipes", "--help").stdout
