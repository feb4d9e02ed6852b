"""What a comparison leaves behind."""

from __future__ import annotations

from halfmask.report.page import charts


def row(**metrics: float) -> dict:
    return {"method": "dpsgd", "epsilon": 1.0, "seeds": 1} | {name: {"mean": value, "spread": None} for name, value in metrics.items()}


def test_poses_have_one_chart_and_other_tasks_one_for_each_metric() -> None:
    assert charts([row(**{"pckh@0.5": 80.0, "pckh@0.1": 10.0})]) == {"pckh@0.5": "accuracy"}
    assert charts([row(detection_ap=80.0, landmark_error=3.0)]) == {"detection_ap": "accuracy", "landmark_error": "accuracy-landmark-error"}


def test_what_was_never_measured_has_no_chart() -> None:
    assert charts([row(attribute=float("nan"), pose_error=4.0)]) == {"pose_error": "accuracy"}
