"""Drawing an avatar from two-dimensional joints, on nothing.

The sheet that it is drawn on has a fourth channel: how much of a pixel the avatar covers. It begins as nothing at all, so no pixel of the
clip has a part in what is drawn; a pixel that is covered wholly (255) can be put into any picture as it is.
"""

from __future__ import annotations

import cv2
import numpy as np

from halfmask.data.avatar_joints import (
    HEAD_TOP,
    L_ANKLE,
    L_ELBOW,
    L_HIP,
    L_KNEE,
    L_SHOULDER,
    L_WRIST,
    NECK,
    PELVIS,
    R_ANKLE,
    R_ELBOW,
    R_HIP,
    R_KNEE,
    R_SHOULDER,
    R_WRIST,
    THORAX,
    Stance,
    stance,
)
from halfmask.data.avatars import Avatar, avatar_of
from halfmask.data.figures.draw import CIRCLE, Canvas, Colour, capsules, fixed, mix, pattern, shade_bands, tone
from halfmask.data.figures.subjects import Garment

# Points that are made up, behind the sixteen joints.
R_HAND, L_HAND, R_HEEL, L_HEEL, R_TOE, L_TOE = range(16, 22)
# From, to, radii in metres, which garment covers it (0 top, 1 bottom, 2 none), and whether it is the farther half of its limb.
_SEGMENTS: dict[str, tuple[int, int, float, float, int, bool]] = {
    "r_upper": (R_SHOULDER, R_ELBOW, 0.049, 0.040, 0, False),
    "r_forearm": (R_ELBOW, R_WRIST, 0.039, 0.028, 0, True),
    "r_hand": (R_WRIST, R_HAND, 0.030, 0.036, 2, False),
    "l_upper": (L_SHOULDER, L_ELBOW, 0.049, 0.040, 0, False),
    "l_forearm": (L_ELBOW, L_WRIST, 0.039, 0.028, 0, True),
    "l_hand": (L_WRIST, L_HAND, 0.030, 0.036, 2, False),
    "r_thigh": (R_HIP, R_KNEE, 0.080, 0.056, 1, False),
    "r_shin": (R_KNEE, R_ANKLE, 0.054, 0.036, 1, True),
    "r_foot": (R_HEEL, R_TOE, 0.044, 0.034, 2, False),
    "l_thigh": (L_HIP, L_KNEE, 0.080, 0.056, 1, False),
    "l_shin": (L_KNEE, L_ANKLE, 0.054, 0.036, 1, True),
    "l_foot": (L_HEEL, L_TOE, 0.044, 0.034, 2, False),
    "neck": (THORAX, NECK, 0.054, 0.050, 2, False),
}
_NAMES = tuple(_SEGMENTS)
_FROM = np.array([segment[0] for segment in _SEGMENTS.values()])
_TO = np.array([segment[1] for segment in _SEGMENTS.values()])
_RADII = np.array([segment[2:4] for segment in _SEGMENTS.values()])
_KINDS = np.array([segment[4] for segment in _SEGMENTS.values()])
_FARTHER = np.array([segment[5] for segment in _SEGMENTS.values()], float)
_ARMS = {"r": (0, 1, 2), "l": (3, 4, 5)}
_LEGS = {"r": (6, 7, 8), "l": (9, 10, 11)}
_NECK = 12
# A joint placed anywhere by mistake must not make OpenCV fill a continent.
_REACH = 4.0


def draw_avatar(joints: np.ndarray, key: str | int, size: tuple[int, int], present: np.ndarray | None = None) -> np.ndarray:
    """The avatar of a key in the poses of a clip.

    Args:
        joints: F×16×2 in pixels, in MPII's order, NaN where missing.
        size: height and width of the frames.
        present: F, in which frames somebody is seen at all; in all of them, if not given.

    Returns:
        F×H×W×4 bytes: red, green and blue as far as the avatar covers a pixel, and how far it does.
    """
    return draw_look(joints, avatar_of(key), size, present)


def draw_look(joints: np.ndarray, avatar: Avatar, size: tuple[int, int], present: np.ndarray | None = None) -> np.ndarray:
    """The same for an avatar that was chosen otherwise."""
    sheets = np.zeros((len(joints), *size, 4), np.uint8)
    reach = _REACH * max(size)
    body = stance(np.clip(joints, -reach, reach), np.ones(len(joints), bool) if present is None else present)
    if body.known.any():
        drawing = _Drawing(body, avatar)
        for frame in np.flatnonzero(body.known).tolist():
            drawing.frame(_Sheet(sheets[frame]), frame)
    return sheets


class _Sheet(Canvas):
    """A canvas whose fourth channel says how much of a pixel is covered."""

    def fill(self, points: np.ndarray, colour: Colour, mark: int | None = None) -> None:
        cv2.fillConvexPoly(self.image, points, (*colour, 255.0), cv2.LINE_AA, 4)

    def many(self, polygons: np.ndarray, colour: Colour) -> None:
        if len(polygons):
            cv2.fillPoly(self.image, list(fixed(polygons)), (*colour, 255.0), cv2.LINE_AA, 4)


class _Drawing:
    """An avatar in all poses of a clip: shapes are made for all frames together, as that is most of the work."""

    def __init__(self, body: Stance, avatar: Avatar) -> None:
        self.body, self.avatar = body, avatar
        self.metre = np.clip(body.scale, 1.0, None)
        self.points = _with_ends(body, self.metre)
        thick = self.metre * (0.35 + 0.65 * avatar.build)
        frames, count = len(self.points), len(_NAMES)
        a, z = self.points[:, _FROM], self.points[:, _TO]
        self.drawn = np.isfinite(a).all(axis=2) & np.isfinite(z).all(axis=2)
        radii = _RADII[None] * thick[:, None, None]
        reach = np.where(_KINDS == 0, avatar.sleeve, np.where(_KINDS == 1, avatar.leg, 0.0)) - _FARTHER
        self.cover = np.clip(np.where(_KINDS == 2, 0.0, reach), 0.0, 1.0)
        loose = np.where(_KINDS == 0, avatar.top.loose, avatar.bottom.loose)
        ends = a + (z - a) * self.cover[None, :, None]
        start = radii[:, :, 0] * (1 + 0.6 * (loose - 1))
        finish = (radii[:, :, 0] + (radii[:, :, 1] - radii[:, :, 0]) * self.cover) * loose
        # First the bare segments, then the cloth over them.
        outlines, sheets = capsules(
            np.nan_to_num(np.stack([a, a])).reshape(-1, 2),
            np.nan_to_num(np.stack([z, ends])).reshape(-1, 2),
            np.stack([radii[:, :, 0], start]).reshape(-1),
            np.stack([radii[:, :, 1], finish]).reshape(-1),
        )
        self.shapes = fixed(outlines).reshape(2, frames, count, -1, 2)
        self.bands = fixed(shade_bands(sheets, avatar.light)).reshape(2, frames, count, 4, 2)
        self.sheets = sheets.reshape(2, frames, count, 4, 2)

    def frame(self, sheet: _Sheet, at: int) -> None:
        """Draw one frame, far parts first."""
        front, turn = float(self.body.front[at]), float(self.body.turn[at])
        # Who faces the right of the picture shows the camera their right side.
        near, far = ("r", "l") if turn > 0 else ("l", "r")
        arms = (near, far)
        behind = arms if front < -0.5 else (far,) if front < 0.5 else ()
        style = self.avatar.hair_style
        if style == "long" and front > -0.2:
            self._mane(sheet, at)
        for side in behind:
            self._limb(sheet, at, _ARMS[side])
        for side in (far, near):
            self._limb(sheet, at, _LEGS[side])
        self._hips(sheet, at)
        self._plain(sheet, at, _NECK, self.avatar.skin)
        self._trunk(sheet, at)
        self._head(sheet, at, front, turn)
        if style == "long" and front <= -0.2:
            self._mane(sheet, at)
        for side in arms:
            if side not in behind:
                self._limb(sheet, at, _ARMS[side])

    def _limb(self, sheet: _Sheet, at: int, parts: tuple[int, ...]) -> None:
        # From the end inwards, so that cloth hangs over what it covers.
        for part in reversed(parts):
            if not self.drawn[at, part]:
                continue
            name = _NAMES[part]
            if name.endswith("foot"):
                self._plain(sheet, at, part, self.avatar.shoes)
                continue
            cover = float(self.cover[part])
            if cover < 0.97:
                self._plain(sheet, at, part, self.avatar.skin)
            if cover > 0.03:
                garment = self.avatar.bottom if _KINDS[part] else self.avatar.top
                self._plain(sheet, at, part, garment.colour, 1)
                self._sew(sheet, self.sheets[1, at, part], garment, 0.3 * cover, 2 * float(_RADII[part].sum()))

    def _plain(self, sheet: _Sheet, at: int, part: int, colour: Colour, layer: int = 0) -> None:
        if self.drawn[at, part]:
            sheet.fill(self.shapes[layer, at, part], colour)
            sheet.fill(self.bands[layer, at, part], tone(colour, 0.84))

    def _sew(self, sheet: _Sheet, cloth: np.ndarray, garment: Garment, length: float, width: float) -> None:
        if garment.pattern != "plain":
            rows = min(12, max(1, round(length / garment.period)))
            columns = min(8, max(1, round(width / garment.period)))
            sheet.many((pattern(garment.pattern, rows, columns) @ cloth).reshape(-1, 4, 2), garment.second)

    def _drape(self, sheet: _Sheet, discs: list[tuple[np.ndarray, float]], garment: Garment, cloth: np.ndarray, length: float) -> None:
        """Cloth round some discs, shaded on one side of the sheet between two cross-sections, and with its pattern there."""
        rim = np.concatenate([centre + radius * CIRCLE for centre, radius in discs if np.isfinite(centre).all()])
        sheet.fill(cv2.convexHull(fixed(rim))[:, 0], garment.colour)
        sheet.fill(fixed(shade_bands(cloth[None], self.avatar.light)[0]), tone(garment.colour, 0.84))
        self._sew(sheet, cloth, garment, length, 0.34)

    def _section(self, at: int, share: float, wide: float) -> np.ndarray:
        """The two ends of a cut through the trunk, a share of the way from the pelvis to the thorax."""
        p, across = self.points[at], self.body.across[at]
        centre = p[PELVIS] + share * (p[THORAX] - p[PELVIS])
        return np.stack([centre - wide * across, centre + wide * across])

    def _breadth(self, at: int, first: int, second: int, least: float) -> float:
        """Half of how wide the trunk looks between two joints: never thinner than a body is deep."""
        apart = float((self.points[at, second] - self.points[at, first]) @ self.body.across[at])
        return max(0.5 * abs(apart), least)

    def _trunk(self, sheet: _Sheet, at: int) -> None:
        p, m, b = self.points[at], float(self.metre[at]), self.avatar.build * self.avatar.top.loose
        waist = p[PELVIS] + 0.12 * (p[THORAX] - p[PELVIS])
        chest = p[PELVIS] + 0.66 * (p[THORAX] - p[PELVIS])
        discs = [(p[R_SHOULDER], 0.055 * m), (p[L_SHOULDER], 0.055 * m), (chest, 0.125 * m * b), (waist, 0.115 * m * b)]
        wide = self._breadth(at, R_SHOULDER, L_SHOULDER, 0.09 * m)
        narrow = 0.105 * m * b
        cloth = np.concatenate([self._section(at, 0.95, wide), self._section(at, 0.1, narrow)])
        self._drape(sheet, discs, self.avatar.top, cloth, 0.49)

    def _hips(self, sheet: _Sheet, at: int) -> None:
        p, m, b = self.points[at], float(self.metre[at]), self.avatar.build * self.avatar.bottom.loose
        waist = p[PELVIS] + 0.25 * (p[THORAX] - p[PELVIS])
        discs = [(p[R_HIP], 0.085 * m * b), (p[L_HIP], 0.085 * m * b), (waist, 0.1 * m * b)]
        lower = self._section(at, -0.1, self._breadth(at, R_HIP, L_HIP, 0.1 * m * b))
        if self.avatar.skirt > 0:
            hem = []
            for hip, knee, ankle in ((R_HIP, R_KNEE, R_ANKLE), (L_HIP, L_KNEE, L_ANKLE)):
                upper, below = min(1.0, self.avatar.skirt), max(0.0, self.avatar.skirt - 1.0)
                end = p[hip] + upper * (p[knee] - p[hip])
                if below > 0:
                    end = end + below * (p[ankle] - p[knee])
                if np.isfinite(end).all():
                    hem.append(end)
                    discs.append((end, 0.1 * m * b))
            if hem:
                middle, radius = np.mean(hem, axis=0), 0.1 * m * b
                along = middle - p[PELVIS]
                side = np.array([along[1], -along[0]]) / max(1e-6, float(np.hypot(*along)))
                spread = max(radius, *(abs(float((end - middle) @ side)) + 0.7 * radius for end in hem))
                lower = np.stack([middle - spread * side, middle + spread * side])
        cloth = np.concatenate([self._section(at, 0.25, 0.1 * m * b), lower])
        self._drape(sheet, discs, self.avatar.bottom, cloth, 0.25 + 0.4 * self.avatar.skirt)

    def _skull(self, at: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Centre of the head, and the vectors to its crown and to its side."""
        p, m = self.points[at], float(self.metre[at])
        along = p[HEAD_TOP] - p[NECK]
        # A head that nods looks shorter, but it is a ball: its outline hardly shrinks.
        length = max(float(np.hypot(*along)), 1e-6)
        up = along / length * max(0.5 * length, 0.095 * m)
        side = np.array([-up[1], up[0]]) / max(float(np.hypot(*up)), 1e-6) * 0.088 * m
        return 0.5 * (p[NECK] + p[HEAD_TOP]), up, side

    def _mane(self, sheet: _Sheet, at: int) -> None:
        centre, up, side = self._skull(at)
        if np.isfinite(centre).all():
            ends = 1.25 * side
            corners = (centre - 1.05 * side, centre - ends - 1.7 * up, centre + ends - 1.7 * up, centre + 1.05 * side)
            sheet.fill(fixed(np.stack(corners)), tone(self.avatar.hair, 0.88))

    def _head(self, sheet: _Sheet, at: int, front: float, turn: float) -> None:
        centre, up, side = self._skull(at)
        if not np.isfinite(centre).all():
            return
        look, style = self.avatar, self.avatar.hair_style
        circle = CIRCLE[:, :1] * side + CIRCLE[:, 1:] * up
        crown = tone(look.skin, 0.96) if style == "bald" else look.top.second if style == "cap" else look.hair
        grow = {"bald": 1.0, "curly": 1.2}.get(style, 1.06)
        if style == "bun":
            sheet.fill(fixed(centre + 1.05 * up - 0.45 * turn * side + 0.42 * circle), tone(look.hair, 0.9))
        sheet.fill(fixed(centre + (0.0 if style == "bald" else 0.08) * up + grow * circle), crown)
        if front < -0.35:
            return
        # The face is a patch that moves to the side that the head faces, and lets the hair be seen on the other.
        middle = centre - 0.2 * up + 0.32 * turn * side
        sheet.fill(fixed(middle + (0.86 - 0.16 * abs(turn)) * CIRCLE[:, :1] * side + 0.8 * CIRCLE[:, 1:] * up), look.skin)
        pixels = float(np.hypot(*side))
        if pixels > 5:
            self._features(sheet, middle, up, side, turn, pixels)

    def _features(self, sheet: _Sheet, middle: np.ndarray, up: np.ndarray, side: np.ndarray, turn: float, pixels: float) -> None:
        """Eyes and a mouth, where there are pixels enough: they tell front from back."""
        look = self.avatar
        dot = 0.11 * pixels * CIRCLE[::2]
        for x in (-0.38, 0.38):
            # The eye on the side that is turned away is hidden behind the nose.
            if x * turn > -0.3:
                sheet.fill(fixed(middle + (x + 0.3 * turn) * side + 0.28 * up + dot), mix(look.hair, (24, 20, 20), 0.7))
        mouth = np.array([[-0.28, -0.42], [0.28, -0.42], [0.2, -0.52], [-0.2, -0.52]])
        sheet.fill(fixed(middle + (mouth[:, :1] + 0.3 * turn) * side + mouth[:, 1:] * up), mix(look.skin, (150, 40, 50), 0.5))


def _with_ends(body: Stance, metre: np.ndarray) -> np.ndarray:
    """The joints (F×16×2), and the ends of hands and feet that no joint tells."""
    joints = body.joints
    points = np.full((len(joints), 22, 2), np.nan)
    points[:, :16] = joints
    for elbow, wrist, hand in ((R_ELBOW, R_WRIST, R_HAND), (L_ELBOW, L_WRIST, L_HAND)):
        points[:, hand] = joints[:, wrist] + 0.075 * metre[:, None] * _unit(joints[:, wrist] - joints[:, elbow])
    for knee, ankle, heel, toe in ((R_KNEE, R_ANKLE, R_HEEL, R_TOE), (L_KNEE, L_ANKLE, L_HEEL, L_TOE)):
        down = _unit(joints[:, ankle] - joints[:, knee])
        # Feet stand at a right angle to the shin. Seen from the front or from behind they are short.
        ahead = np.stack([down[:, 1], -down[:, 0]], axis=1) * body.turn[:, None]
        points[:, heel] = joints[:, ankle] + metre[:, None] * (0.045 * down - 0.04 * ahead)
        points[:, toe] = joints[:, ankle] + metre[:, None] * ((0.05 + 0.05 * np.abs(body.front[:, None])) * down + 0.17 * ahead)
    return points


def _unit(vectors: np.ndarray) -> np.ndarray:
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    return unit
