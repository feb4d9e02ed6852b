"""Avatars: people who do not exist, to stand where somebody stood.

An avatar is a look and a build, chosen by a public draw that is keyed by what names a clip in public: never by anything that the clip
shows. It keeps nothing of the person but the pose that it is drawn in, and is the same person through all frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.data.figures.draw import Colour
from halfmask.data.figures.subjects import Garment
from halfmask.data.keyed import record_id, uniforms

HAIR_STYLES = ("bald", "short", "curly", "long", "bun", "cap")


@dataclass(frozen=True)
class Avatar:
    """One person who does not exist.

    Attributes:
        hair_style: one of `HAIR_STYLES`.
        sleeve: how far sleeves reach: 0 none, 1 to the elbow, 2 to the wrist.
        leg: how far trousers reach: 1 to the knee, 2 to the ankle.
        skirt: how far a skirt reaches along the leg: 0 none, 1 knee, 2 ankle.
        build: thickness of limbs and trunk relative to the average.
        light: +1 if what lies to the right of the image is in shade, −1 if what lies to the left is.
    """

    skin: Colour
    hair: Colour
    hair_style: str
    top: Garment
    bottom: Garment
    sleeve: float
    leg: float
    skirt: float
    shoes: Colour
    build: float
    light: float


# From light to dark, each once in six avatars, so that none goes with one kind of clothes.
_SKINS: tuple[Colour, ...] = ((244, 214, 190), (228, 184, 152), (206, 158, 120), (172, 120, 84), (126, 84, 58), (84, 58, 46))
_HAIRS: tuple[Colour, ...] = ((32, 27, 25), (74, 50, 34), (150, 110, 62), (208, 178, 116), (138, 66, 38), (190, 190, 190), (46, 36, 60))
_CLOTHS: dict[str, Colour] = {
    "red": (190, 44, 48),
    "orange": (226, 128, 44),
    "yellow": (228, 198, 70),
    "lime": (142, 190, 66),
    "green": (46, 122, 72),
    "teal": (40, 142, 144),
    "sky": (110, 174, 222),
    "blue": (46, 84, 168),
    "navy": (34, 42, 82),
    "purple": (112, 62, 150),
    "pink": (226, 134, 168),
    "wine": (112, 30, 52),
    "brown": (112, 78, 52),
    "beige": (212, 194, 160),
    "white": (236, 236, 232),
    "grey": (132, 134, 138),
    "black": (38, 38, 42),
}
# Top: colour, pattern, second colour. Bottom: colour, pattern. Sleeve, leg and skirt, build, hair style.
_ROWS: tuple[tuple[str, str, str, str, str, float, float, float, float, str], ...] = (
    ("red", "plain", "white", "navy", "plain", 0.6, 1.94, 0.0, 1.00, "short"),
    ("white", "hoops", "blue", "grey", "plain", 2.0, 1.92, 0.0, 0.86, "long"),
    ("green", "checks", "beige", "brown", "plain", 1.9, 1.92, 0.0, 1.18, "cap"),
    ("yellow", "plain", "white", "black", "plain", 0.0, 0.80, 0.0, 0.92, "bun"),
    ("purple", "dots", "white", "purple", "dots", 0.5, 0.00, 0.9, 0.90, "long"),
    ("sky", "stripes", "white", "sky", "stripes", 1.9, 1.90, 0.0, 1.10, "bald"),
    ("black", "plain", "red", "beige", "plain", 1.94, 1.94, 0.0, 1.26, "short"),
    ("pink", "plain", "white", "white", "plain", 0.6, 0.60, 0.0, 0.84, "curly"),
    ("orange", "hoops", "black", "navy", "plain", 0.7, 1.94, 0.0, 1.08, "short"),
    ("teal", "plain", "white", "grey", "checks", 2.0, 1.90, 0.0, 0.96, "bun"),
    ("beige", "dots", "brown", "wine", "plain", 1.9, 0.00, 1.2, 1.04, "long"),
    ("navy", "stripes", "white", "beige", "plain", 1.9, 1.94, 0.0, 1.22, "bald"),
    ("lime", "plain", "black", "black", "plain", 0.0, 0.55, 0.0, 1.02, "cap"),
    ("grey", "checks", "white", "blue", "plain", 0.7, 1.92, 0.0, 0.88, "curly"),
    ("wine", "plain", "white", "wine", "plain", 2.0, 1.94, 0.0, 1.14, "short"),
    ("blue", "dots", "yellow", "blue", "dots", 0.0, 0.00, 0.8, 0.82, "long"),
    ("white", "plain", "grey", "black", "plain", 1.9, 1.94, 0.0, 1.06, "bun"),
    ("brown", "stripes", "orange", "green", "plain", 2.0, 1.90, 0.0, 1.30, "cap"),
    ("sky", "plain", "white", "navy", "plain", 0.5, 0.85, 0.0, 0.94, "short"),
    ("red", "checks", "black", "grey", "plain", 1.94, 1.92, 0.0, 1.16, "curly"),
    ("teal", "hoops", "yellow", "white", "plain", 0.65, 1.30, 0.0, 0.87, "long"),
    ("black", "dots", "white", "black", "plain", 0.0, 0.00, 1.5, 0.93, "bun"),
    ("yellow", "stripes", "red", "blue", "plain", 0.7, 1.94, 0.0, 1.20, "bald"),
    ("purple", "plain", "white", "beige", "plain", 1.9, 1.92, 0.0, 1.01, "short"),
    ("green", "plain", "white", "green", "plain", 0.75, 1.94, 0.0, 0.98, "curly"),
    ("orange", "checks", "white", "brown", "stripes", 2.0, 1.90, 0.0, 1.12, "cap"),
    ("pink", "hoops", "wine", "pink", "hoops", 1.9, 1.90, 0.0, 0.91, "long"),
    ("grey", "plain", "white", "red", "plain", 0.0, 0.65, 0.0, 1.05, "short"),
    ("beige", "plain", "white", "navy", "checks", 1.94, 1.94, 0.0, 1.24, "bun"),
    ("blue", "plain", "white", "white", "plain", 0.6, 0.00, 0.7, 0.85, "curly"),
    ("lime", "stripes", "green", "grey", "plain", 0.7, 1.92, 0.0, 0.99, "bald"),
    ("wine", "dots", "beige", "black", "plain", 2.0, 1.94, 0.0, 1.09, "long"),
    ("navy", "plain", "white", "orange", "plain", 0.5, 0.75, 0.0, 1.17, "short"),
    ("white", "checks", "green", "teal", "plain", 1.9, 1.90, 0.0, 0.89, "cap"),
    ("brown", "plain", "white", "sky", "plain", 0.7, 1.94, 0.0, 1.03, "curly"),
    ("teal", "dots", "navy", "teal", "dots", 1.2, 0.00, 1.3, 1.13, "bun"),
)
_SHOES = ("black", "white", "brown", "red", "grey", "navy", "beige")


def _made(number: int) -> Avatar:
    cloth, top, second, below, bottom, sleeve, leg, skirt, build, hair_style = _ROWS[number]
    period = 0.07 + 0.015 * (number % 4)
    loose = 1.06 + 0.05 * (number % 5)
    return Avatar(
        # Steps that share no factor with the lengths of the lists: every skin meets every kind of hair and clothes in time.
        skin=_SKINS[(number * 5 + number // 6) % len(_SKINS)],
        hair=_HAIRS[(number * 3) % len(_HAIRS)],
        hair_style=hair_style,
        top=Garment(_CLOTHS[cloth], _CLOTHS[second], top, period, loose),
        bottom=Garment(_CLOTHS[below], _CLOTHS[second] if bottom == top else _CLOTHS["grey"], bottom, period, loose),
        sleeve=sleeve,
        leg=leg,
        skirt=skirt,
        shoes=_CLOTHS[_SHOES[number % len(_SHOES)]],
        build=build,
        light=1.0 if number % 2 else -1.0,
    )


AVATARS: tuple[Avatar, ...] = tuple(_made(number) for number in range(len(_ROWS)))
"""In an order that stays: a clip's avatar is a place in it."""


def avatar_of(key: str | int) -> Avatar:
    """The avatar of whatever is named by the key: a clip, a video or a subject.

    The draw is public, and the key must be: anyone who knows the keys of two clips knows whether they share an avatar, and nothing else.
    """
    drawn = float(uniforms(0, "avatars", 0, np.array([record_id("avatar", key)], np.uint64))[0, 0])
    return AVATARS[int(drawn * len(AVATARS))]
