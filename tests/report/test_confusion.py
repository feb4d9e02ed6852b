"""Confusion matrices, drawn."""

from __future__ import annotations

import numpy as np

from halfmask.report import canvas
from halfmask.report.confusion import confusion_chart, confusion_picture, row_shares

COUNTS = np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]])
CLASSES = ("walk", "wave", "sit")


def test_shares_are_of_rows() -> None:
    shares = row_shares(COUNTS)
    assert shares[0].tolist() == [75, 25, 0] and shares[1].tolist() == [0, 100, 0] and np.isnan(shares[2]).all()


def test_shades_are_where_the_counts_are() -> None:
    picture = confusion_picture(COUNTS, CLASSES, "title")
    blue = np.argwhere((picture == canvas.PALETTE[0]).all(-1))
    # Rows of pixels that are grey for more than two cells: the edges of letters have a pixel of any shade.
    is_grey = (picture == canvas.GRID).all(-1)
    is_grey &= is_grey.sum(1, keepdims=True) > 90
    grey = np.argwhere(is_grey)
    # The one full cell is in the middle of three by three; the class without clips is the last row, all of it.
    assert np.ptp(blue[:, 1]) < 50 and np.ptp(grey[:, 1]) > 2 * np.ptp(blue[:, 1])
    assert grey[:, 0].min() > blue[:, 0].max()
    assert grey[:, 1].min() < blue[:, 1].min() and grey[:, 1].max() > blue[:, 1].max()


def test_counts_are_all_written_or_none() -> None:
    many = np.full((60, 60), 1234)
    bare = confusion_picture(many, [str(number) for number in range(60)], "title")
    assert bare.shape[1] < 1300
    inside = bare[100:200, 300:400]
    assert not (inside < 60).all(-1).any(), "no ink in the cells"


def test_the_chart_has_the_counts() -> None:
    (heat,) = confusion_chart(COUNTS, CLASSES, "title").data
    assert np.array_equal(np.array(heat.customdata), COUNTS) and list(heat.y) == list(CLASSES)
