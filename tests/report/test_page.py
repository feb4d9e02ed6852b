"""The page of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from halfmask.report.page import charts, private_half


def test_what_came_from_private_people_is_told_by_epoch(tmp_path: Path) -> None:
    events = [
        {"event": "start", "steps": 4},
        {"event": "epoch", "private_share": 0.126, "private_signal": 0.5},
        {"event": "epoch", "private_share": 0.2, "private_signal": 0.0},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    share, signal = private_half(tmp_path)
    assert "movement" in share and share.endswith(": 0.13, 0.20.")
    assert "noise" in signal and signal.endswith(": 0.50, 0.00.")


def test_nothing_is_said_of_runs_without_a_noised_half(tmp_path: Path) -> None:
    assert private_half(tmp_path) == []
    (tmp_path / "log.jsonl").write_text(json.dumps({"event": "epoch", "public_loss": 3.0}) + "\n")
    assert private_half(tmp_path) == []


def row(**metrics: float) -> dict:
    return {"method": "dpsgd", "epsilon": 1.0, "seeds": 1} | {name: {"mean": value, "spread": None} for name, value in metrics.items()}


def test_poses_have_one_chart_and_other_tasks_one_for_each_metric() -> None:
    assert charts([row(**{"pckh@0.5": 80.0, "pckh@0.1": 10.0})]) == {"pckh@0.5": "accuracy"}
    assert charts([row(detection_ap=80.0, landmark_error=3.0)]) == {"detection_ap": "accuracy", "landmark_error": "accuracy-landmark-error"}


def test_what_was_never_measured_has_no_chart() -> None:
    assert charts([row(attribute=float("nan"), pose_error=4.0)]) == {"pose_error": "accuracy"}
