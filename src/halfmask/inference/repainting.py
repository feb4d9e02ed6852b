"""People on a picture, painted over by drawn ones.

Nothing of a region is left: what is drawn takes the place of every pixel in it, and is a function of the joints and of an appearance. So
what comes out is the same, bit for bit, whatever the picture showed there, once boxes and joints are what they are. Softened edges between
the drawn and the real would break that, and there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.crops import box_problem
from halfmask.data.people import Box
from halfmask.data.picture_reading import fitted
from halfmask.errors import HalfmaskError, unknown_name

BACKGROUNDS = ("keep", "blur", "none")
# The blur's standard deviation, as a share of the picture's longer side.
_BLUR = 0.02
_GREY = 128


@dataclass(frozen=True)
class Region:
    """Whole pixels of a picture, all inside it."""

    left: int
    top: int
    width: int
    height: int

    def of(self, picture: np.ndarray) -> np.ndarray:
        """This part of the picture: a look into it, no copy."""
        return picture[self.top : self.top + self.height, self.left : self.left + self.width]


def whole(picture: np.ndarray) -> Region:
    """All of it."""
    return Region(0, 0, picture.shape[1], picture.shape[0])


def region_of(box: Box, picture: np.ndarray, margin: float) -> Region:
    """The pixels of a box, made larger on each side by a share of its own, and cut to the picture; every pixel it touches is in it."""
    rows, columns = picture.shape[:2]
    problem = box_problem(box, (rows, columns))
    if problem:
        told = ", ".join(f"{value:g}" for value in box)
        raise HalfmaskError(f"a box ({told}) has no area or lies outside the picture of {columns}×{rows} pixels: mend the file of boxes")
    x, y, width, height = box
    left, top = max(0, math.floor(x - margin * width)), max(0, math.floor(y - margin * height))
    right, bottom = min(columns, math.ceil(x + (1 + margin) * width)), min(rows, math.ceil(y + (1 + margin) * height))
    return Region(left, top, right - left, bottom - top)


@dataclass(frozen=True)
class Fitting:
    """How a region becomes a generator's picture, as training pictures did, and how what is drawn goes back.

    Attributes:
        where: the 2×3 map from the region's pixels to the drawn picture's.
    """

    region: Region
    size: tuple[int, int]
    where: np.ndarray

    @classmethod
    def of(cls, region: Region, picture: np.ndarray, size: tuple[int, int], fit: str) -> Fitting:
        """By the rule of training pictures (`data.fit`); where those were cut round the joints, the region takes the place of the cut."""
        return cls(region, size, fitted(region.of(picture), size, "squeeze" if fit == "squeeze" else "whole")[1])

    def placed(self, joints: np.ndarray) -> np.ndarray:
        """Joints (J×3) in pixels of the whole picture as the generator's; zeros for those that are not known, or outside."""
        inside = joints[:, :2] - [self.region.left, self.region.top]
        points = inside @ self.where[:, :2].T + self.where[:, 2]
        height, width = self.size
        known = (joints[:, 2] > 0) & ((points >= -0.5) & (points <= [width - 0.5, height - 0.5])).all(1)
        return np.where(known[:, None], np.column_stack([points, known]), 0).astype(np.float32)

    def back(self, drawn: np.ndarray) -> np.ndarray:
        """What was drawn (H×W×3), without what only filled up its proportions, in the size of the region."""
        across, down = self.where[0, 0], self.where[1, 1]
        width, height = max(1, round(across * self.region.width)), max(1, round(down * self.region.height))
        left, top = round(self.where[0, 2] - across / 2 + 0.5), round(self.where[1, 2] - down / 2 + 0.5)
        inner = np.ascontiguousarray(drawn[top : top + height, left : left + width])
        smaller = self.region.width <= width and self.region.height <= height
        resized = cv2.resize(inner, (self.region.width, self.region.height), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
        return np.asarray(resized)


def repaint(picture: np.ndarray, people: Sequence[tuple[Region, np.ndarray]], background: str = "keep") -> np.ndarray:
    """The picture with drawn people in their regions, the smallest on top; what is around them stays, is blurred, or is plain grey.

    A blur is taken after the people were painted over, and they are painted once more on it: taken before, it would carry the colours of
    real people out of their regions.
    """
    if background not in BACKGROUNDS:
        raise unknown_name("background", background, BACKGROUNDS)
    in_order = sorted(people, key=lambda one: -one[0].width * one[0].height)
    painted = np.full_like(picture, _GREY) if background == "none" else picture.copy()
    _paint(painted, in_order)
    if background == "blur":
        sigma = max(1.0, _BLUR * max(picture.shape[:2]))
        painted = np.asarray(cv2.GaussianBlur(painted, (0, 0), sigma))
        _paint(painted, in_order)
    return painted


def _paint(picture: np.ndarray, people: Sequence[tuple[Region, np.ndarray]]) -> None:
    for region, drawn in people:
        region.of(picture)[:] = drawn
