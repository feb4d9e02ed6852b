from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.serve.folder import ServedFolder
from halfmask.serve.live import Watch, progress_of


def test_a_run_that_grows(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "runs" / "one", ended=False)
    watch = Watch(ServedFolder(tmp_path / "runs"))
    (before,) = watch.look()["runs"]
    assert (before["name"], before["state"], before["step"], before["steps"]) == ("one", "training", 4, 12)
    assert (before["method"], before["epsilon"], before["task"]) == ("dpsgd", 0.8, "pose")
    run.log("epoch", step=8, epoch=2.0, public_loss=5.1, epsilon=0.5, learning_rate=0.1)
    (after,) = watch.look()["runs"]
    assert after["step"] == 8
    assert after["curve"] == [{"step": 4, "public_loss": 5.5, "epsilon": 0.3}, {"step": 8, "public_loss": 5.1, "epsilon": 0.5}]


def test_the_version_changes_when_the_report_does(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "runs" / "one", ended=False)
    watch = Watch(ServedFolder(tmp_path / "runs"))
    versions = [watch.version()]
    assert watch.version() == versions[0] == watch.look()["version"]
    run.log("epoch", step=8, epoch=2.0, public_loss=5.1, epsilon=0.5, learning_rate=0.1)
    versions.append(watch.version())
    make_run(tmp_path / "runs" / "two")
    versions.append(watch.version())
    (run.path / "audit").mkdir()
    versions.append(watch.version())
    assert len(set(versions)) == 4


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ({"interrupted": False}, "done"),
        ({"interrupted": True}, "stopped"),
        ({"interrupted": True, "came_to_nothing": "the loss exploded"}, "came to nothing"),
    ],
)
def test_how_runs_end(tmp_path: Path, make_run: Callable[..., Any], end: dict[str, Any], state: str) -> None:
    run = make_run(tmp_path / "one", ended=False)
    run.log("end", step=6, **end)
    found = progress_of("one", run.path)
    assert (found.state, found.step) == (state, 6)


def test_a_line_that_is_being_written_waits(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "one", ended=False)
    with (run.path / "log.jsonl").open("a") as log:
        log.write('{"event": "epoch", "step": 8')
    assert progress_of("one", run.path).step == 4
    with (run.path / "log.jsonl").open("a") as log:
        log.write(', "public_loss": null, "epsilon": "infinity"}\nnonsense\n[1]\n')
    found = progress_of("one", run.path)
    assert found.step == 8 and found.curve[-1] == {"step": 8, "public_loss": None, "epsilon": "infinity"}


def test_only_what_is_public_of_a_log_is_told(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    """A log of somebody else's making may hold what ours refuses to; neither that nor any time is told."""
    run = make_run(tmp_path / "runs" / "one", ended=False)
    with (run.path / "log.jsonl").open("a") as log:
        log.write('{"event": "epoch", "step": 8, "private_loss": 0.125, "seconds": 7}\n')
    (told,) = Watch(ServedFolder(tmp_path / "runs")).look()["runs"]
    assert set(told) == {"name", "state", "step", "steps", "curve", "task", "method", "epsilon", "seed"}
    assert all(set(point) == {"step", "public_loss", "epsilon"} for point in told["curve"])


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- no\n- settings\n")
    found = progress_of("new", tmp_path)
    assert (found.state, found.step, found.steps, found.curve, found.settings) == ("training", 0, None, [], {})
