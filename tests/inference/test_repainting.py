"""Nothing of a person is left inside a region, whatever is around it; what is drawn goes back to where it came from."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmask.errors import HalfmaskError
from halfmask.inference.repainting import BACKGROUNDS, Fitting, Region, region_of, repaint, whole

SIZE = (64, 48)
PICTURE = np.random.default_rng(0).integers(0, 256, (80, 120, 3), dtype=np.uint8)


@given(st.floats(-30, 119), st.floats(-30, 79), st.floats(0.1, 150), st.floats(0.1, 150), st.sampled_from([0.0, 0.05, 0.1, 0.5]))
def test_a_region_covers_its_box_and_is_never_smaller(x: float, y: float, width: float, height: float, margin: float) -> None:
    if x + width <= 0 or y + height <= 0:
        return
    region = region_of((x, y, width, height), PICTURE, margin)
    assert 0 <= region.left <= max(0, x - margin * width) and 0 <= region.top <= max(0, y - margin * height)
    assert min(120, x + (1 + margin) * width) <= region.left + region.width <= 120
    assert min(80, y + (1 + margin) * height) <= region.top + region.height <= 80
    assert region.width >= 1 and region.height >= 1


@pytest.mark.parametrize("box", [(120, 10, 5, 5), (10, 80, 5, 5), (-20, 10, 20, 5), (10, -9, 5, 4), (500, 500, 9, 9)])
def test_a_box_outside_the_picture_is_refused_with_its_numbers(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(HalfmaskError, match="outside the picture of 120×80") as error:
        region_of(box, PICTURE, 0.1)
    assert f"{box[0]:g}, {box[1]:g}" in str(error.value)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_what_a_picture_shows_inside_its_regions_changes_nothing(background: str) -> None:
    """Boxes that overlap, touch the edge and lie inside each other: bit for bit the same whoever stands there."""
    regions = [Region(10, 10, 40, 50), Region(30, 20, 50, 40), Region(35, 25, 10, 8), Region(90, 0, 30, 80)]
    rng = np.random.default_rng(1)
    people = [(one, rng.integers(0, 256, (one.height, one.width, 3), dtype=np.uint8)) for one in regions]
    other = PICTURE.copy()
    inside = np.zeros(PICTURE.shape[:2], bool)
    for one in regions:
        one.of(other)[:] = rng.integers(0, 256, (one.height, one.width, 3))
        one.of(inside[..., None])[:] = True
    before = PICTURE.copy()
    painted = repaint(PICTURE, people, background)
    np.testing.assert_array_equal(painted, repaint(other, people, background))
    np.testing.assert_array_equal(PICTURE, before)
    if background == "keep":
        np.testing.assert_array_equal(painted[~inside], PICTURE[~inside])
    elif background == "none":
        assert len(np.unique(painted[~inside], axis=0)) == 1
    else:
        assert (painted[~inside] != PICTURE[~inside]).mean() > 0.9


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_the_smallest_is_on_top_whatever_the_order(background: str) -> None:
    large, small = Region(0, 0, 100, 70), Region(20, 20, 10, 10)
    people = [(one, np.full((one.height, one.width, 3), value, np.uint8)) for one, value in ((large, 10), (small, 200))]
    for order in (people, people[::-1]):
        painted = repaint(PICTURE, order, background)
        assert (small.of(painted) == 200).all()
        assert (painted[:20, :100] == 10).all()


def test_an_unknown_background() -> None:
    with pytest.raises(HalfmaskError, match="did you mean 'blur'"):
        repaint(PICTURE, [], "blurr")


@pytest.mark.parametrize("fit", ["whole", "squeeze", "person"])
@pytest.mark.parametrize(
    "region", [Region(5, 7, 60, 70), Region(0, 0, 120, 80), Region(100, 2, 7, 75), Region(3, 60, 110, 9), Region(4, 4, 1, 1)]
)
def test_joints_are_drawn_where_they_were(region: Region, fit: str) -> None:
    """A dot drawn at a joint is at the joint when it was laid back."""
    fitting = Fitting.of(region, PICTURE, SIZE, fit)
    joint = np.array([[region.left + (region.width - 1) * 0.4, region.top + (region.height - 1) * 0.6, 1.0]])
    x, y, known = fitting.placed(joint)[0]
    assert known == 1
    drawn = np.zeros((*SIZE, 3), np.uint8)
    cv2.circle(drawn, (round(float(x)), round(float(y))), 1, (255, 255, 255), -1)
    back = fitting.back(drawn)
    assert back.shape == (region.height, region.width, 3)
    weights = back[:, :, 0].astype(float)
    if min(region.width, region.height) > 20:
        ys, xs = np.mgrid[: region.height, : region.width]
        found = np.array([(xs * weights).sum(), (ys * weights).sum()]) / weights.sum()
        step = max(region.width / SIZE[1], region.height / SIZE[0], 1)
        np.testing.assert_allclose(found + np.array([region.left, region.top]), joint[0, :2], atol=1.1 * step)


def test_what_only_fills_up_proportions_is_not_laid_back() -> None:
    region = Region(0, 0, 20, 80)
    fitting = Fitting.of(region, PICTURE, SIZE, "whole")
    drawn = np.zeros((*SIZE, 3), np.uint8)
    drawn[:, 16:32] = 255
    assert (fitting.back(drawn) == 255).all()


def test_joints_outside_and_unknown_ones_are_not_told() -> None:
    fitting = Fitting.of(Region(20, 20, 30, 40), PICTURE, SIZE, "whole")
    joints = np.array([[30.0, 30, 1], [30, 30, 0], [500, 30, 1], [-40, 30, 1]])
    placed = fitting.placed(joints)
    assert placed[:, 2].tolist() == [1, 0, 0, 0] and not placed[1:].any()


def test_all_of_a_picture() -> None:
    assert whole(PICTURE) == Region(0, 0, 120, 80)
