"""The shape of a head near enough to see its face: a surface that features lie on, and the camera before it.

Lengths are in half faces: the chin is at height −1 and the crown a little above 1. The head's x runs to the right
of the picture for a face that looks into the camera, y up and z out of its nose. Every feature is a point of the
surface, so that what is drawn and what is annotated come from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

_LEVELS = np.array([-1.0, -0.93, -0.75, -0.5, -0.2, 0.1, 0.35, 0.6, 0.8, 0.95, 1.08])
_WIDTHS = np.array([0.16, 0.30, 0.47, 0.58, 0.66, 0.70, 0.72, 0.69, 0.59, 0.42, 0.05])
_FRONTS = np.array([0.58, 0.70, 0.77, 0.80, 0.82, 0.82, 0.86, 0.84, 0.72, 0.50, 0.05])
_BACKS = np.array([0.05, 0.08, 0.15, 0.35, 0.75, 0.95, 1.00, 0.98, 0.85, 0.60, 0.05])

_Y = np.linspace(_LEVELS[0], _LEVELS[-1], 53)
FOREHEAD = 0.72
"""Where a face ends, whatever the hair: its box must not depend on the barber."""


def _smooth(values: np.ndarray) -> np.ndarray:
    profile = np.interp(_Y, _LEVELS, values)
    for _ in range(6):
        profile[1:-1] = (profile[:-2] + 2 * profile[1:-1] + profile[2:]) / 4
    return profile


_PROFILES = tuple(_smooth(values) for values in (_WIDTHS, _FRONTS, _BACKS))


def _grid(turns: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, y = np.meshgrid(np.deg2rad(turns), levels)
    return a.ravel(), y.ravel()


_SKIN_GRID = _grid(np.arange(-102.0, 103.0, 6.0), np.linspace(-1.0, 0.9, 26))
_SKULL_GRID = _grid(np.arange(0.0, 360.0, 15.0), np.linspace(-1.0, 1.08, 18))


@dataclass(frozen=True)
class Shape:
    """The surface of one person's head.

    Attributes:
        table: at each height half the width, the depths to the front and to the back, and the slopes of the three.
        skin: points of the front half, where the face is.
        skin_normals: which way the surface looks there.
        skull: points all round.
    """

    table: np.ndarray
    skin: np.ndarray
    skin_normals: np.ndarray
    skull: np.ndarray

    @staticmethod
    def of(width: float, jaw: float, depth: float) -> Shape:
        """A head of that width and depth, whose jaw is wider by ``jaw`` (all near 1)."""
        low = np.clip((-0.1 - _Y) / 0.5, 0.0, 1.0)
        profiles = (_PROFILES[0] * width * (1 + (jaw - 1) * low), _PROFILES[1] * depth, _PROFILES[2] * depth)
        table = np.stack([*profiles, *(np.gradient(profile, _Y) for profile in profiles)], axis=1)
        bare = Shape(table, np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)))
        skin, normals = bare.around(*_SKIN_GRID)
        return Shape(table, skin, normals, bare.around(*_SKULL_GRID)[0])

    def _rows(self, y: np.ndarray) -> np.ndarray:
        """The table at heights between its own: once for all its columns, because this is most of the work."""
        place = np.clip((y - _Y[0]) / (_Y[1] - _Y[0]), 0.0, len(_Y) - 1.001)
        row = place.astype(np.int64)
        below = self.table[row]
        rows: np.ndarray = below + (place - row)[:, None] * (self.table[row + 1] - below)
        return rows

    def width(self, y: float) -> float:
        """Half the width at a height."""
        return float(np.interp(y, _Y, self.table[:, 0]))

    def around(self, turn: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points and normals at angles round the vertical axis (0 in front, in radians) and heights."""
        return self._surface(np.sin(turn), np.cos(turn), y, self._rows(y))

    def front(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points and normals of the front of the head at places (N×2) given as seen from straight ahead."""
        rows = self._rows(places[:, 1])
        sine = np.clip(places[:, 0] / rows[:, 0], -0.999, 0.999)
        return self._surface(sine, np.sqrt(1.0 - sine**2), places[:, 1], rows)

    @staticmethod
    def _surface(sine: np.ndarray, cosine: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        behind = cosine < 0
        w, slope = rows[:, 0], rows[:, 3]
        depth = np.where(behind, rows[:, 2], rows[:, 1])
        deepening = np.where(behind, rows[:, 5], rows[:, 4])
        points, normals = np.empty((len(y), 3)), np.empty((len(y), 3))
        points[:, 0], points[:, 1], points[:, 2] = w * sine, y, depth * cosine
        normals[:, 0], normals[:, 2] = depth * sine, w * cosine
        normals[:, 1] = -depth * slope * sine**2 - w * deepening * cosine**2
        normals /= np.sqrt(np.einsum("ij,ij->i", normals, normals))[:, None]
        return points, normals


def rotation(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """The turn of a head from looking into the camera, from degrees.

    The head nods about the axis through its ears (``pitch`` > 0: downwards), turns about the vertical (``yaw`` > 0:
    towards the left edge of the picture) and is then tilted in the picture (``roll`` > 0: clockwise). So the nose
    points along (−sin yaw·cos pitch, −sin pitch, cos yaw·cos pitch) before it is tilted.
    """
    (sr, sp, sy), (cr, cp, cy) = np.sin(np.deg2rad([roll, pitch, yaw])), np.cos(np.deg2rad([roll, pitch, yaw]))
    nod = np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    turn = np.array([[cy, 0, -sy], [0, 1, 0], [sy, 0, cy]])
    tilt = np.array([[cr, sr, 0], [-sr, cr, 0], [0, 0, 1]])
    matrix: np.ndarray = tilt @ turn @ nod
    return matrix


@dataclass(frozen=True)
class View:
    """A camera that looks at the middle of a head, and the head's turn before it.

    Attributes:
        turn: the head's rotation.
        distance: from the camera to the middle of the head, in half faces.
        scale: pixels of a half face at that distance.
        middle: the pixel of the head's middle.
    """

    turn: np.ndarray
    distance: float
    scale: float
    middle: np.ndarray

    def project(self, points: np.ndarray, turn: np.ndarray | None = None) -> np.ndarray:
        """Pixels of points of the head, or of the body where its own turn is given."""
        x = points @ (self.turn if turn is None else turn).T
        near = self.scale * self.distance / (self.distance - x[:, 2:])
        pixels: np.ndarray = self.middle + near * x[:, :2] * (1.0, -1.0)
        return pixels

    def facing(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """Cosine between each normal and the line of sight: above 0 where the surface is turned to the camera."""
        sight = self.turn.T @ np.array([0.0, 0.0, self.distance]) - points
        cosine: np.ndarray = np.einsum("ij,ij->i", normals, sight) / np.sqrt(np.einsum("ij,ij->i", sight, sight))
        return cosine


def hull(pixels: np.ndarray) -> np.ndarray:
    """The convex outline of pixels."""
    outline: np.ndarray = cv2.convexHull(pixels.astype(np.float32))[:, 0]
    return outline


def inside(pixel: np.ndarray, outline: np.ndarray) -> bool:
    """Whether a pixel lies within an outline."""
    if len(outline) < 3:
        return False
    return bool(cv2.pointPolygonTest(outline.astype(np.float32), (float(pixel[0]), float(pixel[1])), False) >= 0)
