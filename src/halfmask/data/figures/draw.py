"""Drawing primitives: a canvas of colours with, beside it, a plane that says whose pixel each one is.

The second plane is what makes the labels honest. Masks and the difference between a visible and an occluded
joint are read off what was really drawn, after all furniture and other people went over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np

Colour = tuple[float, float, float]

SHIFT = 4
_UNIT = float(1 << SHIFT)
OCCLUDER = 255
"""Mark of things that are nobody but stand in front of somebody."""


def fixed(points: np.ndarray) -> np.ndarray:
    """Sub-pixel coordinates in OpenCV's fixed-point form."""
    return np.rint(points * _UNIT).astype(np.int32, order="C")


def tone(colour: Colour, factor: float) -> Colour:
    """The colour made darker or lighter."""
    return (min(255.0, colour[0] * factor), min(255.0, colour[1] * factor), min(255.0, colour[2] * factor))


def mix(a: Colour, b: Colour, weight: float) -> Colour:
    """The colour a share ``weight`` of the way from ``a`` to ``b``."""
    return (
        a[0] + (b[0] - a[0]) * weight,
        a[1] + (b[1] - a[1]) * weight,
        a[2] + (b[2] - a[2]) * weight,
    )


class Canvas:
    """An RGB image and the plane of marks, drawn together. Mark 0 is the room."""

    def __init__(self, image: np.ndarray) -> None:
        self.image = image
        self.height, self.width = image.shape[:2]
        self.marks = np.zeros((self.height, self.width), np.uint8)

    def convex(self, points: np.ndarray, colour: Colour, mark: int | None = None) -> None:
        """Fill a convex outline; with a mark, claim its pixels."""
        self.fill(fixed(points), colour, mark)

    def fill(self, points: np.ndarray, colour: Colour, mark: int | None = None) -> None:
        """The same for points that are already fixed: whoever draws many shapes fixes them together."""
        cv2.fillConvexPoly(self.image, points, colour, cv2.LINE_AA, SHIFT)
        if mark is not None:
            cv2.fillConvexPoly(self.marks, points, mark, cv2.LINE_8, SHIFT)

    def many(self, polygons: np.ndarray, colour: Colour) -> None:
        """Fill many polygons of equal size (K×N×2) in one call; they must not overlap."""
        if len(polygons):
            cv2.fillPoly(self.image, list(fixed(polygons)), colour, cv2.LINE_AA, SHIFT)

    def disc(self, centre: np.ndarray, radius: float, colour: Colour, mark: int | None = None) -> None:
        """Fill a circle."""
        x, y = fixed(centre).tolist()
        r = max(1, round(min(radius, 1000.0) * _UNIT))
        cv2.circle(self.image, (x, y), r, colour, -1, cv2.LINE_AA, SHIFT)
        if mark is not None:
            cv2.circle(self.marks, (x, y), r, mark, -1, cv2.LINE_8, SHIFT)

    def stroke(self, points: np.ndarray, colour: Colour, width: float, closed: bool = False) -> None:
        """Draw a thin line through the points, never thinner than one pixel."""
        cv2.polylines(self.image, [fixed(points)], closed, colour, max(1, round(width)), cv2.LINE_AA, SHIFT)

    def glaze(self, points: np.ndarray, colour: Colour, weight: float) -> None:
        """Fill a convex outline half transparently (shadows). Only its bounding box is touched."""
        x0, y0 = np.floor(points.min(axis=0)).astype(int).tolist()
        x1, y1 = np.ceil(points.max(axis=0)).astype(int).tolist()
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1 + 1, self.width), min(y1 + 1, self.height)
        if x1 <= x0 or y1 <= y0:
            return
        under = self.image[y0:y1, x0:x1]
        over = under.copy()
        cv2.fillConvexPoly(over, fixed(points - np.array([x0, y0])), colour, cv2.LINE_AA, SHIFT)
        cv2.addWeighted(over, weight, under, 1.0 - weight, 0.0, dst=under)

    def outside(self, points: np.ndarray, margin: float = 4.0) -> bool:
        """Whether all the points lie beyond one edge, so that nothing needs to be drawn."""
        x0, y0 = points.min(axis=0).tolist()
        x1, y1 = points.max(axis=0).tolist()
        right, bottom = self.width + margin, self.height + margin
        return bool(x1 < -margin or y1 < -margin or x0 > right or y0 > bottom)


_ARC = np.linspace(0.0, np.pi, 7)
_COS, _SIN = np.cos(_ARC)[:, None], np.sin(_ARC)[:, None]
_TURN = np.array([-1.0, 1.0])
_SIDES = np.array([0, 6, 13, 7])
_TURNS = np.linspace(0, 2 * np.pi, 20, endpoint=False)
CIRCLE = np.stack([np.cos(_TURNS), np.sin(_TURNS)], axis=1)


def capsules(a: np.ndarray, b: np.ndarray, ra: np.ndarray, rb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outlines (N×14×2) of N tapered capsules and their side edges (N×4×2).

    The side edges come as left and right at ``a``, then left and right at ``b``: a sheet to draw patterns on.
    """
    along = b - a
    along /= np.maximum(np.sqrt((along**2).sum(axis=1, keepdims=True)), 1e-6)
    normal = along[:, ::-1] * _TURN
    n, d = normal[:, None, :], along[:, None, :]
    arc = n * _COS - d * _SIN
    # Walk round: left at a, over a's cap to the right at a, along to the right at b, over b's cap back.
    outline = np.empty((len(a), 14, 2))
    outline[:, :7] = a[:, None] + ra[:, None, None] * arc
    outline[:, 7:] = b[:, None] - rb[:, None, None] * arc
    return outline, outline[:, _SIDES]


def shade_bands(sheets: np.ndarray, light: float) -> np.ndarray:
    """The strip of each sheet (N×4×2) that lies away from the light: it makes a flat shape look round."""
    flip = ((sheets[:, 1, 0] - sheets[:, 0, 0]) * light >= 0)[:, None, None]
    dark = np.where(flip, sheets[:, 1::2], sheets[:, 0::2])
    bright = np.where(flip, sheets[:, 0::2], sheets[:, 1::2])
    bands = np.empty_like(sheets)
    bands[:, 0::3] = 0.35 * bright + 0.65 * dark
    bands[:, 1:3] = dark
    return bands


@lru_cache(maxsize=512)
def pattern(kind: str, rows: int, columns: int) -> np.ndarray:
    """A clothing pattern as K quads: the weights (4K×4) that make them from the corners of a sheet.

    Bound to the sheet, the pattern follows the limb and needs no mask to stay within it.
    """
    quads: list[Sequence[tuple[float, float]]] = []
    edges = np.linspace(-1.0, 1.0, columns * 2 + 1)
    steps = np.linspace(0.0, 1.0, rows * 2 + 1)
    if kind in ("hoops", "checks"):
        for k in range(rows):
            s0, s1 = steps[2 * k], steps[2 * k + 1]
            quads.append([(s0, -1), (s0, 1), (s1, 1), (s1, -1)])
    if kind == "stripes":
        for k in range(columns):
            u0, u1 = edges[2 * k], edges[2 * k + 1]
            quads.append([(0, u0), (0, u1), (1, u1), (1, u0)])
    if kind == "checks":  # the squares between the hoops
        for i in range(rows):
            s0, s1 = steps[2 * i + 1], steps[2 * i + 2]
            quads.extend([(s0, edges[2 * k]), (s0, edges[2 * k + 1]), (s1, edges[2 * k + 1]), (s1, edges[2 * k])] for k in range(columns))
    if kind == "dots":
        for i in range(rows):
            s, ds = (steps[2 * i] + steps[2 * i + 1]) / 2, 0.22 / rows
            for k in range(columns):
                shift = 0.5 if i % 2 else 0.0
                u, du = -1 + 2 * (k + 0.25 + shift) / columns, 0.45 / columns
                quads.append([(s - ds, u), (s, u + du), (s + ds, u), (s, u - du)])
    places = np.asarray(quads, np.float64).reshape(-1, 2)
    along, across = places[:, 0], places[:, 1] * 0.5 + 0.5
    near, far = 1 - along, along
    return np.stack([near * (1 - across), near * across, far * (1 - across), far * across], axis=1)
