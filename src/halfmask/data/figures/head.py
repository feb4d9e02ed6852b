"""Heads: an ellipsoid with hair and a face that turns with it.

The face is what tells front from back, and so the right hand from the left. It is drawn where it would be on
the ellipsoid, and vanishes when the head turns away; blurring it away therefore costs accuracy, as it should.
"""

from __future__ import annotations

from math import sqrt

import cv2
import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import CIRCLE, Canvas, mix, tone
from halfmask.data.figures.skeleton import HEAD, Body
from halfmask.data.figures.subjects import Look


def _cone(axis: tuple[float, float, float], degrees: float) -> np.ndarray:
    """Sixteen unit vectors at an angle round an axis: the edge of a patch on a ball."""
    a = np.asarray(axis) / np.linalg.norm(axis)
    x = np.cross([0.0, 1.0, 0.0], a)
    x = x / np.linalg.norm(x)
    y = np.cross(a, x)
    phi = np.linspace(0.0, 2 * np.pi, 16, endpoint=False)
    r = np.deg2rad(degrees)
    rim: np.ndarray = np.cos(r) * a + np.sin(r) * (np.cos(phi)[:, None] * x + np.sin(phi)[:, None] * y)
    return rim


_BEARD = _cone((0.0, -0.8, 0.75), 40.0)
_FACES = tuple(_cone((0.0, -0.62, 0.85), 84.0 - 0.9 * k) for k in range(20))
_PEAK = _cone((0.0, 0.75, 0.75), 30.0)


class Ball:
    """The ellipsoid of a head as the camera sees it."""

    def __init__(self, camera: Camera, body: Body, look: Look) -> None:
        size = look.size
        self.radii = np.array([0.34 * size.head, 0.5 * size.head, 0.42 * size.head])
        self.centre, jacobian = camera.jacobian(body.points[HEAD])
        self.map: np.ndarray = jacobian @ (body.skull * self.radii)
        (a, b, c), (d, e, f) = self.map.tolist()
        cross = (b * f - c * e, c * d - a * f, a * e - b * d)
        towards = np.array(cross) / max(1e-9, sqrt(cross[0] ** 2 + cross[1] ** 2 + cross[2] ** 2))
        view = camera.centre - body.points[HEAD]
        if float((body.skull * self.radii @ towards) @ view) < 0:
            towards = -towards
        self.towards = towards
        # A ball mapped by M looks like a circle mapped by the root of M·Mᵀ, here Cholesky's.
        xx, xy, yy = a * a + b * b + c * c, a * d + b * e + c * f, d * d + e * e + f * f
        side = sqrt(xx)
        self.root = np.array([[side, 0.0], [xy / side, sqrt(max(0.0, yy - xy * xy / xx))]])
        self.pixels = sqrt((xx + yy) / 2) / float(self.radii[1])
        """Pixels per metre."""

    def silhouette(self, grow: float = 1.0) -> np.ndarray:
        """The outline of the ball."""
        return self.centre + grow * CIRCLE @ self.root.T

    def at(self, direction: tuple[float, float, float] | np.ndarray, out: float = 1.0) -> np.ndarray:
        """The pixel of a direction from the centre, given in the head's own frame."""
        pixel: np.ndarray = self.centre + self.map @ np.asarray(direction) * out
        return pixel

    def seen(self, direction: tuple[float, float, float]) -> bool:
        """Whether the surface there faces the camera."""
        return float(np.dot(direction, self.towards)) > 0.12

    def patch(self, rim: np.ndarray, out: float = 1.0) -> np.ndarray | None:
        """The visible part of a patch with the given rim, or None if it is turned away."""
        facing = rim @ self.towards
        axis = rim.mean(axis=0)
        if float(facing.max()) <= 0.02:
            return None
        if float(axis @ self.towards) < 0.0:  # all that shows is a sliver between the rim and the outline
            outer = axis - (axis @ self.towards) * self.towards
            outer /= max(1e-9, float(np.linalg.norm(outer)))
            sliver = np.concatenate([rim[facing > 0], outer[None]]) @ self.map.T
            hull: np.ndarray = cv2.convexHull((self.centre + out * sliver).astype(np.float32))[:, 0]
            return hull
        hidden = np.minimum(facing, 0.0)[:, None] * self.towards
        clamped = rim - hidden
        clamped /= np.linalg.norm(clamped, axis=1, keepdims=True)
        pixels: np.ndarray = self.centre + out * clamped @ self.map.T
        return pixels


def draw_hair_behind(canvas: Canvas, ball: Ball, look: Look, mark: int) -> None:
    """Hair that hangs down or is tied up behind the head."""
    if look.hair_style == "long":
        back = [(-0.95, 0.1, -0.2), (-0.85, -1.2, -0.55), (0.85, -1.2, -0.55), (0.95, 0.1, -0.2)]
        canvas.convex(np.stack([ball.at(d) for d in back]), tone(look.hair, 0.88), mark)
    elif look.hair_style == "bun":
        canvas.disc(ball.at((0.0, 0.75, -0.95)), 0.05 * ball.pixels, tone(look.hair, 0.9), mark)


def draw_head(canvas: Canvas, ball: Ball, look: Look, mark: int) -> None:
    """The head, its hair and its face."""
    bald = look.hair_style == "bald"
    curly = look.hair_style == "curly"
    crown = tone(look.skin, 0.96) if bald else (look.accent if look.hair_style == "cap" else look.hair)
    up = ball.map @ np.array([0.0, 0.0 if bald else 0.07, 0.0 if bald else -0.05])  # hair sits above, not below
    canvas.convex(up + ball.silhouette(1.0 if bald else (1.14 if curly else 1.04)), crown, mark)
    for x in (-1.0, 1.0):
        if ball.seen((x, -0.1, 0.25)):
            canvas.disc(ball.at((x, -0.1, 0.0)), 0.022 * ball.pixels, tone(look.skin, 0.88), mark)
    face = ball.patch(_FACES[int(look.hairline * 40)])
    if face is not None:
        canvas.convex(face, look.skin)
        _features(canvas, ball, look)
    if look.hair_style == "cap":
        peak = ball.patch(_PEAK, 1.12)
        if peak is not None:
            canvas.convex(peak, tone(look.accent, 0.8))


def _features(canvas: Canvas, ball: Ball, look: Look) -> None:
    px = ball.pixels
    if look.beard > 0:
        beard = ball.patch(_BEARD, 1.0)
        if beard is not None:
            canvas.convex(beard, mix(look.skin, look.hair, 0.55 + 0.4 * look.beard))
    dark = mix(look.hair, (30, 24, 22), 0.6)
    gap = look.eye_gap
    for side in (-1.0, 1.0):
        if not ball.seen((side * gap, 0.05, 0.9)):
            continue
        eye = ball.at((side * gap, 0.05, 0.92))
        canvas.disc(eye, look.eye_size * 1.35 * px, mix(look.skin, (250, 250, 248), 0.75))
        canvas.disc(eye, look.eye_size * 0.85 * px, look.eyes)
        brow = np.stack([ball.at((side * (gap - 0.16), 0.24, 0.93)), ball.at((side * (gap + 0.17), 0.22, 0.85))])
        canvas.stroke(brow, dark, 0.009 * look.brow * px)
        if look.glasses:
            rim = eye + 0.026 * px * CIRCLE[::2]
            canvas.stroke(rim, (40, 40, 46), 1, closed=True)
    if ball.seen((0.0, -0.1, 1.0)):
        tip = np.stack([ball.at((0.0, 0.02, 1.0)), ball.at((0.0, -0.26, 1.0), 1.0 + 0.12 * look.nose)])
        canvas.stroke(tip, tone(look.skin, 0.74), 0.012 * look.nose * px)
    if ball.seen((0.0, -0.5, 0.85)):
        mouth = np.stack(
            [
                ball.at((-look.mouth, -0.5, 0.84)),
                ball.at((0.0, -0.54, 0.87)),
                ball.at((look.mouth, -0.5, 0.84)),
            ]
        )
        canvas.stroke(mouth, look.lips, 0.012 * px)
