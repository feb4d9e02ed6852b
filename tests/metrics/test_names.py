from __future__ import annotations

import pytest

from halfmask.metrics import names
from halfmask.metrics.names import (
    MetricInfo,
    about,
    declare,
    has_headline,
    headline,
    is_percentage,
    printed,
    shown,
    value_with_unit,
    with_unit,
)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_DECLARED", {})
    declare(
        {
            "accuracy": MetricInfo("Accuracy", "%", digits=1),
            "landmarks": MetricInfo("Landmark error", "% of face size", higher_is_better=False, digits=2),
            "turn": MetricInfo("Pose error", "°", higher_is_better=False, digits=1),
        }
    )


def test_each_way_of_scoring_has_its_two_numbers() -> None:
    assert headline(["pckh@0.5", "pckh@0.1", "pckh@0.5/head"]) == ("pckh@0.5", "pckh@0.1")
    assert headline(["pck@0.2/knee", "pck@0.2", "pck@0.5"]) == ("pck@0.2", "pck@0.5")
    assert headline(["ap", "ap50", "ar"]) == ("ap", "ar")
    assert headline([]) == ("pckh@0.5", "pckh@0.1")


def test_names_as_printed() -> None:
    assert [printed(name) for name in ("pckh@0.5", "pck@0.2", "ap", "ar-m", "method")] == ["PCKh@0.5", "PCK@0.2", "AP", "AR-M", "method"]
    assert [printed(name) for name in ("april", "area")] == ["april", "area"], "no average precision"


def test_poses_are_percentages_of_which_two_are_shown() -> None:
    known = ["pckh@0.5/head", "pckh@0.5", "pckh@0.1"]
    assert shown(known) == ["pckh@0.5", "pckh@0.1"] and has_headline(known)
    assert all(is_percentage(name) and about(name).higher_is_better and about(name).digits == 1 for name in known)
    assert with_unit("pckh@0.5") == "PCKh@0.5 (%)" and value_with_unit("pckh@0.5", "84.2") == "84.2"


def test_a_task_says_what_its_metrics_are(declared: None) -> None:
    known = ["accuracy", "landmarks", "turn", "landmarks/nose"]
    assert shown(known) == known[:3] and not has_headline(known), "all of them, but for their parts"
    assert [is_percentage(name) for name in known] == [True, False, False, False]
    assert not about("landmarks/nose").higher_is_better, "a part is like its whole"
    assert with_unit("landmarks") == "Landmark error (% of face size, lower is better)"
    assert value_with_unit("landmarks", "3.20") == "3.20 % of face size" and value_with_unit("turn", "4.1") == "4.1°"


@pytest.mark.parametrize("name", ["loss", "landmark_error", "visibility_mse", "error in years", "RMSE"])
def test_what_is_not_declared_is_better_when_it_is_lower_if_its_name_says_so(name: str) -> None:
    assert not about(name).higher_is_better and about("terror").higher_is_better and about("accuracy").higher_is_better
