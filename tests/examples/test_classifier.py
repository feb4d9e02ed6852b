"""The examples run as they stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "classifier.py"


def test_the_classifier(tmp_path: Path) -> None:
    start = time.monotonic()
    home = os.environ | {"HALFMASK_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, EXAMPLE, tmp_path / "run"], env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 180, "below a minute on two cores that have nothing else to do"
    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert certificate["unit"] == "person" and certificate["units"] == 800 and certificate["epsilon"]["zero-out"] <= 3
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]["accuracy"] > 0.6
    assert "passed" in done.stdout and json.loads((tmp_path / "run" / "audit" / "loss.json").read_text())["passed"]
