"""Places: the kinds of rooms that clips are filmed in, each with a wall, a floor and furniture of its own.

A kind is told by many things at once and never by all of them: rooms of one kind differ in colour, in what hangs and stands in them, and in
what of it is in view. What people do in the private building depends on the place, as it does in life (``TYPICAL``); in the public places,
anything is done anywhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halfmask.data.figures import fittings as fit
from halfmask.data.figures.draw import Colour, mix, tone
from halfmask.data.figures.furniture import Group, Item, cabinet, chair, plant, post, table
from halfmask.data.figures.movements import CARE_ACTIONS
from halfmask.data.figures.populations import within
from halfmask.data.figures.rooms import Room, blotches
from halfmask.data.figures.subjects import hsv
from halfmask.data.figures.walls import Sheet, any_colour, curtain, door, goods, mirror, picture, row, wall_bars, window

TYPICAL: dict[str, tuple[str, ...]] = {
    "kitchen": ("drink", "reach"),
    "ward": ("lie_down", "get_up"),
    "bathroom": ("wash_hands", "brush_teeth"),
    "lounge": ("sit_down", "stand_up", "phone", "wave"),
    "corridor": ("walk", "pick_up", "put_down"),
    "therapy": ("squat", "march", "stretch"),
}
"""What is typically done where, in the building of the private and the test population."""
_PUBLIC = ("studio", "street", "gym", "office", "shop", "park")
PLACES: dict[str, tuple[str, ...]] = {"public": _PUBLIC, "private": tuple(TYPICAL), "test": tuple(TYPICAL)}
"""The kinds of place of each population."""
ROOMS = 48
"""Rooms of a building; room number n is of kind n modulo the number of kinds."""

assert sorted(action for actions in TYPICAL.values() for action in actions) == sorted(CARE_ACTIONS)  # each at home in one place

_Rng = np.random.Generator
_Built = tuple[Sheet, Sheet, list[Item], tuple[Colour, ...]]


def _across(rng: _Rng, gap: tuple[float, float]) -> list[float]:
    """Places along the room for furniture."""
    return [x - 3.5 for x in row(rng, gap)]


def _kitchen(rng: _Rng, back: float) -> _Built:
    base = hsv(within(rng, (0.08, 0.17)), within(rng, (0.1, 0.4)), within(rng, (0.75, 0.98)))
    wood = hsv(within(rng, (0.03, 0.12)), within(rng, (0.2, 0.7)), within(rng, (0.35, 0.9))) if rng.random() < 0.7 else fit.WHITE
    wall = Sheet.wall(base)
    tiles = any_colour(rng, (0.05, 0.45), (0.7, 0.95))
    wall.box(0, 0.8, 7, 0.75, tiles)
    wall.grid(0.8, 1.55, 0.15, 0.15, tone(tiles, 0.72))
    for x in row(rng, (0.62, 0.9)):
        if rng.random() < 0.75:
            wall.box(x, 1.6, 0.6, 0.75, tone(wood, 0.8))
            wall.box(x + 0.03, 1.63, 0.54, 0.69, wood)
        elif rng.random() < 0.5:
            window(rng, wall, x, 0.6, 1.5, 2.3, fit.WHITE, False)
    floor = Sheet.floor(hsv(0.1, within(rng, (0.05, 0.3)), within(rng, (0.6, 0.9))))
    floor.checks(within(rng, (0.25, 0.4)), any_colour(rng, (0.05, 0.4), (0.25, 0.55)))
    top = tone(wood, 1.35) if rng.random() < 0.5 else (90.0, 90.0, 94.0)
    items: list[Item] = list(fit.counter(0.0, back + 0.32, 6.6, wood, top))
    for x in _across(rng, (1.2, 2.4)):
        items.extend(
            fit.cooker(x, back + 0.36) if rng.random() < 0.6 else fit.fridge(x, back + 0.36, tone(fit.WHITE, within(rng, (0.7, 1.0))))
        )
    return wall, floor, items, (wood, base, tiles, top)


def _ward(rng: _Rng, back: float) -> _Built:
    base = hsv(within(rng, (0.38, 0.6)), within(rng, (0.05, 0.25)), within(rng, (0.75, 0.98)))
    wall = Sheet.wall(base)
    wall.box(0, 0, 7, 0.9, tone(base, 0.85))
    wall.box(0, 1.42, 7, 0.16, (210.0, 212.0, 216.0))
    for x in row(rng, (0.5, 0.9)):
        wall.box(x, 1.46, 0.12, 0.08, any_colour(rng, (0.3, 0.8), (0.4, 0.8)))
    cloth = hsv(within(rng, (0.35, 0.65)), within(rng, (0.2, 0.55)), within(rng, (0.55, 0.9)))
    for x in row(rng, (1.5, 2.3)):
        curtain(rng, wall, x, within(rng, (0.5, 0.9)), 0.25, 2.3, cloth)
    floor = Sheet.floor(mix(hsv(0.42, 0.15, 0.7), (150.0, 160.0, 165.0), within(rng, (0, 1))))
    sheet = mix(fit.WHITE, cloth, within(rng, (0.0, 0.4)))
    items: list[Item] = []
    for x in _across(rng, (2.3, 2.8)):
        items.extend(fit.hospital_bed(x, back + 0.55, sheet, tone(fit.STEEL, within(rng, (0.8, 1.3)))))
        items.append(post(x + within(rng, (1.1, 1.3)), back + 0.6, fit.STEEL, 0.02, 1.8))
    return wall, floor, items, (cloth, sheet, fit.STEEL, base)


def _bathroom(rng: _Rng, back: float) -> _Built:
    tile = hsv((0.52, 0.57, 0.45, 0.95, 0.13)[int(rng.integers(5))], within(rng, (0.08, 0.45)), within(rng, (0.75, 1.0)))
    wall = Sheet.wall(tile)
    side = within(rng, (0.14, 0.24))
    wall.grid(0, 3.2, side, side, tone(tile, 0.75) if rng.random() < 0.7 else fit.WHITE)
    wall.box(0, 1.15, 7, side, any_colour(rng, (0.3, 0.8), (0.35, 0.8)))
    spots = row(rng, (1.2, 1.7))
    for x in spots:
        mirror(wall, x, within(rng, (0.5, 0.7)), 1.25, 2.0, (205.0, 220.0, 228.0))
        if rng.random() < 0.6:  # a towel
            wall.box(x + 0.85, 0.75, 0.28, 0.6, any_colour(rng, (0.2, 0.8), (0.5, 0.95)))
            wall.box(x + 0.8, 1.33, 0.38, 0.04, fit.STEEL)
    if rng.random() < 0.6:
        curtain(rng, wall, within(rng, (0.5, 5.5)), 0.8, 0.2, 2.1, any_colour(rng, (0.1, 0.5), (0.7, 1.0)))
    ground = tone(tile, within(rng, (0.45, 0.8)))
    floor = Sheet.floor(ground)
    floor.grid(0, 5, 0.12, 0.12, tone(ground, 0.7), 1)
    items: list[Item] = []
    for x in spots:
        items.extend(fit.basin(x - 3.2, back + 0.25))
        if rng.random() < 0.4:
            items.extend(fit.toilet(x - 2.4, back + 0.3))
    return wall, floor, items, (fit.WHITE, tile, ground, fit.STEEL)


def _lounge(rng: _Rng, back: float) -> _Built:
    base = hsv((0.0, 0.05, 0.1, 0.28, 0.83)[int(rng.integers(5))], within(rng, (0.25, 0.6)), within(rng, (0.5, 0.85)))
    wall = Sheet.wall(base)
    if rng.random() < 0.6:
        wall.stripes(within(rng, (0.08, 0.25)), tone(base, within(rng, (0.8, 0.9))))
    wood = hsv(0.07, within(rng, (0.45, 0.7)), within(rng, (0.3, 0.6)))
    for x in row(rng, (1.1, 1.6)):
        what = rng.random()
        if what < 0.45:
            picture(rng, wall, x, within(rng, (1.3, 1.8)))
        elif what < 0.8:
            goods(rng, wall, x, within(rng, (0.7, 1.1)), (0.3, 0.8, 1.3, 1.8), wood, 0.8)
        else:
            window(rng, wall, x, 0.7, 1.0, 2.2, fit.WHITE, False)
            curtain(rng, wall, x - 0.3, 0.3, 0.3, 2.3, tone(base, 0.7))
    wall.box(0, 0, 7, 0.12, wood)
    carpet = hsv(within(rng, (0.0, 0.12)), within(rng, (0.3, 0.65)), within(rng, (0.3, 0.6)))
    floor = Sheet.floor(carpet)
    rug = any_colour(rng, (0.3, 0.7), (0.4, 0.8))
    floor.disc(3.5, 2.2, 1.6, rug, 0.6)
    floor.disc(3.5, 2.2, 1.2, tone(rug, 0.7), 0.6)
    cloth = any_colour(rng, (0.25, 0.7), (0.35, 0.75))
    items: list[Item] = []
    for x in _across(rng, (2.1, 2.6)):
        items.extend(fit.sofa(x, back + 0.55, cloth))
        items.extend(
            fit.lamp(x + 1.2, back + 0.4, hsv(0.12, 0.3, 0.9)) if rng.random() < 0.6 else (cabinet(x + 1.2, back + 0.35, wood, 0.4, 0.7),)
        )
    return wall, floor, items, (cloth, wood, carpet, rug)


def _corridor(rng: _Rng, back: float) -> _Built:
    base = hsv((0.13, 0.15, 0.6, 0.0)[int(rng.integers(4))], within(rng, (0.02, 0.3)), within(rng, (0.8, 1.0)))
    lower = any_colour(rng, (0.2, 0.55), (0.35, 0.65))
    wall = Sheet.wall(base)
    wall.box(0, 0, 7, 1.1, lower)
    for x in row(rng, (1.5, 2.1)):
        door(wall, x, mix(tone(lower, 1.2), hsv(0.08, 0.5, 0.6), within(rng, (0, 1))))
        if rng.random() < 0.6:  # a notice board
            wall.box(x + 1.05, 1.4, 0.4, 0.4, hsv(0.08, 0.5, 0.65))
            for k in range(3):
                wall.box(x + 1.08 + 0.12 * k, 1.45 + 0.1 * (k % 2), 0.09, 0.2, fit.WHITE)
    wood = hsv(0.08, 0.55, within(rng, (0.4, 0.7)))
    wall.box(0, 0.86, 7, 0.1, wood)
    wall.box(0, 0.84, 7, 0.03, tone(wood, 0.5))
    ground = hsv(within(rng, (0.5, 0.66)), within(rng, (0.05, 0.25)), within(rng, (0.4, 0.7)))
    floor = Sheet.floor(ground)
    floor.box(0, 0.15, 7, 0.22, tone(lower, 1.1))
    floor.box(0, 3.2, 7, 0.22, tone(lower, 1.1))
    return wall, floor, [], (lower, wood, ground, fit.STEEL)


def _therapy(rng: _Rng, back: float) -> _Built:
    base = hsv(within(rng, (0.1, 0.2)), within(rng, (0.03, 0.2)), within(rng, (0.85, 1.0)))
    wall = Sheet.wall(base)
    wood = hsv(within(rng, (0.08, 0.11)), within(rng, (0.45, 0.65)), within(rng, (0.65, 0.9)))
    for x in row(rng, (1.1, 1.6)):
        if rng.random() < 0.7:
            wall_bars(wall, x, 0.9, wood)
        else:
            mirror(wall, x, 0.9, 0.4, 2.2, (200.0, 212.0, 218.0))
    floor = Sheet.floor(hsv(0.09, within(rng, (0.35, 0.55)), within(rng, (0.55, 0.8))))
    floor.grid(0, 5, 0.6, 0.12, hsv(0.09, 0.5, 0.45), 1, True)
    mats = any_colour(rng, (0.55, 0.9), (0.45, 0.8))
    for x in row(rng, (1.6, 2.2)):
        floor.box(x, within(rng, (0.6, 1.4)), 1.3, within(rng, (1.2, 2.2)), mats)
    items: list[Item] = []
    for x in _across(rng, (1.3, 2.0)):
        if rng.random() < 0.65:
            items.extend(fit.ball(x, back + 0.4, any_colour(rng, (0.6, 0.9), (0.5, 0.9))))
        else:
            items.extend(fit.parallel_bars(x, back + 0.7, wood))
    return wall, floor, items, (wood, mats, fit.STEEL, base)


def _studio(rng: _Rng, back: float) -> _Built:
    base = any_colour(rng, (0.2, 0.75), (0.45, 0.95))
    wall = Sheet.wall(base)
    for k in range(16):  # the light falls off towards the edges
        wall.box(0, 3.2 - 0.1 * k, 7, 0.1, tone(base, 0.7 + 0.02 * k))
    floor = Sheet.floor(tone(base, 0.95))
    items: list[Item] = []
    for x in _across(rng, (2.0, 3.0)):
        items.extend(fit.lights(x, back + 0.5))
    return wall, floor, items, (base, fit.WHITE, (60.0, 60.0, 64.0))


def _street(rng: _Rng, back: float) -> _Built:
    base = hsv(within(rng, (0.0, 0.09)), within(rng, (0.25, 0.6)), within(rng, (0.45, 0.8)))
    wall = Sheet.wall(base)
    wall.grid(0, 3.2, 0.32, 0.13, tone(base, 0.75), 2, True)
    for x in row(rng, (1.4, 2.0)):
        if rng.random() < 0.6:
            window(rng, wall, x, 0.8, 1.0, 2.2, fit.WHITE, False)
        else:
            door(wall, x, any_colour(rng, (0.4, 0.8), (0.3, 0.7)))
    ground = hsv(0.6, within(rng, (0.0, 0.08)), within(rng, (0.5, 0.75)))
    floor = Sheet.floor(ground)
    floor.grid(0, 5, 0.6, 0.6, tone(ground, 0.75), 2)
    items = [post(x, back + 0.5, (70.0, 74.0, 78.0), 0.05, 3.2) for x in _across(rng, (2.0, 3.5))]
    return wall, floor, items, ((90.0, 94.0, 98.0), base, ground)


def _gym(rng: _Rng, back: float) -> _Built:
    wall = Sheet.wall(hsv(0.14, within(rng, (0.02, 0.15)), within(rng, (0.8, 1.0))))
    pads = hsv((0.0, 0.33, 0.6, 0.66)[int(rng.integers(4))], within(rng, (0.5, 0.85)), within(rng, (0.4, 0.8)))
    wall.box(0, 0, 7, 1.7, pads)
    wall.grid(0, 1.7, 0.9, 1.7, tone(pads, 0.7), 3)
    for x in row(rng, (2.2, 3.5)):
        wall.box(x, 1.9, 0.9, 0.65, fit.WHITE)
        wall.box(x + 0.25, 2.0, 0.4, 0.3, (210.0, 60.0, 50.0), 4)
    wood = hsv(within(rng, (0.09, 0.12)), within(rng, (0.45, 0.65)), within(rng, (0.75, 0.95)))
    floor = Sheet.floor(wood)
    floor.grid(0, 5, 1.2, 0.15, tone(wood, 0.88), 1, True)
    for _ in range(3):
        floor.box(0, within(rng, (0.2, 3.5)), 7, 0.07, any_colour(rng, (0.6, 0.9), (0.4, 0.9)))
    items: list[Item] = []
    for x in _across(rng, (2.0, 3.5)):
        items.extend(fit.bench(x, back + 0.4, tone(wood, 0.8)))
    return wall, floor, items, (pads, wood, fit.STEEL)


def _office(rng: _Rng, back: float) -> _Built:
    base = hsv(0.6, within(rng, (0.0, 0.1)), within(rng, (0.75, 0.95)))
    wall = Sheet.wall(base)
    for x in row(rng, (1.3, 1.8)):
        if rng.random() < 0.6:
            window(rng, wall, x, 1.1, 1.0, 2.4, (190.0, 192.0, 196.0), True)
        else:
            wall.box(x, 1.1, 1.0, 0.8, fit.STEEL)
            wall.box(x + 0.03, 1.13, 0.94, 0.74, (250.0, 250.0, 250.0))
            for k in range(4):
                wall.box(x + 0.1, 1.7 - 0.13 * k, within(rng, (0.2, 0.7)), 0.03, any_colour(rng, (0.6, 0.9), (0.4, 0.8)))
    ground = hsv(within(rng, (0.55, 0.68)), within(rng, (0.15, 0.4)), within(rng, (0.3, 0.5)))
    floor = Sheet.floor(ground)
    floor.checks(0.5, tone(ground, 0.88))
    wood = hsv(0.1, within(rng, (0.2, 0.5)), within(rng, (0.6, 0.9)))
    items: list[Item] = []
    for x in _across(rng, (1.5, 2.2)):
        items.extend(fit.desk(x, back + 0.6, wood))
        if rng.random() < 0.5:
            items.extend(chair(x, back + 1.0, (60.0, 62.0, 70.0), 0.45, 180.0))
    return wall, floor, items, (wood, ground, fit.STEEL)


def _shop(rng: _Rng, back: float) -> _Built:
    base = any_colour(rng, (0.1, 0.4), (0.8, 1.0))
    wall = Sheet.wall(base)
    metal = tone(fit.STEEL, within(rng, (0.9, 1.4)))
    for x in row(rng, (1.5, 1.75)):
        goods(rng, wall, x, 1.4, (0.15, 0.6, 1.05, 1.5), metal, 1.0)
    wall.box(0, 2.15, 7, 0.35, any_colour(rng, (0.6, 0.95), (0.6, 0.95)))
    ground = hsv(0.12, within(rng, (0.0, 0.1)), within(rng, (0.75, 0.95)))
    floor = Sheet.floor(ground)
    floor.grid(0, 5, 0.5, 0.5, tone(ground, 0.8), 2)
    items: list[Item] = [
        table(x, back + 0.8, any_colour(rng, (0.4, 0.8), (0.4, 0.8)), 0.7, 0.7) for x in _across(rng, (2.0, 4.0)) if rng.random() < 0.6
    ]
    return wall, floor, items, (metal, base, ground)


def _park(rng: _Rng, back: float) -> _Built:
    wall = Sheet.wall(hsv(0.57, within(rng, (0.2, 0.5)), within(rng, (0.85, 1.0))))
    green = hsv(within(rng, (0.22, 0.38)), within(rng, (0.4, 0.75)), within(rng, (0.3, 0.6)))
    for x in row(rng, (0.4, 0.8)):
        wall.disc(x, within(rng, (1.2, 1.9)), within(rng, (0.4, 0.7)), tone(green, within(rng, (0.75, 1.25))))
    wall.box(0, 0, 7, 1.2, tone(green, 0.8))
    for x in row(rng, (0.25, 0.5)):
        wall.disc(x, within(rng, (0.2, 1.1)), within(rng, (0.15, 0.3)), tone(green, within(rng, (0.6, 1.2))))
    grass = hsv(within(rng, (0.2, 0.33)), within(rng, (0.4, 0.7)), within(rng, (0.45, 0.75)))
    floor = Sheet.floor(grass)
    for _ in range(60):
        floor.disc(within(rng, (0, 7)), within(rng, (0, 5)), within(rng, (0.03, 0.12)), tone(grass, within(rng, (0.75, 1.25))), 0.5)
    bark = hsv(within(rng, (0.05, 0.1)), within(rng, (0.3, 0.6)), within(rng, (0.25, 0.5)))
    items: list[Item] = []
    for x in _across(rng, (1.2, 2.4)):
        what = rng.random()
        if what < 0.55:
            items.extend(fit.trunk(x, back + within(rng, (0.2, 0.8)), bark, within(rng, (0.07, 0.17))))
        elif what < 0.8:
            items.extend(fit.bench(x, back + 0.6, tone(bark, 1.5)))
        else:
            items.append(plant(x, back + 0.5, green, 0.9, rng.uniform([-0.45, 0.4], [0.45, 1.0], (9, 2))))
    return wall, floor, items, (bark, green, grass)


_BUILDERS: dict[str, Callable[[_Rng, float], _Built]] = {
    "kitchen": _kitchen,
    "ward": _ward,
    "bathroom": _bathroom,
    "lounge": _lounge,
    "corridor": _corridor,
    "therapy": _therapy,
    "studio": _studio,
    "street": _street,
    "gym": _gym,
    "office": _office,
    "shop": _shop,
    "park": _park,
}


def build_place(rng: np.random.Generator, kind: str) -> Room:
    """Draw a room of a kind."""
    depth = within(rng, (1.5, 2.2))
    wall, floor, items, colours = _BUILDERS[kind](rng, -depth)
    blotches(rng, wall.image, 6.0, 4.0)
    blotches(rng, floor.image, 6.0, 6.0)
    items.sort(key=lambda item: item.z)
    return Room(kind, depth, wall.image, floor.image, Group(tuple(items)), colours)
