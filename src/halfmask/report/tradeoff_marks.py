"""Marks that can be told apart without their colours, and a free place for the words beside one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import cv2
import numpy as np

from halfmask.errors import unknown_name
from halfmask.report import canvas

# Left, top, right, bottom.
Box = tuple[float, float, float, float]

# Corners in turns of a circle, from the right and downwards, and how far out they are.
_CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "square": tuple((turn, 1.15) for turn in (0.125, 0.375, 0.625, 0.875)),
    "diamond": tuple((turn, 1.25) for turn in (0.0, 0.25, 0.5, 0.75)),
    "triangle": tuple((turn, 1.3) for turn in (0.75, 1 / 12, 5 / 12)),
    "down": tuple((turn, 1.3) for turn in (0.25, 7 / 12, 11 / 12)),
    "star": tuple((0.75 + step / 10, 1.5 if step % 2 == 0 else 0.62) for step in range(10)),
    "plus": tuple((step / 8 + offset, out) for step in (0, 2, 4, 6) for offset, out in ((-0.05, 1.4), (0.05, 1.4), (0.125, 0.62))),
    "cross": tuple((step / 8 + offset, out) for step in (1, 3, 5, 7) for offset, out in ((-0.05, 1.4), (0.05, 1.4), (0.125, 0.62))),
}
_PLOTLY = {
    "dot": "circle",
    "square": "square",
    "diamond": "diamond",
    "triangle": "triangle-up",
    "down": "triangle-down",
    "star": "star",
    "plus": "cross",
    "cross": "x",
}
_BITS = 4


def plotly_mark(mark: str) -> str:
    """What plotly calls a mark."""
    return _PLOTLY[mark]


def draw_mark(image: np.ndarray, mark: str, centre: canvas.Point, radius: float, colour: canvas.Colour) -> None:
    """Draw a filled mark with a white rim, so that it stands out from lines and from others below it."""
    for reach, ink in ((radius + 1.4, canvas.WHITE), (radius, colour)):
        if mark == "dot":
            canvas.draw_dot(image, centre, reach, ink)
            continue
        if mark not in _CORNERS:
            raise unknown_name("mark", mark, ("dot", *_CORNERS))
        turns, out = (np.array(part) for part in zip(*_CORNERS[mark], strict=True))
        # The rim is as wide at every corner, however far out it is.
        out = out * radius + (reach - radius)
        corners = np.stack([centre[0] + out * np.cos(2 * math.pi * turns), centre[1] + out * np.sin(2 * math.pi * turns)], 1)
        cv2.fillPoly(image, [np.round(corners * (1 << _BITS)).astype(np.int32)], ink, cv2.LINE_AA, _BITS)


def free_place(mark: canvas.Point, size: tuple[int, int], inside: Box, taken: list[Box]) -> canvas.Point | None:
    """Where words of this size beside a mark cover nothing: the left end of their middle line, and it is taken from then on.

    None where every place is taken: a mark without words is better than words that nobody can read.
    """
    width, height = size
    x, y = mark
    up, down = y - 12 - height / 2, y + 12 + height / 2
    choices = [(x + 11, y), (x + 7, up), (x + 7, down), (x - width / 2, up), (x - width / 2, down), (x - 7 - width, up)]
    choices += [(x - 7 - width, down), (x - 11 - width, y), (x + 16, up - 6), (x + 16, down + 6), (x - 16 - width, up - 6)]
    for left, middle in choices:
        box = (left - 1, middle - height / 2 - 2, left + width + 1, middle + height / 2 + 2)
        fits = box[0] >= inside[0] and box[1] >= inside[1] and box[2] <= inside[2] and box[3] <= inside[3]
        if fits and not _covers(box, taken):
            taken.append(box)
            return left, middle
    return None


def along_path(points: Sequence[canvas.Point]) -> list[Box]:
    """Small boxes along a path, for words to keep off it."""
    boxes: list[Box] = []
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        for share in np.linspace(0, 1, max(2, round(math.hypot(x1 - x0, y1 - y0) / 4))):
            x, y = x0 + (x1 - x0) * share, y0 + (y1 - y0) * share
            boxes.append((x - 1, y - 1, x + 1, y + 1))
    return boxes


def _covers(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in others)
