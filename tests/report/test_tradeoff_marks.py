"""Marks have shapes, and words keep off them."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.report import canvas
from halfmask.report.tradeoff_marks import Box, along_path, draw_mark, free_place, plotly_mark

MARKS = ("dot", "square", "diamond", "triangle", "down", "star", "plus", "cross")


def test_marks_differ_in_shape_and_lie_where_they_should() -> None:
    shapes = []
    for mark in MARKS:
        picture = canvas.blank(41, 41)
        draw_mark(picture, mark, (20, 20), 8, (0, 0, 0))
        inked = picture[..., 0] < 128
        rows, columns = np.nonzero(inked)
        assert abs(rows.mean() - 20) < 1.5 and abs(columns.mean() - 20) < 1.5 and 60 < inked.sum() < 320
        shapes.append(inked)
        assert plotly_mark(mark)
    for number, one in enumerate(shapes):
        assert all((one != other).sum() > 25 for other in shapes[:number])
    with pytest.raises(HalfmaskError, match="square"):
        draw_mark(canvas.blank(9, 9), "sqare", (4, 4), 2, (0, 0, 0))


def test_words_find_a_free_place_or_are_left_out() -> None:
    inside: Box = (0, 0, 200, 100)
    taken: list[Box] = [(43, 43, 57, 57)]
    first, second = (free_place((50, 50), (30, 10), inside, taken) for _ in range(2))
    assert first == (61, 50) and second is not None and second != first and len(taken) == 3
    right = free_place((195, 50), (30, 10), inside, [])
    assert right is not None and right[0] + 30 <= 200, "not beyond the edge"
    assert free_place((50, 50), (30, 10), inside, [(0, 0, 200, 100)]) is None


def test_words_keep_off_lines() -> None:
    boxes = along_path([(0, 50), (200, 50)])
    place = free_place((50, 50), (30, 10), (0, 0, 200, 100), list(boxes))
    assert place is not None and abs(place[1] - 50) > 6
