"""Faces drawn over images: where things point, and what does not break the drawing."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.figures.faceshape import rotation
from halfmask.report.face_overlay import BOX, HIDDEN, SEEN, draw_face, head_axes

GREY = np.full((120, 160, 3), 128, np.uint8)
POINTS = np.array([[60.0, 50.0], [100.0, 50.0], [80.0, 80.0]])


def pixel(picture: np.ndarray, x: int, y: int) -> tuple[int, ...]:
    return tuple(int(value) for value in picture[y, x])


def test_the_image_itself_is_unchanged() -> None:
    before = GREY.copy()
    picture = draw_face(GREY, POINTS, np.array([1.0, 0.2, 0.9]), (40, 20, 80, 90), np.array([5.0, 10.0, 20.0]), "0.98")
    assert (before == GREY).all() and picture.shape == GREY.shape and picture is not GREY
    assert pixel(picture, 60, 50) == SEEN and pixel(picture, 100, 50) == HIDDEN
    assert pixel(picture, 40, 100) == pytest.approx(BOX, abs=25), "smooth edges mix in what is beneath"
    assert (draw_face(GREY, np.zeros((0, 2))) == GREY).all() and draw_face(GREY, np.zeros((0, 2))) is not GREY


def test_scale_enlarges_the_picture_and_what_is_drawn() -> None:
    picture = draw_face(GREY, POINTS, None, (40, 20, 80, 90), scale=3)
    assert picture.shape == (360, 480, 3) and pixel(picture, 180, 150) == SEEN and pixel(picture, 120, 300) == BOX


def test_where_a_head_points() -> None:
    """Rows: to the image's right, down, and out of the face."""
    np.testing.assert_allclose(head_axes(0, 0, 0), [[1, 0], [0, 1], [0, 0]], atol=1e-12)
    assert head_axes(0, 0, 40)[2, 0] < -0.6 and head_axes(0, 0, 40)[2, 1] == pytest.approx(0)
    assert head_axes(0, 40, 0)[2, 1] > 0.6 and head_axes(0, 40, 0)[2, 0] == pytest.approx(0)
    right, down, _ = head_axes(40, 0, 0)
    assert right[1] > 0.6 and down[0] < -0.6, "clockwise as seen"


@pytest.mark.parametrize("pose", [(20, 0, 0), (0, -15, 0), (0, 0, 35), (12, 25, -50), (-30, -20, 70)])
def test_the_axes_are_those_of_the_drawn_world(pose) -> None:
    """There the second axis points up and is drawn downwards."""
    drawn = rotation(*pose) * np.array([[1], [-1], [1]]) * np.array([1, -1, 1])
    np.testing.assert_allclose(head_axes(*pose), drawn.T[:, :2], atol=1e-12)


def test_the_drawn_axis_of_the_face_points_where_it_looks() -> None:
    picture = draw_face(GREY, np.zeros((0, 2)), None, (40, 20, 80, 80), np.array([0.0, 0.0, 60.0]))
    blue = (picture == (86, 180, 233)).all(2)
    assert blue.any() and np.argwhere(blue)[:, 1].mean() < 78, "to the image's left of the middle of the box"
    without_a_box = draw_face(GREY, POINTS, pose=np.array([0.0, 0.0, 60.0]))
    assert (without_a_box == (86, 180, 233)).all(2).any()
    assert (draw_face(GREY, np.zeros((0, 2)), pose=np.array([0.0, 0.0, 60.0])) == GREY).all()


def test_what_is_not_known_is_not_drawn() -> None:
    unknown = POINTS.copy()
    unknown[1] = np.nan
    unknown[2] = (np.inf, 3)
    assert (draw_face(GREY, unknown, np.ones(3)) == draw_face(GREY, POINTS[:1], np.ones(1))).all()
    nowhere = draw_face(GREY, POINTS[:1], None, (np.nan,) * 4, np.array([np.nan, 0, 0]), "who")
    assert (nowhere == draw_face(GREY, POINTS[:1])).all()


def test_what_is_far_outside_does_not_break_the_drawing() -> None:
    far = np.array([[1e30, -1e30], [-4e9, 0], [80, 60]])
    picture = draw_face(GREY, far, np.array([9e9, -1e9, 1]), (-1e20, 1e20, 1e25, 1e3), np.array([1e6, -1e6, 720.0]), "far", scale=2)
    assert picture.shape == (240, 320, 3) and pixel(picture, 160, 120) == SEEN
