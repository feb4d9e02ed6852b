"""Portraits: one head before the camera, with every feature in its place, before anything is drawn.

Landmarks are projections of the very points the features are drawn through. Whether one can be seen follows from
the order of drawing: its surface must face the camera, and no outline that is drawn later may hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.data.figures.draw import CIRCLE, Colour
from halfmask.data.figures.faceshape import FOREHEAD, Shape, View, hull, inside
from halfmask.data.figures.subjects import Look

LANDMARK_NAMES = (
    *(f"{side}_brow_{place}" for side in ("left", "right") for place in ("left", "centre", "right")),
    *(f"{side}_eye_{place}" for side in ("left", "right") for place in ("left", "centre", "right")),
    "left_ear",
    "nose_left",
    "nose_tip",
    "nose_right",
    "right_ear",
    "mouth_left",
    "mouth_centre",
    "mouth_right",
    "chin",
)
"""In the order of AFLW. Left and right are those of the picture of a face that looks into the camera."""
MIRROR = (5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6, 16, 15, 14, 13, 12, 19, 18, 17, 20)
EARS = (12, 16)
NOSE = (13, 14, 15)

EYE_LEVEL, BROW_LEVEL, MOUTH_LEVEL = 0.1, 0.34, -0.53
_STEPS = np.linspace(-1.0, 1.0, 9)
_ARCH = 1.0 - _STEPS**2
_GRAZING = 0.06
"""Surfaces turned further than this are too foreshortened for anything on them to be seen."""


@dataclass(frozen=True)
class Features:
    """What a person's face keeps from picture to picture, beside their look.

    Attributes:
        fringe: how low hair falls at the left and the right of the forehead; None where it is combed back.
        locks: whether long hair hangs before the ears.
        frame: half width, half height and roundness (2 an ellipse) of glasses.
        frame_colour: theirs.
        mole: where one is, or None.
    """

    look: Look
    shape: Shape
    eye_gap: float
    eye_width: float
    eye_height: float
    brow_arch: float
    nose_width: float
    nose_length: float
    nose_out: float
    mouth_width: float
    lip: float
    ear: float
    fringe: tuple[float, float] | None
    locks: bool
    frame: tuple[float, float, float]
    frame_colour: Colour
    mole: tuple[float, float] | None


@dataclass(frozen=True)
class Expression:
    """What a face does in one picture: mouth and eyes open (0 to 1), a smile, brows up, where the eyes look."""

    mouth: float
    smile: float
    eyes: float
    brows: float
    frown: float
    gaze: tuple[float, float]


class Portrait:
    """A head in front of a camera: outlines to draw, landmarks, and what hides them.

    Attributes:
        landmarks: their pixels.
        visible: whether each can be seen, but for what is held before the face.
        box: left, top, width and height of the face, from forehead to chin and with its ears.
    """

    def __init__(self, features: Features, expression: Expression, view: View) -> None:
        self.features, self.expression, self.view = features, expression, view
        shape = features.shape
        places = self._places()
        points, normals = shape.front(places)
        self.nose = self._nose()
        points[list(NOSE)] = self.nose[[1, 2, 3]]
        normals[list(NOSE)] = np.array([[-0.8, -0.1, 0.6], [0.0, 0.0, 1.0], [0.8, -0.1, 0.6]])
        sides = np.array([-1.0, 1.0])
        points[list(EARS)] = [self.ear_point(side) for side in sides]
        self.landmarks = view.project(points)
        self.facing = view.facing(points, normals)
        skin_pixels = view.project(shape.skin)
        self.skin_pixels = skin_pixels
        self.skin_seen = view.facing(shape.skin, shape.skin_normals) > 0.0
        face = np.concatenate([skin_pixels[shape.skin[:, 1] < FOREHEAD], self.landmarks])
        low, high = face.min(axis=0), face.max(axis=0)
        self.box = (float(low[0]), float(low[1]), float(high[0] - low[0]), float(high[1] - low[1]))
        self.skull = hull(view.project(shape.skull))
        towards = view.turn.T[:, 2]
        self.near = tuple(bool(side * towards[0] > -0.15) for side in sides)
        """Whether the ear and the lock of hair on each side are before the head rather than behind it."""
        self.hair = self._hair()
        self.covers = self._covers()
        self.nose_outline = hull(view.project(self.nose))
        self.visible = self._visible()

    def _places(self) -> np.ndarray:
        """Where landmarks are, seen from straight ahead; those off the surface are replaced later."""
        f, e = self.features, self.expression
        left_brow, right_brow = self.brow(-1.0), self.brow(1.0)
        mouth_half = self.mouth_half
        corner = MOUTH_LEVEL + 0.09 * e.smile
        ends = np.array([-1.0, 0.0, 1.0])
        eyes = [np.stack([side * f.eye_gap + ends * f.eye_width, np.full(3, EYE_LEVEL)], axis=1) for side in (-1.0, 1.0)]
        return np.concatenate(
            [
                left_brow[[0, 3, 6]],
                right_brow[[0, 3, 6]],
                *eyes,
                np.zeros((5, 2)),
                [[-mouth_half, corner], [0.0, MOUTH_LEVEL - 0.11 * e.mouth], [mouth_half, corner], [0.0, -0.96]],
            ]
        )

    @property
    def mouth_half(self) -> float:
        """Half the width of the mouth."""
        return self.features.mouth_width + 0.06 * self.expression.smile - 0.05 * self.expression.mouth

    def brow(self, side: float) -> np.ndarray:
        """The middle line of a brow (7×2), from the left of the picture to the right."""
        f, e = self.features, self.expression
        outwards = np.linspace(0.0, 1.0, 7)
        x = f.eye_gap - 0.17 + 0.4 * outwards
        y = BROW_LEVEL + 0.07 * e.brows + f.brow_arch * 4 * outwards * (1 - outwards) - 0.05 * outwards - e.frown * 0.09 * (1 - outwards)
        line = np.stack([side * x, y], axis=1)
        return line if side > 0 else line[::-1]

    def lids(self, side: float) -> tuple[np.ndarray, np.ndarray]:
        """The upper and the lower lid of an eye (9×2 each), from left to right."""
        f, e = self.features, self.expression
        x = side * f.eye_gap + f.eye_width * _STEPS
        upper = np.stack([x, EYE_LEVEL + f.eye_height * _ARCH * (1.6 * e.eyes - 0.45)], axis=1)
        lower = np.stack([x, EYE_LEVEL - 0.55 * f.eye_height * _ARCH * (0.8 + 0.2 * e.eyes)], axis=1)
        return upper, lower

    def lips(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Four lines across the mouth (9×2 each): outer upper, inner upper, inner lower, outer lower."""
        f, e = self.features, self.expression
        x = self.mouth_half * _STEPS
        inner_upper = MOUTH_LEVEL + 0.09 * e.smile * _STEPS**2
        inner_lower = inner_upper - 0.22 * e.mouth * _ARCH
        round_ = np.sqrt(_ARCH)
        lines = (inner_upper + 0.05 * f.lip * round_, inner_upper, inner_lower, inner_lower - 0.07 * f.lip * round_)
        a, b, c, d = (np.stack([x, y], axis=1) for y in lines)
        return a, b, c, d

    def _nose(self) -> np.ndarray:
        """Bridge, left wing, tip, right wing and base of the nose, in the head's coordinates."""
        f = self.features
        low = -0.12 - f.nose_length
        flat, _ = f.shape.front(np.array([[0.0, 0.16], [-f.nose_width, low], [0.0, low + 0.06], [f.nose_width, low], [0.0, low - 0.05]]))
        out = np.array([0.03, 0.03, f.nose_out, 0.03, 0.02])
        flat[:, 2] += out
        return flat

    def ear_point(self, side: float) -> np.ndarray:
        """The middle of an ear."""
        f = self.features
        return np.array([side * (f.shape.width(-0.02) + 0.045 * f.ear), -0.02, -0.08])

    def ear(self, side: float) -> np.ndarray:
        """Its outline in pixels."""
        size = 0.2 * self.features.ear
        back, up = CIRCLE.T
        ring = np.stack([side * 0.38 * size * back, 1.15 * size * up, -0.75 * size * back], axis=1)
        return hull(self.view.project(self.ear_point(side) + ring))

    def _hair(self) -> np.ndarray:
        """The outline of the hair upon the skull."""
        style = self.features.look.hair_style
        skull = self.features.shape.skull
        behind = skull[:, 2] < -0.05
        on = (skull[:, 1] > 0.5) | (behind & (skull[:, 1] > (-0.7 if style in ("long", "curly") else -0.45)))
        grow = {"curly": 1.17, "long": 1.09, "cap": 1.03}.get(style, 1.06)
        middle = np.array([0.0, 0.3, -0.05])
        return hull(self.view.project(middle + grow * (skull[on] - middle) + (0.0, 0.02, 0.0)))

    def lock(self, side: float) -> np.ndarray:
        """The outline of long hair that hangs beside the face."""
        w = self.features.shape.width(0.1)
        points = np.array(
            [
                (0.55, 0.95, 0.1),
                (0.88, 0.72, 0.4),
                (1.03, 0.3, 0.36),
                (1.12, -0.3, 0.3),
                (1.15, -1.1, 0.15),
                (1.0, -1.3, -0.2),
                (1.1, -0.9, -0.5),
                (1.1, 0.0, -0.55),
                (0.9, 0.7, -0.4),
            ]
        )
        return hull(self.view.project(points * (side * w, 1.0, 1.0)))

    def _covers(self) -> list[tuple[str, np.ndarray]]:
        """What hair and headgear put over the face, in the order in which it is drawn."""
        f, shape = self.features, self.features.shape
        covers: list[tuple[str, np.ndarray]] = []
        if f.fringe is not None:
            x, y = shape.skin[:, 0], shape.skin[:, 1]
            low = f.fringe[0] + (f.fringe[1] - f.fringe[0]) * (x + 0.6) / 1.2
            strip = self.skin_seen & (y > low) & (np.abs(x) < 0.66)
            if strip.sum() > 2:
                covers.append(("hair", hull(self.view.project(1.03 * shape.skin[strip]))))
        if f.locks:
            covers.extend(("hair", self.lock(side)) for side, near in zip((-1.0, 1.0), self.near, strict=True) if near)
        if f.look.hair_style == "cap":
            high = shape.skull[shape.skull[:, 1] > 0.5]
            covers.append(("cap", hull(self.view.project(high * (1.09, 1.06, 1.09)))))
            w = shape.width(0.5)
            rim = np.array(
                [(-0.9, 0.5, 0.55), (-0.8, 0.42, 1.1), (-0.4, 0.42, 1.32), (0.4, 0.42, 1.32), (0.8, 0.42, 1.1), (0.9, 0.5, 0.55)]
            )
            peak = np.concatenate([rim, rim[[2, 3]] + (0.0, 0.12, -0.4)]) * (w, 1.0, 1.0)
            covers.append(("peak", hull(self.view.project(peak))))
        return covers

    def _visible(self) -> np.ndarray:
        seen = self.facing > _GRAZING
        hairy = self.features.look.hair_style != "bald"
        for k, landmark in enumerate(self.landmarks):
            if k in EARS:
                behind = not self.near[EARS.index(k)]
                lock = self.features.locks and behind and inside(landmark, self.lock(-1.0 if k == EARS[0] else 1.0))
                seen[k] = not lock and not (behind and (inside(landmark, self.skull) or (hairy and inside(landmark, self.hair))))
            elif k not in NOSE and seen[k]:
                seen[k] = not inside(landmark, self.nose_outline)
            seen[k] = seen[k] and not any(inside(landmark, outline) for _, outline in self.covers)
        return seen

    def patch(self, places: np.ndarray, out: float = 1.0) -> np.ndarray | None:
        """The pixels of an outline on the front of the head, without what is turned away; None if nothing is left."""
        points, normals = self.features.shape.front(places)
        seen = self.view.facing(points, normals) > 0.0
        if seen.sum() < 3:
            return None
        return self.view.project(out * points[seen])

    def skin(self, low: float, high: float, reach: float = 9.0) -> np.ndarray | None:
        """The outline of the bare front between two heights, as far to the sides as ``reach`` (a share of the width)."""
        points = self.features.shape.skin
        w = self.features.shape.width(0.1)
        on = self.skin_seen & (points[:, 1] >= low) & (points[:, 1] <= high) & (np.abs(points[:, 0]) < reach * w)
        if reach > 1:  # hair grows down to the ear
            on &= (points[:, 2] > 0.12) | (points[:, 1] < -0.05)
        return hull(self.skin_pixels[on]) if on.sum() > 2 else None
