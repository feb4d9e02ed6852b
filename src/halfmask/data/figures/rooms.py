"""Rooms: a papered wall, a floor and furniture, the same each time their number comes up.

Wall and floor are painted once as flat textures and then seen through the camera, so they may be as busy as a
real room: shelves, curtains, radiators and coats that from afar look like limbs and clothes.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.figures.camera import Camera
from halfmask.data.figures.draw import SHIFT, Canvas, Colour, fixed, mix, tone
from halfmask.data.figures.furniture import Group, Item, cabinet, plant, post, rail, table
from halfmask.data.figures.populations import Population, choose, within
from halfmask.data.figures.subjects import WALL_HUES, hsv

WALL = (7.0, 3.2)
"""Metres of painted wall; beyond, the texture is mirrored."""
FLOOR = (7.0, 5.0)
WALL_PX = 100.0
FLOOR_PX = 80.0


@dataclass(frozen=True)
class Room:
    """A room: textures, furniture behind the people, and colours for what is put in front of them."""

    kind: str
    depth: float
    """Metres from the people to the back wall."""
    wall: np.ndarray
    floor: np.ndarray
    items: Group
    colours: tuple[Colour, ...]

    def paint(self, image: np.ndarray, camera: Camera) -> None:
        """Paint wall and floor into an image."""
        height, width = image.shape[:2]
        z = -self.depth
        wall = camera.plane(
            np.array([-WALL[0] / 2, WALL[1], z]),
            np.array([1 / WALL_PX, 0, 0]),
            np.array([0, -1 / WALL_PX, 0]),
        )
        edge, _ = camera.project(np.array([[-WALL[0], 0.0, z], [WALL[0], 0.0, z]]))
        slope = (edge[1, 1] - edge[0, 1]) / (edge[1, 0] - edge[0, 0])
        y0 = float(edge[0, 1] - slope * edge[0, 0])
        y1 = y0 + slope * width
        rows = int(np.clip(np.ceil(max(y0, y1)) + 2, 0, height))
        if rows > 0:
            seen = cv2.warpPerspective(self.wall, wall, (width, rows), borderMode=cv2.BORDER_REFLECT)
            cv2.cvtColor(seen, cv2.COLOR_RGBA2RGB, dst=image[:rows])
        top = int(np.clip(np.floor(min(y0, y1)) - 1, 0, height))
        if top >= height:
            return
        floor = camera.window(0.0, float(top), 1.0).plane(
            np.array([-FLOOR[0] / 2, 0.0, z]),
            np.array([1 / FLOOR_PX, 0, 0]),
            np.array([0, 0, 1 / FLOOR_PX]),
        )
        tile = cv2.warpPerspective(self.floor, floor, (width, height - top), borderMode=cv2.BORDER_REFLECT)
        tile = cv2.cvtColor(tile, cv2.COLOR_RGBA2RGB)
        if rows > top:  # the few rows where wall and floor meet at a slant
            corners = np.array([[-8, y0 - 8 * slope], [width + 8, y1 + 8 * slope], [width + 8, height + 8], [-8, height + 8]])
            below = np.zeros((rows - top, width), np.uint8)
            cv2.fillConvexPoly(below, fixed(corners - [0, top]), 255, cv2.LINE_8, SHIFT)
            cv2.copyTo(tile[: rows - top], below, image[top:rows])
        image[rows:] = tile[rows - top :]


def board(size: tuple[float, float], scale: float, colour: Colour) -> np.ndarray:
    """A texture of one colour. It has a fourth, unused channel: OpenCV warps four twice as fast as three."""
    image = np.empty((int(size[1] * scale), int(size[0] * scale), 4), np.uint8)
    cv2.rectangle(image, (0, 0), (image.shape[1], image.shape[0]), colour, -1)
    return image


def blotches(rng: np.random.Generator, image: np.ndarray, coarse: float, fine: float) -> None:
    """Uneven paint and dirt, in place."""
    h, w = image.shape[:2]
    small = (w // 6, h // 6)
    low = cv2.resize(rng.normal(0.0, coarse, (6, 10)).astype(np.float32), small, interpolation=cv2.INTER_CUBIC)
    dirt = 128.0 + 3.0 * (low + rng.standard_normal((small[1], small[0]), dtype=np.float32) * fine)
    grey = np.clip(dirt, 0, 255).astype(np.uint8)
    noise = cv2.resize(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGBA), (w, h), interpolation=cv2.INTER_LINEAR)
    cv2.addWeighted(image, 1.0, noise, 1 / 3, -128.0 / 3, dst=image)


def _paper(rng: np.random.Generator, canvas: Canvas, base: Colour, kind: str) -> None:
    """The wall's own pattern."""
    h, w = canvas.height, canvas.width
    other = tone(base, within(rng, (0.8, 1.12)))
    step = int(rng.integers(12, 48))
    style = choose(
        rng,
        {"plain": 0.25, "brick": 0.5, "slabs": 0.25}
        if kind == "street"
        else {"plain": 0.3, "stripes": 0.25, "checks": 0.15, "panels": 0.3},
    )
    if style == "stripes":
        for x in range(0, w, 2 * step):
            cv2.rectangle(canvas.image, (x, 0), (x + step, h), other, -1)
    elif style == "checks":
        for y in range(0, h, step):
            for x in range((y // step % 2) * step, w, 2 * step):
                cv2.rectangle(canvas.image, (x, y), (x + step, y + step), other, -1)
    elif style == "brick":
        line = tone(base, 0.78)
        for k, y in enumerate(range(0, h, 14)):
            cv2.line(canvas.image, (0, y), (w, y), line, 2)
            for x in range((k % 2) * 16, w, 32):
                cv2.line(canvas.image, (x, y), (x, y + 14), line, 2)
    elif style == "slabs":
        for x in range(0, w, 3 * step):
            cv2.line(canvas.image, (x, 0), (x, h), tone(base, 0.75), 2)
        for y in range(0, h, 2 * step):
            cv2.line(canvas.image, (0, y), (w, y), tone(base, 0.75), 2)
    elif style == "panels":  # a darker lower third, a rail, and battens
        y = int(h * within(rng, (0.6, 0.72)))
        cv2.rectangle(canvas.image, (0, y), (w, h), other, -1)
        cv2.rectangle(canvas.image, (0, y - 4), (w, y + 4), tone(base, 0.7), -1)
        for x in range(0, w, 3 * step):
            cv2.rectangle(canvas.image, (x, y), (x + 4, h), tone(other, 0.85), -1)


def hang(rng: np.random.Generator, canvas: Canvas, base: Colour, population: Population, what: str) -> None:
    """Put one thing on the wall at a random place."""
    h, w, image = canvas.height, canvas.width, canvas.image
    x = int(rng.integers(0, w))
    hue = WALL_HUES[int(rng.integers(len(WALL_HUES)))] if rng.random() < 0.6 else float(rng.random())
    colour = hsv(hue, within(rng, population.cloth_saturation), within(rng, population.wall_value))
    if what == "window":
        ww, y0, y1 = int(rng.integers(60, 140)), int(h * 0.18), int(h * 0.62)
        sky = hsv(0.57, within(rng, (0.05, 0.35)), within(rng, (0.75, 1.0)))
        cv2.rectangle(image, (x - 5, y0 - 5), (x + ww + 5, y1 + 5), tone(base, 1.25), -1)
        cv2.rectangle(image, (x, y0), (x + ww, y1), sky, -1)
        for k in range(1, 3):
            cv2.rectangle(image, (x + k * ww // 3 - 2, y0), (x + k * ww // 3 + 2, y1), tone(base, 1.2), -1)
        if rng.random() < 0.5:
            for y in range(y0, y1, 6):
                cv2.line(image, (x, y), (x + ww, y), tone(base, 0.9), 2)
        else:
            cv2.ellipse(image, (x + ww // 2, y1), (ww // 2, (y1 - y0) // 3), 0, 180, 360, hsv(0.3, 0.4, 0.5), -1)
    elif what == "curtain":  # folds: a row of vertical, limb-wide shades
        ww = int(rng.integers(40, 160))
        fold = int(rng.integers(7, 16))
        for k, xx in enumerate(range(x, x + ww, fold)):
            shade = (1.0, 0.86, 0.93, 0.8)[k % 4]
            cv2.rectangle(image, (xx, int(h * 0.1)), (xx + fold, int(h * 0.97)), tone(colour, shade), -1)
    elif what == "picture":
        pw, ph, y = (
            int(rng.integers(20, 70)),
            int(rng.integers(20, 80)),
            int(rng.integers(int(h * 0.2), int(h * 0.6))),
        )
        cv2.rectangle(image, (x - 3, y - 3), (x + pw + 3, y + ph + 3), tone(colour, 0.5), -1)
        cv2.rectangle(image, (x, y), (x + pw, y + ph), colour, -1)
        for _ in range(5):
            c = hsv(float(rng.random()), within(rng, population.cloth_saturation), within(rng, (0.3, 0.95)))
            px, py = int(x + rng.random() * pw), int(y + rng.random() * ph)
            r = int(2 + rng.random() * pw / 4)
            cv2.circle(image, (px, py), min(r, px - x + 1, x + pw - px + 1, py - y + 1, y + ph - py + 1), c, -1)
    elif what == "shelf":
        ww, y = int(rng.integers(50, 120)), int(rng.integers(int(h * 0.3), int(h * 0.75)))
        xx = x
        while xx < x + ww:  # the backs of books
            bw, bh = int(rng.integers(4, 12)), int(rng.integers(16, 34))
            c = hsv(float(rng.random()), within(rng, population.cloth_saturation), within(rng, (0.25, 0.95)))
            cv2.rectangle(image, (xx, y - bh), (xx + bw, y), c, -1)
            xx += bw + 1
        cv2.rectangle(image, (x - 4, y), (x + ww + 4, y + 5), tone(base, 0.55), -1)
    elif what == "door":
        cv2.rectangle(image, (x, int(h * 0.34)), (x + 95, h), tone(colour, 0.85), -1)
        cv2.rectangle(image, (x, int(h * 0.34)), (x + 95, h), tone(base, 0.6), 4)
        cv2.circle(image, (x + 82, int(h * 0.68)), 4, (190, 180, 140), -1)
    elif what == "radiator":
        ww, y0, y1 = int(rng.integers(50, 110)), int(h * 0.74), int(h * 0.93)
        for xx in range(x, x + ww, 10):
            cv2.rectangle(image, (xx, y0), (xx + 6, y1), tone(base, 1.1), -1)
            cv2.line(image, (xx + 7, y0), (xx + 7, y1), tone(base, 0.6), 2)
    elif what == "pipe":
        r = int(rng.integers(2, 8))
        cv2.rectangle(image, (x - r, 0), (x + r, h), tone(base, 0.8), -1)
        cv2.line(image, (x - r // 2, 0), (x - r // 2, h), tone(base, 1.05), max(1, r // 2))
    elif what == "coat":  # an empty garment on a hook, sleeves and all
        y = int(h * within(rng, (0.4, 0.5)))
        body = np.array([[x - 6, y], [x + 6, y], [x + 22, y + 90], [x - 22, y + 90]])
        for side in (-1, 1):
            arm = np.array(
                [
                    [x + side * 5, y + 2],
                    [x + side * 14, y + 8],
                    [x + side * 30, y + 62],
                    [x + side * 21, y + 64],
                ]
            )
            cv2.fillConvexPoly(image, arm, tone(colour, 0.85), cv2.LINE_AA)
        cv2.fillConvexPoly(image, body, colour, cv2.LINE_AA)
        for k in range(-1, 2):
            cv2.line(image, (x + k * 7, y + 10), (x + k * 12, y + 88), tone(colour, 0.8), 1)
        cv2.circle(image, (x, y - 4), 4, tone(base, 0.4), -1)
    elif what == "poster":  # a stick person, to be ignored
        y = int(h * within(rng, (0.3, 0.5)))
        cv2.rectangle(image, (x, y), (x + 44, y + 62), tone(colour, 1.15), -1)
        ink = tone(colour, 0.35)
        cv2.circle(image, (x + 22, y + 12), 5, ink, -1)
        for a, b in (
            ((22, 17), (22, 38)),
            ((22, 38), (14, 56)),
            ((22, 38), (30, 56)),
            ((22, 22), (10, 32)),
            ((22, 22), (34, 14)),
        ):
            cv2.line(image, (x + a[0], y + a[1]), (x + b[0], y + b[1]), ink, 2, cv2.LINE_AA)


_HANGINGS: dict[str, dict[str, float]] = {
    "studio": {"window": 2, "picture": 2, "curtain": 1, "poster": 1, "pipe": 0.5},
    "street": {"window": 3, "door": 2, "pipe": 2, "poster": 2},
    "gym": {"window": 1, "poster": 2, "pipe": 3, "radiator": 1, "door": 1},
    "clinic": {"curtain": 2, "picture": 1, "poster": 1.5, "radiator": 1.5, "pipe": 1.5, "door": 1, "coat": 2},
    "ward": {"curtain": 4, "window": 1, "radiator": 1.5, "pipe": 2, "coat": 1.5, "picture": 1},
    "home": {"curtain": 2, "picture": 3, "shelf": 3, "window": 1, "coat": 2, "radiator": 1},
}
_STANDING: dict[str, dict[str, float]] = {
    "studio": {"plant": 2, "cabinet": 1, "post": 2},
    "street": {"post": 3, "plant": 1, "rail": 1},
    "gym": {"rail": 2, "post": 2, "table": 1},
    "clinic": {"cabinet": 2, "post": 3, "table": 2, "rail": 1},
    "ward": {"rail": 3, "post": 3, "cabinet": 2, "table": 1},
    "home": {"table": 2, "cabinet": 3, "plant": 2, "post": 1},
}


def furnish(rng: np.random.Generator, kind: str, x: float, z: float, colours: tuple[Colour, ...], tallest: float = 1.2) -> Item:
    """A piece of furniture of the sort found in such a room.

    ``tallest`` keeps what stands in front of people from hiding them altogether: nobody could label those.
    """
    return piece(rng, _STANDING[kind], x, z, colours, tallest)


def piece(
    rng: np.random.Generator, weights: dict[str, float], x: float, z: float, colours: tuple[Colour, ...], tallest: float = 1.2
) -> Item:
    """A piece of furniture, drawn with the given weights."""
    colour = colours[int(rng.integers(len(colours)))]
    turn = float(rng.normal(0.0, 12.0))
    what = choose(rng, weights)
    if what == "table":
        return table(x, z, colour, within(rng, (0.7, 1.4)), within(rng, (0.6, 0.85)), turn)
    if what == "cabinet":
        return cabinet(x, z, colour, within(rng, (0.4, 0.9)), within(rng, (0.5, tallest)), turn)
    if what == "rail":
        return rail(x, z, colour, within(rng, (0.6, 1.5)), within(rng, (0.7, 1.0)), turn)
    if what == "plant":
        return plant(
            x,
            z,
            hsv(0.26 + 0.14 * float(rng.random()), 0.4, within(rng, (0.3, 0.6))),
            within(rng, (0.7, 1.3)),
            rng.uniform([-0.45, 0.4], [0.45, 1.0], (9, 2)),
        )
    thin = rng.random() < 0.6
    radius = within(rng, (0.012, 0.025)) if thin else within(rng, (0.05, 0.12))
    return post(x, z, colour, radius, within(rng, (1.5, 2.0)) if thin else 3.2, float(rng.normal(0, 0.05)) * thin)


def build_room(rng: np.random.Generator, population: Population) -> Room:
    """Draw a room from the population's distribution."""
    kind = choose(rng, population.room_kinds)
    hue = WALL_HUES[int(rng.integers(len(WALL_HUES)))] + 0.02 * float(rng.normal())
    base = hsv(hue, within(rng, population.wall_saturation), within(rng, population.wall_value))
    clutter = within(rng, population.clutter)

    canvas = Canvas(board(WALL, WALL_PX, base))
    _paper(rng, canvas, base, kind)
    for _ in range(2 + int(11 * clutter)):
        hang(rng, canvas, base, population, choose(rng, _HANGINGS[kind]))
    cv2.rectangle(canvas.image, (0, canvas.height - 10), (canvas.width, canvas.height), tone(base, 0.65), -1)
    blotches(rng, canvas.image, 7.0, 4.0)

    wood = mix(hsv(0.08, 0.4, 0.55), tone(base, 0.75), within(rng, (0.0, 1.0)))
    floor = board(FLOOR, FLOOR_PX, wood)
    step = int(rng.integers(14, 50))
    for x in range(0, floor.shape[1], step):
        cv2.line(floor, (x, 0), (x, floor.shape[0]), tone(wood, 0.82), 2)
    if rng.random() < 0.6:
        for y in range(0, floor.shape[0], step):
            cv2.line(floor, (0, y), (floor.shape[1], y), tone(wood, 0.82), 2)
    blotches(rng, floor, 6.0, 6.0)

    colours = tuple(
        mix(
            base,
            hsv(float(rng.random()), within(rng, population.cloth_saturation), within(rng, (0.3, 0.95))),
            w,
        )
        for w in (0.15, 0.5, 0.8, 1.0)
    )
    depth = within(rng, (1.4, 2.6))
    items = []
    for _ in range(1 + int(4 * clutter)):
        across, back = float(rng.uniform(-2.2, 2.2)), float(rng.uniform(0.7, depth - 0.3))
        items.append(furnish(rng, kind, across, -back, colours))
    items.sort(key=lambda item: item.z)
    return Room(kind, depth, canvas.image, floor, Group(tuple(items)), colours)
