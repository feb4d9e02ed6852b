"""What people hold before their faces: a hand, a telephone, a mug."""

from __future__ import annotations

import numpy as np

from halfmask.data.figures.draw import Colour, capsules, tone
from halfmask.data.figures.portrait import Portrait

Part = tuple[np.ndarray, Colour]
Place = tuple[float, float]

_AIMS = {"hand": (1, 4, 7, 10, 14, 17, 18, 19, 20), "phone": (12, 16, 18, 7, 10), "mug": (17, 18, 19, 20)}
"""The landmarks each is held near to."""


class _Hold:
    """A place before the face with axes of its own: x away from the middle of the picture, y down, in half faces."""

    def __init__(self, spot: np.ndarray, side: float, lean: float, scale: float) -> None:
        self.spot, self.scale = spot, scale
        c, s = float(np.cos(lean)), float(np.sin(lean))
        self.axes = np.array([[side * c, side * s], [-s, c]])

    def at(self, *places: Place) -> np.ndarray:
        """An outline."""
        pixels: np.ndarray = self.spot + self.scale * np.asarray(places) @ self.axes
        return pixels

    def limb(self, a: Place, b: Place, thick: float, thin: float) -> np.ndarray:
        """A finger or an arm."""
        ends = self.at(a, b)
        outlines, _ = capsules(ends[:1], ends[1:], np.array([thick * self.scale]), np.array([thin * self.scale]))
        first: np.ndarray = outlines[0]
        return first


def hold(rng: np.random.Generator, portrait: Portrait, skin: Colour, colour: Colour) -> list[Part]:
    """Something held before part of the face: convex outlines and their colours, from the back to the front."""
    kind = ("hand", "phone", "mug")[int(rng.integers(3))]
    aim = _AIMS[kind][int(rng.integers(len(_AIMS[kind])))]
    spot = portrait.landmarks[aim] + rng.normal(0.0, 0.1, 2) * portrait.view.scale
    side = 1.0 if spot[0] >= portrait.view.middle[0] else -1.0
    lean = side * float(rng.uniform(-0.1, 0.7) if kind == "hand" else rng.uniform(-0.3, 0.3))
    place = _Hold(spot, side, lean, portrait.view.scale)
    at, limb, shade = place.at, place.limb, tone(skin, 0.82)
    arm = limb((0.25, 0.9), (1.1, 4.0), 0.26, 0.34)
    parts: list[Part] = []
    if kind == "hand":
        parts.append((arm, colour))
        parts.append((at((-0.36, 0.1), (0.36, 0.05), (0.42, 0.7), (0.1, 1.05), (-0.2, 0.95), (-0.38, 0.6)), skin))
        parts.append((limb((-0.3, 0.6), (-0.62, 0.12), 0.13, 0.1), shade))
        for k, long in enumerate((0.5, 0.62, 0.58, 0.42)):
            parts.append((limb((-0.27 + 0.18 * k, 0.15), (-0.32 + 0.21 * k, 0.1 - long), 0.1, 0.08), skin if k % 2 else shade))
    elif kind == "phone":
        parts.append((arm, skin))
        parts.append((at((-0.05, 0.2), (0.5, 0.2), (0.5, 1.0), (0.1, 1.0)), shade))
        parts.append((at((-0.32, -0.68), (0.32, -0.68), (0.32, 0.68), (-0.32, 0.68)), (34.0, 34.0, 40.0)))
        parts.append((at((-0.25, -0.55), (0.25, -0.55), (0.25, 0.5), (-0.25, 0.5)), colour))
        parts.extend((limb((0.42, 0.05 + 0.2 * k), (0.2, 0.1 + 0.2 * k), 0.09, 0.08), skin) for k in range(3))
    else:
        parts.append((arm, skin))
        parts.append((limb((0.5, -0.1), (0.6, 0.4), 0.2, 0.2), tone(colour, 0.7)))
        parts.append((at((-0.45, -0.4), (0.45, -0.4), (0.38, 0.6), (-0.38, 0.6)), colour))
        parts.extend((limb((0.55, 0.02 + 0.19 * k), (0.2, 0.06 + 0.19 * k), 0.1, 0.09), skin if k % 2 else shade) for k in range(3))
    return parts
