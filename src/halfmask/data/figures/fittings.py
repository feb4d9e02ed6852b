"""Furniture that belongs to a place: what stands along the walls of kitchens, wards and gyms."""

from __future__ import annotations

import numpy as np

from halfmask.data.figures.draw import Colour, tone
from halfmask.data.figures.furniture import Item

WHITE: Colour = (236.0, 236.0, 232.0)
STEEL: Colour = (150.0, 154.0, 160.0)


def counter(x: float, z: float, wide: float, doors: Colour, top: Colour) -> tuple[Item, ...]:
    """Kitchen cupboards under a worktop."""
    n = max(1, round(wide / 0.6))
    boxes = [(0.0, 0.0, 0.0, wide / 2, 0.86, 0.28, 0.7)]
    for k in range(n):
        boxes.append(((k + 0.5) * wide / n - wide / 2, 0.1, 0.285, wide / n / 2 - 0.025, 0.72, 0.005, 1.05))
    handles = tuple(
        ((k + 0.35) * wide / n - wide / 2, 0.74, 0.3, (k + 0.65) * wide / n - wide / 2, 0.74, 0.3, 0.012, 0.4) for k in range(n)
    )
    return Item(x, z, doors, tuple(boxes), handles), Item(x, z, top, ((0.0, 0.86, 0.0, wide / 2 + 0.02, 0.05, 0.31, 1.0),))


def fridge(x: float, z: float, colour: Colour) -> tuple[Item, ...]:
    """A tall refrigerator."""
    return (
        Item(
            x, z, colour, ((0, 0, 0, 0.32, 1.8, 0.3, 0.9), (0, 0.05, 0.305, 0.3, 1.1, 0.005, 1.0), (0, 1.2, 0.305, 0.3, 0.55, 0.005, 1.0))
        ),
    )


def cooker(x: float, z: float) -> tuple[Item, ...]:
    """An oven below, a hood above."""
    body = Item(
        x, z, STEEL, ((0, 0, 0, 0.3, 0.92, 0.3, 0.9), (0, 0.25, 0.305, 0.24, 0.4, 0.005, 0.3), (0, 1.75, -0.05, 0.3, 0.16, 0.25, 0.8))
    )
    return (body,)


def hospital_bed(x: float, z: float, sheet: Colour, frame: Colour) -> tuple[Item, ...]:
    """A bed across the view with a raised head and rails."""
    bars = [(sx, 0.0, 0.3, sx, 0.5, 0.3, 0.03, 0.7) for sx in (-0.9, 0.9)]
    bars += [(k, 0.55, 0.44, k, 0.85, 0.44, 0.012, 1.0) for k in np.linspace(-0.6, 0.3, 6).tolist()]
    bars.append((-0.6, 0.85, 0.44, 0.3, 0.85, 0.44, 0.016, 1.0))
    ends = ((-1.05, 0.15, 0.0, 0.03, 0.9, 0.45, 1.0), (1.05, 0.15, 0.0, 0.03, 0.7, 0.45, 1.0))
    mattress = ((0.0, 0.42, 0.0, 1.0, 0.2, 0.43, 1.0), (-0.75, 0.62, 0.0, 0.22, 0.12, 0.34, 1.12))
    return Item(x, z, sheet, mattress), Item(x, z, frame, ends, tuple(bars))


def basin(x: float, z: float) -> tuple[Item, ...]:
    """A wash-basin on a foot."""
    return (
        Item(
            x,
            z,
            WHITE,
            ((0, 0.72, 0, 0.3, 0.16, 0.22, 1.0), (0, 0, -0.05, 0.08, 0.72, 0.08, 0.9)),
            ((0, 0.88, -0.1, 0, 1.0, 0.0, 0.02, 0.6),),
        ),
    )


def toilet(x: float, z: float) -> tuple[Item, ...]:
    """A toilet with its cistern."""
    return (Item(x, z, WHITE, ((0, 0, -0.15, 0.2, 0.85, 0.1, 0.95), (0, 0, 0.15, 0.19, 0.42, 0.25, 1.0))),)


def sofa(x: float, z: float, colour: Colour) -> tuple[Item, ...]:
    """A sofa: back, seat and arms."""
    boxes = (
        (0.0, 0.0, -0.25, 0.9, 0.85, 0.12, 0.9),
        (0.0, 0.0, 0.05, 0.9, 0.42, 0.33, 1.0),
        (-0.42, 0.42, 0.05, 0.38, 0.07, 0.3, 1.12),
        (0.42, 0.42, 0.05, 0.38, 0.07, 0.3, 1.12),
        (-0.93, 0.0, 0.05, 0.1, 0.6, 0.36, 0.85),
        (0.93, 0.0, 0.05, 0.1, 0.6, 0.36, 0.85),
    )
    return (Item(x, z, colour, boxes),)


def lamp(x: float, z: float, shade: Colour) -> tuple[Item, ...]:
    """A standard lamp."""
    return (
        Item(
            x, z, shade, ((0, 1.35, 0, 0.2, 0.28, 0.2, 1.1),), ((0, 0, 0, 0, 1.4, 0, 0.02, 0.3), (-0.15, 0.02, 0, 0.15, 0.02, 0, 0.03, 0.3))
        ),
    )


def desk(x: float, z: float, wood: Colour) -> tuple[Item, ...]:
    """A desk with a screen on it."""
    table = Item(x, z, wood, ((0, 0.7, 0, 0.65, 0.05, 0.35, 1.0),), tuple((s * 0.6, 0, 0.3, s * 0.6, 0.7, 0.3, 0.03, 0.5) for s in (-1, 1)))
    screen = Item(x, z, (52.0, 54.0, 60.0), ((0, 0.86, -0.05, 0.3, 0.36, 0.02, 1.0), (0, 0.75, -0.05, 0.05, 0.12, 0.04, 1.0)))
    return table, screen, Item(x, z, (150.0, 190.0, 225.0), ((0, 0.89, -0.02, 0.27, 0.3, 0.005, 1.0),))


def bench(x: float, z: float, wood: Colour) -> tuple[Item, ...]:
    """A bench in a gym or a park."""
    legs = tuple((s * 0.6, 0, 0, s * 0.6, 0.4, 0, 0.03, 0.5) for s in (-1, 1))
    return (Item(x, z, wood, ((0, 0.4, 0, 0.8, 0.05, 0.2, 1.0),), legs),)


def parallel_bars(x: float, z: float, wood: Colour) -> tuple[Item, ...]:
    """Two bars to learn walking between."""
    bars = tuple((sx, 0.0, sz, sx, 0.9, sz, 0.022, 0.6) for sx in (-1.0, 1.0) for sz in (-0.3, 0.3))
    bars += tuple((-1.15, 0.92, sz, 1.15, 0.92, sz, 0.03, 1.0) for sz in (-0.3, 0.3))
    return (Item(x, z, wood, (), bars),)


def ball(x: float, z: float, colour: Colour) -> tuple[Item, ...]:
    """A big exercise ball: a bar without length is round."""
    return (Item(x, z, colour, (), ((0.0, 0.3, 0.0, 0.0, 0.301, 0.0, 0.3, 1.0), (-0.08, 0.4, 0.1, -0.08, 0.401, 0.1, 0.1, 1.2))),)


def lights(x: float, z: float) -> tuple[Item, ...]:
    """A photographer's lamp on a stand."""
    dark = (40.0, 40.0, 44.0)
    stand = ((0, 0, 0, 0, 1.9, 0, 0.02, 1.0), (-0.25, 0, 0, 0, 0.5, 0, 0.015, 1.0), (0.25, 0, 0, 0, 0.5, 0, 0.015, 1.0))
    return Item(x, z, dark, (), stand), Item(x, z, WHITE, ((0, 1.75, 0.05, 0.25, 0.4, 0.05, 1.0),))


def trunk(x: float, z: float, wood: Colour, radius: float) -> tuple[Item, ...]:
    """A tree whose crown is out of the picture."""
    return (
        Item(x, z, wood, (), ((0, 0, 0, 0.05, 3.4, 0, radius, 1.0), (0.03, 1.9, 0, 0.6, 3.2, 0, 0.4 * radius, tone((1, 1, 1), 0.9)[0]))),
    )
