"""Drawing a portrait: from the shoulders to what is held before the face, each thing over the last."""

from __future__ import annotations

import cv2
import numpy as np

from halfmask.data.figures.draw import CIRCLE, Canvas, Colour, capsules, mix, pattern, tone
from halfmask.data.figures.faceshape import hull, inside, rotation
from halfmask.data.figures.portrait import EYE_LEVEL, Portrait

HEAD = 1
"""Mark of what is lit as a head."""
_INK: Colour = (30, 24, 22)


def draw_portrait(canvas: Canvas, portrait: Portrait, sun: np.ndarray, pose: tuple[float, float, float]) -> None:
    """Draw a person's head and shoulders, lit from the direction ``sun`` (towards the light, as the camera sees it)."""
    look = portrait.features.look
    px = portrait.view.scale
    _behind(canvas, portrait)
    _shoulders(canvas, portrait, pose)
    for side, near in zip((-1.0, 1.0), portrait.near, strict=True):
        if not near:
            _ear(canvas, portrait, side)
            if portrait.features.locks:
                canvas.convex(portrait.lock(side), tone(look.hair, 0.8), HEAD)
    canvas.convex(portrait.skull, tone(look.skin, 0.93), HEAD)
    if look.hair_style != "bald":
        if look.hair_style == "curly":
            for k, spot in enumerate(portrait.hair[::2]):
                canvas.disc(spot, 0.13 * px, tone(look.hair, 0.9 + 0.2 * (k % 2)), HEAD)
        canvas.convex(portrait.hair, look.hair, HEAD)
    face = portrait.skin(-1.0, 0.9 if look.hair_style == "bald" else 0.82 - 0.35 * look.hairline)
    if face is not None:
        canvas.convex(face, look.skin, HEAD)
    for side, near in zip((-1.0, 1.0), portrait.near, strict=True):
        if near:
            _ear(canvas, portrait, side)
    _beard(canvas, portrait)
    for side in (-1.0, 1.0):
        _eye(canvas, portrait, side)
        _brow(canvas, portrait, side)
    _mouth(canvas, portrait)
    _mole(canvas, portrait)
    far = -1.0 if portrait.view.turn.T[0, 2] > 0 else 1.0
    if look.glasses:
        _lens(canvas, portrait, far)
    _nose(canvas, portrait, sun)
    if look.glasses:
        _lens(canvas, portrait, -far)
        _bridge(canvas, portrait)
    for kind, outline in portrait.covers:
        colour = {"hair": tone(look.hair, 1.08), "cap": look.accent, "peak": tone(look.accent, 0.78)}[kind]
        canvas.convex(outline, colour, HEAD)
    _light(canvas, portrait, sun)


def _behind(canvas: Canvas, portrait: Portrait) -> None:
    """Hair that is seen behind the neck, or above the head."""
    look, view = portrait.features.look, portrait.view
    if look.hair_style == "long":
        back = np.array(
            [(-0.8, 0.3, -0.3), (0.8, 0.3, -0.3), (0.95, -1.4, -0.5), (-0.95, -1.4, -0.5), (0.6, -1.5, -0.9), (-0.6, -1.5, -0.9)]
        )
        canvas.convex(hull(view.project(back)), tone(look.hair, 0.78), HEAD)
    elif look.hair_style == "bun":
        canvas.disc(view.project(np.array([[0.0, 1.02, -0.75]]))[0], 0.36 * view.scale, tone(look.hair, 0.88), HEAD)


def _shoulders(canvas: Canvas, portrait: Portrait, pose: tuple[float, float, float]) -> None:
    """The neck, and clothes as far down as the picture reaches. The body turns less than the head."""
    look, view = portrait.features.look, portrait.view
    px = view.scale
    body = rotation(0.25 * pose[0], 0.0, 0.4 * pose[2])
    wide = 1.65 * look.size.build**0.5
    base = view.turn @ np.array([0.0, -0.55, -0.25])  # where the neck enters the skull
    drop = base - np.array([0.0, 0.35, 0.0])
    joints = np.array([[-wide, -1.0, 0.0], [wide, -1.0, 0.0], [-0.95 * wide, -5.0, 0.1], [0.95 * wide, -5.0, 0.1], [0.0, -0.6, -0.05]])
    corners = view.project(joints @ body.T + drop, np.eye(3))
    top = look.top
    thick = np.array([0.42 * px])
    across, _ = capsules(corners[:1], corners[1:2], thick, thick)
    neck_foot = corners[4] + np.array([0.0, 0.2 * px])
    chest = (corners[:1] + corners[1:2]) / 2 + np.array([0.0, 0.3 * px])
    slope, _ = capsules(neck_foot[None], chest, 1.5 * thick, 2.9 * thick)
    trunk = corners[[0, 1, 3, 2]] + np.array([[-0.42, 0.1], [0.42, 0.1], [0.42, 0.0], [-0.42, 0.0]]) * px
    for outline in (slope[0], across[0], trunk):
        canvas.convex(outline, top.colour)
    if top.pattern != "plain":
        rows, columns = max(3, round(0.4 / top.period)), max(3, round(0.4 / top.period))
        sheet = trunk[[0, 1, 3, 2]]
        canvas.many((pattern(top.pattern, rows, columns) @ sheet).reshape(-1, 4, 2), top.second)
    if look.detail in ("buttons", "zip", "collar"):
        middle = (corners[0] + corners[1]) / 2
        canvas.stroke(np.stack([neck_foot, middle, (corners[2] + corners[3]) / 2]), tone(top.second, 0.8), 0.05 * px)
    root = view.project(base[None], np.eye(3))
    column, _ = capsules(root, neck_foot[None], np.array([0.4 * px]), np.array([0.43 * px]))
    if look.detail in ("collar", "badge", "buttons"):
        collar, _ = capsules(0.25 * root + 0.75 * neck_foot, neck_foot[None], 1.25 * thick, 1.35 * thick)
        canvas.convex(collar[0], tone(top.second, 0.95))
    canvas.convex(column[0], tone(look.skin, 0.72))


def _ear(canvas: Canvas, portrait: Portrait, side: float) -> None:
    outline = portrait.ear(side)
    canvas.convex(outline, tone(portrait.features.look.skin, 0.9), HEAD)
    middle = outline.mean(axis=0)
    canvas.convex(middle + 0.5 * (outline - middle), tone(portrait.features.look.skin, 0.72), HEAD)


def _beard(canvas: Canvas, portrait: Portrait) -> None:
    look = portrait.features.look
    if look.beard <= 0:
        return
    colour = mix(look.skin, look.hair, 0.6 + 0.35 * look.beard)
    for low, high, reach in ((-1.0, -0.62 + 0.12 * look.beard, 0.95), (-0.9, -0.38, 0.42 + 0.3 * look.beard)):
        outline = portrait.skin(low, high, reach)
        if outline is not None:
            canvas.convex(outline, colour, HEAD)


def _eye(canvas: Canvas, portrait: Portrait, side: float) -> None:
    f, e = portrait.features, portrait.expression
    px = portrait.view.scale
    upper, lower = portrait.lids(side)
    white = portrait.patch(np.concatenate([upper, lower[::-1]]))
    if white is None:
        return
    if e.eyes > 0.3:
        socket = portrait.patch(np.concatenate([upper + np.array([0.0, 0.05]), lower[::-1] - np.array([0.0, 0.035])]))
        if socket is not None:
            canvas.convex(hull(socket), tone(f.look.skin, 0.86))
        canvas.convex(white, mix(f.look.skin, (250, 250, 248), 0.85))
        for size, colour in ((0.09, f.look.eyes), (0.042, (14.0, 12.0, 14.0))):
            ring = np.array([side * f.eye_gap + 0.07 * e.gaze[0], EYE_LEVEL + 0.02 + 0.03 * e.gaze[1]]) + size * CIRCLE
            ring[:, 1] = np.clip(
                ring[:, 1], np.interp(ring[:, 0], lower[:, 0], lower[:, 1]), np.interp(ring[:, 0], upper[:, 0], upper[:, 1])
            )
            iris = portrait.patch(ring)
            if iris is not None:
                canvas.convex(hull(iris), colour)
    else:
        canvas.convex(white, tone(f.look.skin, 0.9))
    lash = portrait.patch(upper if e.eyes > 0.3 else lower)
    if lash is not None:
        canvas.stroke(lash, mix(f.look.skin, _INK, 0.85), 0.035 * px)


def _brow(canvas: Canvas, portrait: Portrait, side: float) -> None:
    f = portrait.features
    line = portrait.brow(side)
    thick = 0.022 + 0.028 * f.look.brow
    taper = np.linspace(0.55, 1.1, 7) if side < 0 else np.linspace(1.1, 0.55, 7)
    rise = np.stack([np.zeros(7), thick * taper], axis=1)
    colour = mix(f.look.hair, _INK, 0.55)
    upper, lower = line + rise, line - rise
    for k in range(0, 6, 2):  # in convex pieces: a brow is an arch
        piece = portrait.patch(np.concatenate([upper[k : k + 3], lower[k : k + 3][::-1]]), 1.005)
        if piece is not None:
            canvas.convex(hull(piece), colour)


def _mouth(canvas: Canvas, portrait: Portrait) -> None:
    f, e = portrait.features, portrait.expression
    px = portrait.view.scale
    outer_upper, inner_upper, inner_lower, outer_lower = portrait.lips()
    for a, b, colour in (
        (outer_upper, inner_upper, tone(f.look.lips, 0.9)),
        (inner_upper, inner_lower, (70.0, 26.0, 30.0)),
        (inner_lower, outer_lower, f.look.lips),
    ):
        outline = portrait.patch(np.concatenate([a, b[::-1]]))
        if outline is not None and (a is not inner_upper or e.mouth > 0.12):
            cv2.fillPoly(canvas.image, [np.rint(outline * 16).astype(np.int32)], colour, cv2.LINE_AA, 4)
    if e.mouth > 0.25:
        teeth = portrait.patch(np.concatenate([inner_upper[2:7], (inner_upper - 0.3 * (inner_upper - inner_lower))[2:7][::-1]]))
        if teeth is not None:
            canvas.convex(hull(teeth), (236, 232, 222))
    elif e.mouth <= 0.12:
        line = portrait.patch(inner_upper)
        if line is not None:
            canvas.stroke(line, mix(f.look.lips, _INK, 0.6), 0.025 * px)


def _mole(canvas: Canvas, portrait: Portrait) -> None:
    f = portrait.features
    if f.mole is not None:
        spot = portrait.patch(np.array(f.mole) + 0.032 * CIRCLE)
        if spot is not None:
            canvas.convex(hull(spot), mix(f.look.skin, _INK, 0.7))


def _nose(canvas: Canvas, portrait: Portrait, sun: np.ndarray) -> None:
    """Three facets, each as bright as it looks towards the light, and a round tip."""
    f, view = portrait.features, portrait.view
    points = portrait.nose
    if portrait.facing[14] <= -0.2:
        return
    pixels = view.project(points)
    turned = points @ view.turn.T
    facets = []
    for corners in ((0, 1, 2), (2, 3, 0), (1, 4, 2), (2, 4, 3)):
        a, b, c = turned[list(corners)]
        normal = np.cross(b - a, c - a)
        normal = normal / max(1e-9, float(np.linalg.norm(normal)))
        if float(normal @ (np.array([0.0, 0.0, view.distance]) - a)) > 0:
            facets.append((float(a[2] + b[2] + c[2]), corners, normal, 4 in corners))
    for _, corners, normal, under in sorted(facets, key=lambda facet: facet[0]):
        bright = (0.78 if under else 0.9) + 0.22 * float(normal @ sun)
        canvas.convex(pixels[list(corners)], tone(f.look.skin, bright), HEAD)
    ball = view.project(points[2:3] - np.array([0.0, 0.0, 0.055]))[0]  # its foremost point is the tip itself
    canvas.disc(ball, 0.06 * view.scale, f.look.skin, HEAD)
    for side in (-1.0, 1.0):
        wing = pixels[1 if side < 0 else 3]
        if portrait.facing[13 if side < 0 else 15] > 0.0:
            canvas.disc(0.45 * wing + 0.55 * pixels[4], 0.035 * view.scale, mix(f.look.skin, _INK, 0.6))
            canvas.stroke(
                np.stack([wing + 0.25 * (pixels[0] - wing), wing, 0.5 * wing + 0.5 * pixels[4]]),
                tone(f.look.skin, 0.68),
                0.025 * view.scale,
            )


def _frame(portrait: Portrait, places: np.ndarray) -> np.ndarray:
    """Points of the plane of the glasses, a little bent round the face."""
    z = portrait.features.shape.front(np.array([[0.0, EYE_LEVEL]]))[0][0, 2] + 0.07 - 0.35 * places[:, 0] ** 2
    return np.column_stack([places, z])


def _lens(canvas: Canvas, portrait: Portrait, side: float) -> None:
    """One lens with its rim and, on the near side, the arm that goes to the ear."""
    f, view = portrait.features, portrait.view
    half, high, power = f.frame
    ring = np.sign(CIRCLE) * np.abs(CIRCLE) ** (2.0 / power) * (half, high)
    places = ring + np.array([side * (f.eye_gap + 0.01), EYE_LEVEL - 0.02])
    pixels = view.project(_frame(portrait, places))
    points, normals = f.shape.front(places)
    face = portrait.skin(-1.0, 0.9)
    seen = view.facing(points, normals) > 0.0
    if face is not None:
        seen |= np.array([not inside(pixel, face) for pixel in pixels])
    width = max(1.0, 0.055 * view.scale)
    if seen.all():
        canvas.glaze(hull(pixels), (235.0, 245.0, 250.0), 0.16)
        canvas.stroke(pixels, f.frame_colour, width, closed=True)
    else:
        for k in range(len(pixels)):
            if seen[k] and seen[k - 1]:
                canvas.stroke(pixels[[k - 1, k]], f.frame_colour, width)
    hinge = _frame(portrait, np.array([[side * (f.eye_gap + half), EYE_LEVEL + 0.04]]))
    ear = portrait.ear_point(side) + np.array([0.0, 0.12, 0.05])
    if side * float(view.turn.T[0, 2]) > 0.02:
        canvas.stroke(view.project(np.concatenate([hinge, ear[None]])), f.frame_colour, width)


def _bridge(canvas: Canvas, portrait: Portrait) -> None:
    f = portrait.features
    inner = f.eye_gap + 0.01 - f.frame[0]
    places = np.array([[-inner, EYE_LEVEL + 0.02], [0.0, EYE_LEVEL + 0.06], [inner, EYE_LEVEL + 0.02]])
    points = _frame(portrait, places) + np.array([[0, 0, 0.0], [0, 0, 0.04], [0, 0, 0.0]])
    seen = portrait.view.facing(*f.shape.front(places)) > -0.1
    if seen.sum() > 1:
        canvas.stroke(portrait.view.project(points[seen]), f.frame_colour, max(1.0, 0.05 * portrait.view.scale))


def _light(canvas: Canvas, portrait: Portrait, sun: np.ndarray) -> None:
    """Make the head round: what is turned from the light gets darker, smoothly, over skin and hair alike."""
    low, high = portrait.skull.min(axis=0), portrait.skull.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2 * 1.12
    x0, y0 = np.floor(np.maximum(middle - 1.3 * half, 0)).astype(int).tolist()
    x1, y1 = np.ceil(np.minimum(middle + 1.3 * half, (canvas.width, canvas.height))).astype(int).tolist()
    if x1 - x0 < 2 or y1 - y0 < 2:
        return
    u = ((x0 + (np.arange(14) + 0.5) / 14 * (x1 - x0) - middle[0]) / half[0])[None, :]
    v = ((y0 + (np.arange(14) + 0.5) / 14 * (y1 - y0) - middle[1]) / half[1])[:, None]
    radius = np.sqrt(u**2 + v**2)
    shrink = np.minimum(1.0, 0.98 / np.maximum(radius, 1e-6))
    u, v = u * shrink, v * shrink
    depth = np.sqrt(np.maximum(0.0, 1.0 - u**2 - v**2))
    bright = 0.62 + 0.5 * np.clip(u * sun[0] - v * sun[1] + depth * sun[2], 0.0, 1.0)
    shade = cv2.resize((bright * 128).astype(np.uint8), (x1 - x0, y1 - y0), interpolation=cv2.INTER_LINEAR)
    region = canvas.image[y0:y1, x0:x1]
    lit = cv2.multiply(region, cv2.cvtColor(shade, cv2.COLOR_GRAY2RGB), scale=1.0 / 128)
    cv2.copyTo(lit, (canvas.marks[y0:y1, x0:x1] == HEAD).astype(np.uint8), region)
