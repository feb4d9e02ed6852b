"""Drawing a posed, dressed person, far parts first.

Every part leaves its own mark on the canvas, so that afterwards the pixel under a joint tells whether the
limb that owns the joint is what one sees there.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import CIRCLE, Canvas, Colour, capsules, fixed, pattern, shade_bands, tone
from halfmask.data.figures.head import Ball, draw_hair_behind, draw_head
from halfmask.data.figures.skeleton import (
    HEAD,
    L_HAND,
    L_HEEL,
    L_TOE,
    POINTS,
    R_HAND,
    R_HEEL,
    R_TOE,
    WAIST,
    Body,
)
from halfmask.data.figures.subjects import Garment, Look

PARTS = 32
"""Marks per person: person k of an image owns the marks from 32·(k+1) on."""

PART = {
    "r_shin": 1,
    "r_thigh": 2,
    "l_thigh": 3,
    "l_shin": 4,
    "r_forearm": 5,
    "r_upper": 6,
    "l_upper": 7,
    "l_forearm": 8,
    "r_foot": 9,
    "l_foot": 10,
    "r_hand": 11,
    "l_hand": 12,
    "neck": 13,
    "pelvis": 14,
    "torso": 15,
    "skirt": 16,
    "head": 17,
    "hair": 18,
}
"""The mark of each part, counted from its person's first."""

_OWNERS: tuple[tuple[str, ...], ...] = (
    ("r_shin", "r_foot"),
    ("r_shin", "r_thigh", "skirt"),
    ("r_thigh", "pelvis", "torso", "skirt"),
    ("l_thigh", "pelvis", "torso", "skirt"),
    ("l_shin", "l_thigh", "skirt"),
    ("l_shin", "l_foot"),
    ("pelvis", "torso", "skirt", "r_thigh", "l_thigh"),
    ("torso", "neck"),
    ("neck", "head", "hair", "torso"),
    ("head", "hair"),
    ("r_forearm", "r_hand"),
    ("r_forearm", "r_upper"),
    ("r_upper", "torso"),
    ("l_upper", "torso"),
    ("l_forearm", "l_upper"),
    ("l_forearm", "l_hand"),
)
OWNERS = np.zeros((16, PARTS), bool)
"""Which parts show a joint: a knee is seen where its thigh, its shin or a skirt over it is seen."""
for _joint, _parts in enumerate(_OWNERS):
    OWNERS[_joint, [PART[_p] for _p in _parts]] = True

_TRUNK = [PART[p] for p in ("torso", "pelvis", "skirt")]

# part, from, to, radii in metres, covering garment (0 top, 1 bottom, 2 none), nearer to the camera by
_SEGMENTS: tuple[tuple[str, int, int, float, float, int, float], ...] = (
    ("r_shin", 1, 0, 0.047, 0.031, 1, 0.0),
    ("r_thigh", 2, 1, 0.074, 0.050, 1, 0.02),
    ("l_thigh", 3, 4, 0.074, 0.050, 1, 0.02),
    ("l_shin", 4, 5, 0.047, 0.031, 1, 0.0),
    ("r_forearm", 11, 10, 0.034, 0.023, 0, 0.09),
    ("r_upper", 12, 11, 0.043, 0.035, 0, 0.07),
    ("l_upper", 13, 14, 0.043, 0.035, 0, 0.07),
    ("l_forearm", 14, 15, 0.034, 0.023, 0, 0.09),
    ("r_foot", R_HEEL, R_TOE, 0.040, 0.030, 2, 0.0),
    ("l_foot", L_HEEL, L_TOE, 0.040, 0.030, 2, 0.0),
    ("r_hand", 10, R_HAND, 0.024, 0.032, 2, 0.09),
    ("l_hand", 15, L_HAND, 0.024, 0.032, 2, 0.09),
    ("neck", 7, 8, 0.050, 0.046, 2, -0.03),
)
_FROM = np.array([s[1] for s in _SEGMENTS])
_TO = np.array([s[2] for s in _SEGMENTS])
_RADII = np.array([[s[3], s[4]] for s in _SEGMENTS])
_NEARER = np.array([s[6] for s in _SEGMENTS])
_LIMBS = 8
_ARMS = np.array([4, 5, 6, 7, 10, 11])
_KINDS = np.array([s[5] for s in _SEGMENTS[:_LIMBS]])
_SECOND_HALF = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0])

_RING = np.linspace(0.0, 2 * np.pi, 12, endpoint=False)
_RING_X, _RING_Z = np.sin(_RING)[:, None], np.cos(_RING)[:, None]  # index 0 is the front, 3 the person's left


def _rings(body: Body, look: Look) -> np.ndarray:
    """Five cross-sections of the trunk, from the shoulders to the crotch (60×3)."""
    p, size, b = body.points, look.size, look.size.build
    h = size.height / 1.72
    up, low = body.chest, body.pelvis
    loose = 0.5 + 0.5 * look.top.loose
    rows = (
        (p[7] - up[:, 1] * 0.02 * h, up, 0.90 * size.shoulder, 0.062 * h),
        (p[7] - up[:, 1] * 0.36 * size.spine, up, 0.84 * size.shoulder * loose, 0.105 * b * h * loose),
        (p[WAIST], up, 0.132 * b * h * loose, 0.098 * b * h * loose),
        (p[6] + low[:, 1] * 0.03 * h, low, size.hip + 0.07 * b * h, 0.105 * b * h),
        (p[6] - low[:, 1] * 0.09 * h, low, size.hip + 0.045 * b * h, 0.080 * b * h),
    )
    out = np.empty((5, 12, 3))
    for k, (centre, frame, wide, deep) in enumerate(rows):
        out[k] = centre + (_RING_X * wide) * frame[:, 0] + (_RING_Z * deep) * frame[:, 2]
    return out.reshape(60, 3)


def _trunk_sheet(upper: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The sheet between two rings, as wide as they look from here."""
    along = lower.mean(axis=0) - upper.mean(axis=0)
    normal = np.array([-along[1], along[0]])
    a, b = upper @ normal, lower @ normal
    return np.stack([upper[a.argmax()], upper[a.argmin()], lower[b.argmax()], lower[b.argmin()]])


class _Tailor:
    """Fills shapes (already fixed) with skin or cloth, rounded by shade and covered by its pattern."""

    def __init__(self, canvas: Canvas, light: float) -> None:
        self.canvas = canvas
        self.light = light

    def plain(self, shape: np.ndarray, band: np.ndarray, colour: Colour, mark: int) -> None:
        self.canvas.fill(shape, colour, mark)
        self.canvas.fill(band, tone(colour, 0.84))

    def sew(self, sheet: np.ndarray, garment: Garment, length: float, width: float) -> None:
        """Put a garment's pattern on a sheet."""
        if garment.pattern == "plain":
            return
        rows = min(12, max(1, round(length / garment.period)))
        columns = min(8, max(1, round(width / garment.period)))
        quads = pattern(garment.pattern, rows, columns) @ sheet
        self.canvas.many(quads.reshape(-1, 4, 2), garment.second)

    def drape(self, shape: np.ndarray, sheet: np.ndarray, garment: Garment, length: float, width: float, mark: int) -> None:
        """Fill the hull of some points with cloth: trunk and skirts."""
        hull = cv2.convexHull(fixed(shape))[:, 0]
        self.plain(hull, fixed(shade_bands(sheet[None], self.light)[0]), garment.colour, mark)
        self.sew(sheet, garment, length, width)


def draw_person(canvas: Canvas, camera: Camera, body: Body, look: Look, mark: int, light: float) -> None:
    """Draw one person with marks from ``mark`` on; ``light`` is +1 if the right of the image is in shade."""
    pixels, depths = camera.project(np.concatenate([body.points, _rings(body, look)]))
    if canvas.outside(pixels, 20.0):
        return
    points, rings = pixels[:POINTS], pixels[POINTS:].reshape(5, 12, 2)
    tailor = _Tailor(canvas, light)
    h, b = look.size.height / 1.72, look.size.build

    a, z = points[_FROM], points[_TO]
    scale = camera.focal / (0.5 * (depths[_FROM] + depths[_TO]))
    radii = _RADII * (scale * h * (0.35 + 0.65 * b))[:, None]
    cover = np.where(_KINDS == 0, look.sleeve, look.leg) - _SECOND_HALF
    cover = np.clip(cover, 0.0, 1.0)
    loose = np.where(_KINDS == 0, look.top.loose, look.bottom.loose)
    ends = a[:_LIMBS] + (z - a)[:_LIMBS] * cover[:, None]
    start = radii[:_LIMBS, 0] * (1 + 0.6 * (loose - 1))
    finish = (radii[:_LIMBS, 0] + (radii[:_LIMBS, 1] - radii[:_LIMBS, 0]) * cover) * loose
    # Limbs and the sleeves over them are shaped in one go: first the 13 segments, then the 8 sleeves.
    outlines, sheets = capsules(
        np.concatenate([a, a[:_LIMBS]]),
        np.concatenate([z, ends]),
        np.concatenate([radii[:, 0], start]),
        np.concatenate([radii[:, 1], finish]),
    )
    shapes, bands = fixed(outlines), fixed(shade_bands(sheets, light))

    def limb(k: int) -> None:
        name, _, _, r0, r1, kind, _ = _SEGMENTS[k]
        own = mark + PART[name]
        if k >= _LIMBS:
            tailor.plain(shapes[k], bands[k], look.shoes if "foot" in name else look.skin, own)
            return
        if cover[k] < 0.97:
            colour = look.socks if "shin" in name and look.leg > 1.2 else look.skin
            tailor.plain(shapes[k], bands[k], colour, own)
        if cover[k] > 0.03:
            garment = look.bottom if kind else look.top
            over = len(_SEGMENTS) + k
            tailor.plain(shapes[over], bands[over], garment.colour, own)
            tailor.sew(sheets[over], garment, 0.27 * h * float(cover[k]), 2 * (r0 + r1))

    def pelvis() -> None:
        shape = rings[2:].reshape(-1, 2)
        tailor.drape(shape, _trunk_sheet(rings[2], rings[4]), look.bottom, 0.22, 0.3, mark + PART["pelvis"])

    def torso() -> None:
        own = mark + PART["torso"]
        canvas.fill(cv2.convexHull(fixed(rings[:2].reshape(-1, 2)))[:, 0], look.top.colour, own)
        sheet = _trunk_sheet(rings[0], rings[3])
        tailor.drape(rings[1:4].reshape(-1, 2), sheet, look.top, look.size.spine, 0.34, own)
        _front(canvas, camera, body, look, rings)

    def skirt() -> None:
        _skirt(camera, body, look, rings, tailor, mark + PART["skirt"])

    ball = Ball(camera, body, look)
    order: list[tuple[float, Callable[[], None]]] = []
    far = 0.5 * (depths[_FROM] + depths[_TO]) - _NEARER
    hips = float(depths[[2, 3]].mean())
    trunk = min(float(depths[[6, 7]].mean()), hips) - 0.03
    order.append((hips + 0.02, pelvis))
    order.append((trunk, torso))
    if look.skirt > 0:  # over the legs it hangs round, under the arms in front of it
        legs = far[:4] if look.skirt > 1 else far[1:3]
        over = float(min(legs.min(), hips)) - 0.02
        order.append((over, skirt))
        arms = far[_ARMS]
        far[_ARMS] = np.where(arms < trunk - 0.05, np.minimum(arms, over - 0.01), arms)
    order.extend((d, lambda k=k: limb(k)) for k, d in enumerate(far.tolist()))  # type: ignore[misc]
    skull = float(depths[HEAD])
    order.append((skull - 0.04, lambda: draw_head(canvas, ball, look, mark + PART["head"])))
    view = camera.centre - body.points[HEAD]
    hair_near = -0.06 if float(body.skull[:, 2] @ view) < 0 else 0.14
    order.append((skull + hair_near, lambda: draw_hair_behind(canvas, ball, look, mark + PART["hair"])))
    for _, part in sorted(order, key=lambda item: -item[0]):
        part()


def _skirt(camera: Camera, body: Body, look: Look, rings: np.ndarray, tailor: _Tailor, mark: int) -> None:
    """The hull of hips and hem. A hem past the knee follows the shins."""
    p = body.points
    hem = []
    for hip, knee, ankle in ((2, 1, 0), (3, 4, 5)):
        if look.skirt <= 1:
            hem.append(p[hip] + (p[knee] - p[hip]) * look.skirt)
        else:
            hem.append(p[knee])
            hem.append(p[knee] + (p[ankle] - p[knee]) * (look.skirt - 1))
    pixels, depths = camera.project(np.stack(hem))
    radius = camera.focal / depths * (0.105 * look.size.build)
    ring = (pixels[:, None] + CIRCLE[::2] * radius[:, None, None]).reshape(-1, 2)
    bottom = ring.reshape(2, -1, 2)[:, -10:].reshape(-1, 2)
    shape = np.concatenate([rings[3], ring])
    tailor.drape(shape, _trunk_sheet(rings[3], bottom), look.bottom, 0.45, 0.4, mark)


def _front(canvas: Canvas, camera: Camera, body: Body, look: Look, rings: np.ndarray) -> None:
    """What the front of a top shows: small things, but they say which way a person faces."""
    view = camera.centre - body.points[7]
    distance = float(np.linalg.norm(view))
    if float(body.chest[:, 2] @ view) < 0.2 * distance:
        return
    top, chest, waist = rings[0], rings[1], rings[2]
    left, right = 0.35 * top[2] + 0.65 * top[1], 0.35 * top[10] + 0.65 * top[11]
    neckline = np.stack([left, right, 0.55 * top[0] + 0.45 * chest[0]])
    canvas.convex(neckline, tone(look.skin, 0.93))
    pixel = camera.focal / distance
    if look.detail == "buttons":
        canvas.stroke(np.stack([chest[0], waist[0]]), tone(look.top.colour, 0.72), 1)
        for k in range(4):
            at = chest[0] + (waist[0] - chest[0]) * (k / 3)
            canvas.disc(at, 0.011 * pixel, look.accent)
    elif look.detail == "zip":
        canvas.stroke(np.stack([top[0], waist[0], rings[3][0]]), tone(look.top.colour, 0.6), 0.012 * pixel)
    elif look.detail == "collar":
        canvas.stroke(neckline[[0, 2, 1]], look.accent, 0.018 * pixel)
    elif look.detail == "print":
        corners = np.stack([chest[11], chest[1], 0.5 * (chest[1] + waist[1]), 0.5 * (chest[11] + waist[11])])
        canvas.convex(corners, look.accent)
    elif look.detail == "badge":  # over the heart: on the person's own left
        at = 0.6 * chest[1] + 0.4 * top[2]
        canvas.convex(at + 0.028 * pixel * np.array([[-1, -1.3], [1, -1.3], [1, 1.3], [-1, 1.3]]), look.accent)


def see_joints(marks: np.ndarray, joints: np.ndarray, depths: np.ndarray, mark: int) -> np.ndarray:
    """Visibility of joints: 0 outside the image, 1 hidden behind something, 2 seen.

    A joint is looked for at five pixels, because one pixel on the edge of a thin limb proves nothing. A
    shoulder or hip that lies deep behind the trunk counts as hidden by it although the trunk owns it too.
    """
    height, width = marks.shape
    x, y = joints[:, 0], joints[:, 1]
    inside = (x >= -0.5) & (y >= -0.5) & (x < width - 0.5) & (y < height - 0.5)
    offsets = np.array([[0, 0], [1.5, 0], [-1.5, 0], [0, 1.5], [0, -1.5]])
    spots = np.rint(np.clip(joints[:, None] + offsets, -1, 10_000)).astype(int)
    found = marks[np.clip(spots[..., 1], 0, height - 1), np.clip(spots[..., 0], 0, width - 1)]
    owners = np.repeat(OWNERS[:, None], 5, axis=1).copy()
    for joint, centre, slack in ((2, 6, 0.06), (3, 6, 0.06), (12, 7, 0.1), (13, 7, 0.1)):
        if depths[joint] > depths[centre] + slack:
            owners[joint][:, _TRUNK] = False
    part = found.astype(int) - mark
    mine = (part > 0) & (part < PARTS)
    joint_index = np.arange(len(joints))[:, None]
    seen = mine & owners[joint_index, np.arange(5), np.where(mine, part, 0)]
    visibility = np.where(seen.sum(axis=1) >= 2, 2, 1)
    return np.where(inside, visibility, 0).astype(np.uint8)
