"""Walls and floors of the places in clips, painted as flat textures: what makes a kitchen a kitchen even behind somebody."""

from __future__ import annotations

import cv2
import numpy as np

from halfmask.data.figures.draw import Colour, tone
from halfmask.data.figures.populations import within
from halfmask.data.figures.rooms import FLOOR, FLOOR_PX, WALL, WALL_PX, board
from halfmask.data.figures.subjects import hsv


class Sheet:
    """A texture one paints on in metres: x from the left, y up from the floor (or, on a floor, away from the wall)."""

    def __init__(self, size: tuple[float, float], scale: float, colour: Colour, upwards: bool) -> None:
        self.image = board(size, scale, colour)
        self.size, self.scale, self.upwards = size, scale, upwards

    @staticmethod
    def wall(colour: Colour) -> Sheet:
        """A bare wall."""
        return Sheet(WALL, WALL_PX, colour, True)

    @staticmethod
    def floor(colour: Colour) -> Sheet:
        """A bare floor."""
        return Sheet(FLOOR, FLOOR_PX, colour, False)

    def _at(self, x: float, y: float) -> tuple[int, int]:
        return round(x * self.scale), round((self.size[1] - y if self.upwards else y) * self.scale)

    def box(self, x: float, y: float, wide: float, high: float, colour: Colour, thick: int = -1) -> None:
        """A rectangle from its lower left corner; with ``thick``, only its frame."""
        cv2.rectangle(self.image, self._at(x, y), self._at(x + wide, y + high), colour, thick)

    def disc(self, x: float, y: float, radius: float, colour: Colour, flat: float = 1.0) -> None:
        """A disc, squeezed to ``flat`` of its height."""
        axes = (round(radius * self.scale), round(radius * self.scale * flat))
        cv2.ellipse(self.image, self._at(x, y), axes, 0, 0, 360, colour, -1)

    def grid(self, y0: float, y1: float, wide: float, high: float, line: Colour, thick: int = 2, staggered: bool = False) -> None:
        """Joints between tiles, slabs or bricks, from height ``y0`` to ``y1``."""
        rows = np.arange(y0, y1, high)
        for k, y in enumerate(rows.tolist()):
            cv2.line(self.image, self._at(0, y), self._at(self.size[0], y), line, thick)
            shift = 0.5 * wide if staggered and k % 2 else 0.0
            for x in np.arange(shift, self.size[0], wide).tolist():
                cv2.line(self.image, self._at(x, y), self._at(x, min(y + high, y1)), line, thick)

    def checks(self, side: float, colour: Colour) -> None:
        """Every second square in another colour."""
        for i, y in enumerate(np.arange(0, self.size[1], side).tolist()):
            for x in np.arange((i % 2) * side, self.size[0], 2 * side).tolist():
                self.box(x, y, side, side, colour)

    def stripes(self, wide: float, colour: Colour, y0: float = 0.0, y1: float = 9.0) -> None:
        """Upright stripes."""
        for x in np.arange(0, self.size[0], 2 * wide).tolist():
            self.box(x, y0, wide, min(y1, self.size[1]) - y0, colour)


def row(rng: np.random.Generator, gap: tuple[float, float]) -> list[float]:
    """Places along a wall, one after another with random gaps: something is in view wherever a person stands."""
    x, out = float(rng.uniform(-0.5, 0.3)), []
    while x < WALL[0]:
        out.append(x)
        x += within(rng, gap)
    return out


def any_colour(rng: np.random.Generator, saturation: tuple[float, float], value: tuple[float, float]) -> Colour:
    """A colour of any hue."""
    return hsv(float(rng.random()), within(rng, saturation), within(rng, value))


def curtain(rng: np.random.Generator, wall: Sheet, x: float, wide: float, y0: float, y1: float, colour: Colour) -> None:
    """Folds: a row of upright shades as wide as limbs, under a rail."""
    fold = within(rng, (0.07, 0.15))
    for k, at in enumerate(np.arange(x, x + wide, fold).tolist()):
        wall.box(at, y0, fold, y1 - y0, tone(colour, (1.0, 0.84, 0.93, 0.78)[k % 4]))
    wall.box(x - 0.1, y1, wide + 0.2, 0.05, (120.0, 120.0, 125.0))


def window(rng: np.random.Generator, wall: Sheet, x: float, wide: float, y0: float, y1: float, frame: Colour, blinds: bool) -> None:
    """A window on a bright day."""
    wall.box(x - 0.06, y0 - 0.06, wide + 0.12, y1 - y0 + 0.12, frame)
    wall.box(x, y0, wide, y1 - y0, hsv(0.57, within(rng, (0.1, 0.4)), within(rng, (0.8, 1.0))))
    if blinds:
        for y in np.arange(y0, y1, 0.09).tolist():
            wall.box(x, y, wide, 0.03, tone(frame, 0.85))
    else:
        wall.disc(x + wide / 2, y0 + 0.1, wide / 2.2, hsv(0.3, 0.4, 0.5), 0.5)
        wall.box(x + wide / 2 - 0.02, y0, 0.04, y1 - y0, frame)


def door(wall: Sheet, x: float, colour: Colour) -> None:
    """A door with a frame and a handle."""
    wall.box(x - 0.06, 0.0, 1.02, 2.1, tone(colour, 0.65))
    wall.box(x, 0.0, 0.9, 2.04, colour)
    wall.disc(x + 0.8, 1.0, 0.04, (200.0, 195.0, 170.0))


def picture(rng: np.random.Generator, wall: Sheet, x: float, y: float) -> None:
    """A framed picture of nothing in particular."""
    wide, high = within(rng, (0.3, 0.7)), within(rng, (0.3, 0.6))
    wall.box(x - 0.04, y - 0.04, wide + 0.08, high + 0.08, hsv(0.08, 0.5, within(rng, (0.2, 0.5))))
    wall.box(x, y, wide, high, any_colour(rng, (0.1, 0.6), (0.5, 0.95)))
    for _ in range(3):
        wall.disc(
            x + wide * within(rng, (0.25, 0.75)), y + high * within(rng, (0.3, 0.7)), 0.2 * high, any_colour(rng, (0.2, 0.8), (0.3, 0.9))
        )


def goods(rng: np.random.Generator, wall: Sheet, x: float, wide: float, heights: tuple[float, ...], wood: Colour, bright: float) -> None:
    """Shelves full of things: goods in a shop, the backs of books at home."""
    top = heights[-1] + 0.42
    wall.box(x - 0.04, heights[0] - 0.04, wide + 0.08, top - heights[0] + 0.08, tone(wood, 0.45))
    for y in heights:
        at = x
        while at < x + wide - 0.05:
            w, h = within(rng, (0.05, 0.16)), within(rng, (0.18, 0.36))
            wall.box(at, y, min(w, x + wide - at), h, any_colour(rng, (0.3 * bright, 0.9 * bright), (0.35, 0.95)))
            at += w + 0.015
        wall.box(x - 0.04, y - 0.05, wide + 0.08, 0.05, wood)


def wall_bars(wall: Sheet, x: float, wide: float, wood: Colour) -> None:
    """A ladder of wooden bars to exercise on."""
    for side in (x, x + wide - 0.07):
        wall.box(side, 0.0, 0.07, 2.5, tone(wood, 0.75))
    for y in np.arange(0.15, 2.5, 0.19).tolist():
        wall.box(x, y, wide, 0.055, wood)
        wall.box(x, y - 0.025, wide, 0.025, tone(wood, 0.55))


def mirror(wall: Sheet, x: float, wide: float, y0: float, y1: float, shine: Colour) -> None:
    """A mirror that shows nothing but light."""
    wall.box(x - 0.04, y0 - 0.04, wide + 0.08, y1 - y0 + 0.08, (90.0, 92.0, 96.0))
    wall.box(x, y0, wide, y1 - y0, shine)
    points = np.array([[x + 0.2 * wide, y0], [x + 0.4 * wide, y0], [x + 0.8 * wide, y1], [x + 0.6 * wide, y1]])
    pixels = np.array([wall._at(a, b) for a, b in points.tolist()], np.int32)
    cv2.fillConvexPoly(wall.image, pixels, tone(shine, 1.12), cv2.LINE_AA)
