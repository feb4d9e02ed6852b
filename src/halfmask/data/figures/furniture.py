"""Furniture: boxes, posts, bars and leaves, standing behind people or in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import OCCLUDER, Canvas, Colour, capsules, fixed, shade_bands, tone

_FACES = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [0, 3, 7, 4], [1, 2, 6, 5], [0, 1, 5, 4], [3, 2, 6, 7]])
_LIGHT = (0.62, 1.12, 0.74, 0.80, 0.70, 0.94)
"""Brightness of the faces: bottom, top, −x, +x, −z, +z (towards the camera)."""
_CORNERS = np.array([[-1, 0, -1], [1, 0, -1], [1, 0, 1], [-1, 0, 1], [-1, 1, -1], [1, 1, -1], [1, 1, 1], [-1, 1, 1]], float)


@dataclass(frozen=True)
class Item:
    """A piece of furniture made of boxes and bars.

    Boxes are (x, y, z, half width, height, half depth) and bars (x0, y0, z0, x1, y1, z1, radius), in metres,
    around the item's own place; both carry a tone that varies the item's colour.
    """

    x: float
    z: float
    colour: Colour
    boxes: tuple[tuple[float, float, float, float, float, float, float], ...] = ()
    bars: tuple[tuple[float, float, float, float, float, float, float, float], ...] = ()
    turn: float = 0.0
    """Degrees about the vertical."""

    @cached_property
    def group(self) -> Group:
        """The item ready to be drawn."""
        return Group((self,))

    def draw(self, canvas: Canvas, camera: Camera, mark: int = OCCLUDER) -> None:
        """Draw the item, claiming its pixels."""
        self.group.draw(canvas, camera, mark)


class Group:
    """Items that never move against each other, with all their geometry in a few arrays.

    They are projected together: for shapes this small, numpy costs by the call and not by the number.
    """

    def __init__(self, items: tuple[Item, ...]) -> None:
        ends, corners = [np.zeros((0, 3))], [np.zeros((0, 8, 3))]
        radii: list[float] = []
        self._bars: list[list[tuple[Colour, Colour | None]]] = []
        self._boxes: list[list[list[Colour]]] = []
        for item in items:
            c, s = np.cos(np.deg2rad(item.turn)), np.sin(np.deg2rad(item.turn))
            spin = np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
            place = np.array([item.x, 0.0, item.z])
            ends.append(np.array([bar[:6] for bar in item.bars], float).reshape(-1, 3) @ spin + place)
            sizes = np.array(item.boxes, float).reshape(-1, 7)
            corners.append((_CORNERS * sizes[:, None, [3, 4, 5]] + sizes[:, None, :3]) @ spin + place)
            radii.extend(bar[6] for bar in item.bars)
            tones = [tone(item.colour, bar[7]) for bar in item.bars]
            self._bars.append([(t, tone(t, 0.85) if bar[6] > 0.02 else None) for t, bar in zip(tones, item.bars, strict=True)])
            self._boxes.append([[tone(item.colour, box[6] * f) for f in _LIGHT] for box in item.boxes])
        self._radii = np.array(radii)
        self._ends = len(radii) * 2
        solid = np.concatenate(corners)
        self._points = np.concatenate([*ends, solid.reshape(-1, 3)])
        self._middles = solid[:, _FACES].mean(axis=2)
        self._normals = self._middles - solid.mean(axis=1, keepdims=True)

    def draw(self, canvas: Canvas, camera: Camera, mark: int | None = OCCLUDER) -> None:
        """Draw the items in their order, claiming their pixels unless ``mark`` is None."""
        if not len(self._points):
            return
        pixels, depths = camera.project(self._points)
        if canvas.outside(pixels, 30.0):
            return
        n = self._ends
        radii = self._radii * camera.focal
        outlines, sheets = capsules(pixels[0:n:2], pixels[1:n:2], radii / depths[0:n:2], radii / depths[1:n:2])
        shapes, bands = fixed(outlines), fixed(shade_bands(sheets, 1.0))
        seen = (self._normals * (camera.centre - self._middles)).sum(axis=2) > 0
        visible = [np.flatnonzero(row).tolist() for row in seen]
        faces = fixed(pixels[n:].reshape(-1, 8, 2)[:, _FACES])
        bar = box = 0
        for bars, boxes in zip(self._bars, self._boxes, strict=True):
            for colour, shade in bars:
                canvas.fill(shapes[bar], colour, mark)
                if shade is not None:
                    canvas.fill(bands[bar], shade)
                bar += 1
            for colours in boxes:
                for face in visible[box]:
                    canvas.fill(faces[box, face], colours[face], mark)
                box += 1


def table(x: float, z: float, colour: Colour, width: float, height: float, turn: float = 0.0) -> Item:
    """A table: it hides what is behind its top, and its legs look like legs."""
    w, d = width / 2, 0.3
    legs = tuple(
        (sx * (w - 0.05), 0.0, sz * d * 0.85, sx * (w - 0.05), height, sz * d * 0.85, 0.025, 0.8) for sz in (-1, 1) for sx in (-1, 1)
    )
    return Item(x, z, colour, ((0, height - 0.05, 0, w, 0.05, d, 1.0),), legs, turn)


def cabinet(x: float, z: float, colour: Colour, width: float, height: float, turn: float = 0.0) -> Item:
    """A closed box with two paler doors."""
    boxes = [(0.0, 0.0, 0.0, width / 2, height, 0.22, 0.9)]
    for side in (-1, 1):
        boxes.append((side * width / 4, 0.06, 0.225, width / 4 - 0.03, height - 0.12, 0.005, 1.1))
    return Item(x, z, colour, tuple(boxes), (), turn)


def post(x: float, z: float, colour: Colour, radius: float, height: float, lean: float = 0.0) -> Item:
    """A pole, pipe, drip stand or pillar: as long and thin as a limb."""
    bars = [(0.0, 0.0, 0.0, lean, height, 0.0, radius, 1.0)]
    if radius < 0.03:
        bars.append((-0.18, 0.03, 0.0, 0.18, 0.03, 0.1, 0.02, 0.8))
        bars.append((lean - 0.12, height, 0.0, lean + 0.12, height, 0.0, 0.015, 0.9))
        bars.append((lean - 0.1, height - 0.28, 0.0, lean - 0.1, height - 0.1, 0.0, 0.045, 1.3))
    return Item(x, z, colour, (), tuple(bars))


def rail(x: float, z: float, colour: Colour, width: float, height: float, turn: float = 0.0) -> Item:
    """A bed rail or walking frame: bars one sees people through."""
    n = max(3, int(width / 0.16))
    bars = [(k, 0.1, 0.0, k, height, 0.0, 0.013, 1.0) for k in np.linspace(-width / 2, width / 2, n).tolist()]
    for y in (0.12, height * 0.6, height):
        bars.append((-width / 2, y, 0.0, width / 2, y, 0.0, 0.017, 1.1))
    return Item(x, z, colour, (), tuple(bars), turn)


def plant(x: float, z: float, colour: Colour, height: float, spread: np.ndarray) -> Item:
    """A pot with leaves fanning out of it; ``spread`` (N×2) gives where they end."""
    bars = []
    for k, (dx, dy) in enumerate(spread.tolist()):
        bars.append((0.0, 0.3, 0.0, 0.5 * dx, 0.3 + 0.7 * height * dy, 0.05, 0.012, 0.7))
        bars.append((0.5 * dx, 0.3 + 0.7 * height * dy, 0.05, dx, height * dy + 0.1, 0.1, 0.045, 0.8 + 0.07 * (k % 5)))
    return Item(x, z, colour, ((0.0, 0.0, 0.0, 0.14, 0.32, 0.14, 1.5),), tuple(bars))


def chair(x: float, z: float, colour: Colour, seat: float, turn: float) -> tuple[Item, Item]:
    """A chair in two pieces, seat and back: the back is in front when the sitter faces away."""
    legs = tuple((sx * 0.19, 0.0, sz * 0.19, sx * 0.19, seat, sz * 0.19, 0.018, 0.75) for sx in (-1, 1) for sz in (-1, 1))
    lower = Item(x, z, colour, ((0, seat - 0.06, 0, 0.22, 0.06, 0.22, 1.0),), legs, turn)
    uprights = tuple((sx * 0.2, seat, -0.24, sx * 0.2, seat + 0.5, -0.3, 0.016, 0.8) for sx in (-1, 1))
    upper = Item(x, z, colour, ((0, seat + 0.25, -0.28, 0.21, 0.24, 0.02, 1.05),), uprights, turn)
    return lower, upper


def bed(x: float, z: float, sheet: Colour, height: float, turn: float) -> Item:
    """A bed along the turned z axis, with its head at −z and a pillow on it."""
    boxes = (
        (0.0, 0.15, 0.0, 0.48, height - 0.27, 1.05, 0.6),
        (0.0, height - 0.12, 0.0, 0.46, 0.12, 1.03, 1.0),
    )
    return Item(x, z, sheet, boxes, (), turn)
