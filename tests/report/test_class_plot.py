"""What is lost and regained, class by class."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halfmask.report.class_plot import KEPT, LOST, REGAINED, SHARE, class_chart, class_picture, panels

SHARES = {"rare": 0.1, "common": 0.6, "some": 0.3}
ACCURACIES = {
    "non-private": {"common": 90.0, "some": 80.0, "rare": 70.0},
    "dpsgd": {"common": 85.0, "some": 30.0, "rare": 0.0},
    "masked": {"common": 80.0, "some": 60.0, "rare": 75.0},
}


def area(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((picture == colour).all(-1).sum())


def test_classes_go_by_share_and_methods_are_held_against_none_and_plain_privacy() -> None:
    found = panels(ACCURACIES, SHARES)
    assert list(found) == ["dpsgd", "masked"]
    assert [bar.label for bar in found["masked"]] == ["common", "some", "rare"]
    assert [bar.difference for bar in found["dpsgd"]] == ["−5", "−50", "−70"]
    assert [bar.difference for bar in found["masked"]] == ["−10", "−20", "+5"]
    assert [bar.accuracy - bar.kept for bar in found["masked"]] == [0, 30, 75], "nothing is regained where it is worse than plain privacy"
    assert [bar.share for bar in found["dpsgd"]] == [60, 30, 10]


def test_areas_are_as_large_as_what_they_stand_for() -> None:
    lost, gained = [], []
    for method in ("dpsgd", "masked"):
        picture = class_picture({name: ACCURACIES[name] for name in ("non-private", method)}, SHARES, "title")
        lost.append(area(picture, LOST))
        gained.append(area(picture, REGAINED))
    # Losses of 5, 50 and 70 against 10 and 20: the lines at the level of the reference hide a little of each.
    assert 3.5 < lost[0] / lost[1] < 5.5
    assert gained == [0, 0], "without plain privacy beside it nothing is called regained"
    both = class_picture(ACCURACIES, SHARES, "title")
    # 30 and 75 are regained; 85 and 30 are kept by plain privacy, 80 and 30 of that by masking. Dark bars hide less than a third.
    assert 1.2 < area(both, KEPT) / area(both, REGAINED) < 225 / 105
    # 60, 30 and 10, twice.
    assert area(both, SHARE) == pytest.approx(2 * 1.9 * 100 * 0.24 * 64, rel=0.1)


def test_without_a_reference_and_without_clips() -> None:
    alone = {"dpsgd": {"common": 50.0, "some": math.nan}}
    bars = panels(alone, SHARES)["dpsgd"]
    assert [bar.difference for bar in bars] == ["50", "no clips", "no clips"]
    picture = class_picture(alone, SHARES, "title")
    # Its legend has no word of a loss either.
    assert area(picture, LOST) == area(picture, REGAINED) == 0


def test_the_chart_says_the_same() -> None:
    chart = class_chart(ACCURACIES, SHARES, "title")
    by_name = {trace.name: trace for trace in chart.data if trace.yaxis == "y2"}
    assert list(by_name["lost against non-private"].y) == [10, 20, 0]
    assert list(by_name["regained over dpsgd"].y) == [0, 30, 75]
    assert list(by_name["share of the class in the dataset"].y) == [60, 30, 10]


def test_many_classes_fit() -> None:
    shares = {f"class {number}": 1 / 120 for number in range(120)}
    picture = class_picture({"dpsgd": dict.fromkeys(shares, 50.0)}, shares, "title")
    assert picture.shape[1] < 2600
