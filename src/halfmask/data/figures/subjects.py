"""Subjects: the look that one person keeps through all their images.

A look is drawn from the subject's own random stream, so it depends on nothing but the seed and the subject.
Skin, hair and face come from the same distribution in all populations: the populations differ in clothes,
places and poses, never in who people are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.data.figures.draw import Colour, mix, tone
from halfmask.data.figures.populations import Population, choose, within
from halfmask.data.figures.skeleton import Proportions


@dataclass(frozen=True)
class Garment:
    """One piece of clothing."""

    colour: Colour
    second: Colour
    pattern: str
    period: float
    """Metres after which the pattern repeats."""
    loose: float
    """How much wider than the limb it hangs."""


@dataclass(frozen=True)
class Look:
    """Everything that persists about a person."""

    size: Proportions
    skin: Colour
    hair: Colour
    hair_style: str
    """One of bald, short, curly, long, bun, cap."""
    hairline: float
    eyes: Colour
    eye_gap: float
    eye_size: float
    brow: float
    nose: float
    mouth: float
    lips: Colour
    glasses: bool
    beard: float
    """0 for none, else how far it reaches."""
    top: Garment
    bottom: Garment
    sleeve: float
    """How far sleeves reach: 0 none, 1 to the elbow, 2 to the wrist."""
    leg: float
    """How far trousers reach: 1 to the knee, 2 to the ankle."""
    skirt: float
    """How far a skirt or gown reaches along the leg: 0 none, 1 knee, 2 ankle."""
    detail: str
    """What the front shows: plain, buttons, collar, zip, print, badge."""
    accent: Colour
    shoes: Colour
    socks: Colour


_SKINS: tuple[Colour, ...] = (
    (246, 216, 192),
    (232, 190, 160),
    (214, 168, 130),
    (188, 136, 98),
    (150, 102, 70),
    (112, 74, 52),
    (80, 54, 42),
)
_HAIRS: tuple[Colour, ...] = (
    (34, 28, 26),
    (62, 42, 30),
    (102, 70, 42),
    (160, 118, 66),
    (206, 176, 112),
    (142, 70, 40),
    (172, 172, 172),
    (224, 222, 218),
)
_EYES: tuple[Colour, ...] = ((50, 34, 26), (70, 96, 60), (70, 104, 140), (40, 40, 44))


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """A colour from hue (in turns), saturation and value."""
    h = (hue % 1.0) * 6.0
    k = int(h)
    f = h - k
    p, q, t = 1 - saturation, 1 - saturation * f, 1 - saturation * (1 - f)
    r, g, b = ((1.0, t, p), (q, 1.0, p), (p, 1.0, t), (p, q, 1.0), (t, p, 1.0), (1.0, p, q))[k % 6]
    return (255 * value * r, 255 * value * g, 255 * value * b)


WALL_HUES: tuple[float, ...] = (0.10, 0.13, 0.40, 0.52, 0.58, 0.62)
"""The family of hues that walls are painted in: cream, pale green, pale blue."""


def _proportions(rng: np.random.Generator, population: Population) -> Proportions:
    mean, deviation = population.height
    height = float(np.clip(mean + deviation * rng.normal(), 1.35, 2.02))
    stray = 1.0 + 0.05 * np.clip(rng.normal(size=9), -2, 2)
    legs = float(stray[0])
    build = within(rng, population.build)
    return Proportions(
        height=height,
        spine=height * 0.285 * (2.0 - legs),
        neck=height * 0.055 * stray[1],
        head=height * 0.128 * stray[2],
        shoulder=height * 0.108 * stray[3] * (0.8 + 0.2 * build),
        hip=height * 0.052 * stray[4] * (0.7 + 0.3 * build),
        upper_arm=height * 0.168 * stray[5],
        forearm=height * 0.150 * stray[6],
        hand=height * 0.095,
        thigh=height * 0.242 * legs,
        shin=height * 0.240 * legs * stray[7],
        foot=height * 0.148 * stray[8],
        build=build,
    )


def _garment(rng: np.random.Generator, population: Population, loose: float, kinds: dict[str, float]) -> Garment:
    u = rng.random(4)
    of_walls = WALL_HUES[int(u[1] * len(WALL_HUES))] + 0.03 * (u[2] - 0.5)
    hue = of_walls if u[0] < population.wall_clothes else u[1]
    saturation = within(rng, population.cloth_saturation)
    value = within(rng, population.cloth_value)
    contrast = within(rng, population.pattern_contrast)
    colour = hsv(hue, saturation, value)
    other = hsv(hue + 0.5 * u[2] * contrast, saturation, value * (0.25 if value > 0.5 else 1.9))
    return Garment(
        colour=colour,
        second=mix(colour, other, contrast),
        pattern=choose(rng, kinds),
        period=0.045 + 0.075 * float(u[3]),
        loose=loose,
    )


def draw_look(rng: np.random.Generator, population: Population) -> Look:
    """Draw the look of one subject."""
    size = _proportions(rng, population)
    k, f = divmod(float(rng.random()) * (len(_SKINS) - 1), 1.0)
    skin = mix(_SKINS[int(k)], _SKINS[int(k) + 1], f)
    hair = tone(_HAIRS[int(rng.integers(len(_HAIRS)))], within(rng, (0.85, 1.15)))
    outfit = choose(rng, population.outfits)
    sleeve, leg, skirt, loose = 2.0, 1.92, 0.0, 1.12
    kinds = {"plain": 0.34, "hoops": 0.2, "stripes": 0.18, "checks": 0.14, "dots": 0.14}
    details = {"plain": 0.3, "buttons": 0.25, "zip": 0.15, "print": 0.3}
    u = rng.random(4)
    if outfit == "casual":
        sleeve = (0.0, 0.6, 0.7, 2.0, 1.94)[int(u[0] * 5)]
        leg = (0.55, 0.85, 1.9, 1.92, 1.94)[int(u[1] * 5)]
    elif outfit == "sports":
        sleeve, leg, loose = (0.0, 0.5, 0.65)[int(u[0] * 3)], (0.45, 0.7, 1.3, 1.95)[int(u[1] * 4)], 1.06
        kinds = {"plain": 0.5, "stripes": 0.25, "hoops": 0.25}
        details = {"plain": 0.4, "print": 0.6}
    elif outfit == "dress":
        sleeve, leg, skirt = (0.0, 0.5, 1.9)[int(u[0] * 3)], 0.0, 0.75 + 0.7 * float(u[1])
    elif outfit == "gown":
        sleeve, leg, skirt, loose = 0.85 + 0.5 * float(u[0]), 0.0, 0.9 + 0.75 * float(u[1]), 1.35
        kinds = {"plain": 0.35, "dots": 0.4, "checks": 0.15, "stripes": 0.1}
        details = {"plain": 0.8, "collar": 0.2}
    elif outfit == "pyjamas":
        sleeve, leg, loose = (0.8, 1.9)[int(u[0] * 2)], 1.9, 1.28
        kinds = {"stripes": 0.5, "checks": 0.2, "plain": 0.2, "dots": 0.1}
        details = {"buttons": 0.7, "plain": 0.3}
    elif outfit == "uniform":
        sleeve, leg, loose = (0.75, 1.85)[int(u[0] * 2)], 1.94, 1.16
        kinds = {"plain": 0.85, "stripes": 0.15}
        details = {"badge": 0.5, "collar": 0.3, "zip": 0.2}
    top = _garment(rng, population, loose, kinds)
    matching = outfit in ("dress", "gown", "pyjamas") or (outfit == "uniform" and u[2] < 0.6)
    bottom = top if matching else _garment(rng, population, loose, {"plain": 0.72, "stripes": 0.14, "checks": 0.14})
    v = rng.random(10)
    return Look(
        size=size,
        skin=skin,
        hair=hair,
        hair_style=choose(rng, {"short": 0.4, "long": 0.22, "curly": 0.12, "bun": 0.1, "bald": 0.1, "cap": 0.06}),
        hairline=0.15 + 0.3 * float(v[0]),
        eyes=_EYES[int(v[1] * len(_EYES))],
        eye_gap=0.3 + 0.12 * float(v[2]),
        eye_size=0.011 + 0.005 * float(v[3]),
        brow=0.6 + 0.8 * float(v[4]),
        nose=0.7 + 0.6 * float(v[5]),
        mouth=0.16 + 0.14 * float(v[6]),
        lips=mix(skin, (170, 60, 70), 0.35 + 0.3 * float(v[7])),
        glasses=bool(v[8] < 0.25),
        beard=float(v[9] - 0.75) * 4 if v[9] > 0.78 else 0.0,
        top=top,
        bottom=bottom,
        sleeve=sleeve,
        leg=leg,
        skirt=skirt,
        detail=choose(rng, details),
        accent=hsv(float(u[3]), within(rng, population.cloth_saturation), within(rng, population.cloth_value)),
        shoes=hsv(float(rng.random()), 0.3 * float(rng.random()), within(rng, (0.12, 0.9))),
        socks=hsv(float(rng.random()), 0.3, within(rng, (0.3, 0.95))),
    )
