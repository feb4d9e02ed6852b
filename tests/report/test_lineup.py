"""Line-ups, and what a generated picture is most like."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.models.judge import Sight
from halfmask.report.lineup import lineup, nearest, nearest_sheet, pose_pictures


class Eye:
    """A judge that sees the mean colour."""

    name = "eye"

    def look(self, images: np.ndarray) -> Sight:
        means = images.mean((2, 3))
        return Sight(means, means, np.zeros((len(images), 16, 2)), np.ones((len(images), 16)))


def even(*shades: int, size: tuple[int, int] = (16, 12)) -> np.ndarray:
    return np.stack([np.full((3, *size), shade, np.uint8) for shade in shades])


def test_people_go_down_and_ways_to_hide_them_across() -> None:
    sheet = lineup({"as they are": even(10, 40), "hidden": even(90, 130, size=(8, 6))}, ["walk", "sit"], tall=32)
    # The edges of letters have pixels of any shade, so it is where most are that counts.
    places = {shade: np.median(np.argwhere((sheet == shade).all(-1)), 0) for shade in (10, 40, 90, 130)}
    assert abs(places[10][0] - places[90][0]) < 3 and abs(places[40][0] - places[130][0]) < 3 and places[40][0] - places[10][0] > 30
    assert abs(places[10][1] - places[40][1]) < 3 and abs(places[90][1] - places[130][1]) < 3 and places[90][1] - places[10][1] > 20
    assert all(768 <= (sheet == shade).all(-1).sum() < 800 for shade in (10, 90)), "cells are 32×24, whatever the pictures are"


def test_columns_must_show_the_same_people() -> None:
    with pytest.raises(HalfmaskError, match="same people"):
        lineup({"a": even(1, 2), "b": even(1)})
    with pytest.raises(HalfmaskError, match="at least one"):
        lineup({})


def test_poses_are_drawn_where_joints_are_known() -> None:
    joints = np.zeros((2, 16, 3))
    joints[0, 0], joints[0, 1] = (10, 50, 1), (10, 30, 1)
    pictures = pose_pictures(joints, (64, 48))
    assert pictures.shape == (2, 3, 256, 192)
    ground = pictures[1, :, 0, 0]
    assert (pictures[1] == ground[:, None, None]).all(), "nobody is there"
    rows, columns = np.nonzero((pictures[0] != ground[:, None, None]).any(0))
    assert abs(columns.mean() - 41.5) < 2 and abs(rows.mean() - 161.5) < 3


def test_the_nearest_is_found_and_the_nearest_pair_comes_first() -> None:
    generated, training = even(12, 204), even(100, 200, 18, 108)
    found = nearest(generated, training, Eye())  # type: ignore[arg-type]
    assert found.rows.tolist() == [2, 1] and found.distances == pytest.approx(np.sqrt(3) * np.array([6, 4]))
    assert found.usual == pytest.approx(np.sqrt(3) * (8 + 82) / 2) and found.judge == "eye"
    sheet = nearest_sheet(generated, training, found, tall=32)
    places = {shade: np.argwhere((sheet == shade).all(-1)) for shade in (12, 18, 204, 200)}
    large = {shade: place[:, 1].mean() for shade, place in places.items() if len(place) >= 32 * 24}
    assert large[204] < large[200] < large[12] < large[18]
    assert not (sheet == 100).all(-1).sum() >= 32 * 24, "who is nobody's nearest is not shown"
    with pytest.raises(HalfmaskError, match="two"):
        nearest(generated, training[:1], Eye())  # type: ignore[arg-type]
