"""The three populations, and every number in which they differ.

``public`` stands for pictures anyone may use: bright rooms, eye-level cameras, people standing and moving.
``private`` stands for the pictures to be protected: clinics and homes, dim and tinted light, a camera high on
the wall, pale clothes before pale walls, people sitting, lying and bending behind furniture. ``test`` holds
other people from the private distribution, in the same buildings. Pre-training on the public people is thus
useful but not enough, which is the situation in which private training is worth its cost.

To move the populations closer together or further apart, change the numbers here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Range = tuple[float, float]


@dataclass(frozen=True)
class Population:
    """The distribution one population is drawn from. Ranges are uniform unless said otherwise."""

    name: str
    index: int
    """Number of the population: the thousands-separator of subject and image ids."""
    building: int
    """Populations with the same building share their rooms."""

    # Who
    images_per_subject: float
    height: tuple[float, float]
    """Mean and standard deviation, in metres."""
    build: Range
    outfits: dict[str, float]
    """Weights of casual, sports, dress, gown, pyjamas and uniform."""
    cloth_saturation: Range
    cloth_value: Range
    pattern_contrast: Range
    """How far the second colour of a pattern stands out, 0 to 1."""
    wall_clothes: float
    """Probability that a garment takes a hue from the family of the walls: camouflage."""

    # Where
    rooms: int
    room_kinds: dict[str, float]
    wall_saturation: Range
    wall_value: Range
    clutter: Range
    """How much hangs and stands about, 0 to 1."""

    # What
    actions: dict[str, float]
    manner: float
    """How far people stray from the textbook movement."""
    people: tuple[float, float, float]
    """Probabilities of one, two and three people."""
    occlusion: float
    """Probability of something in front of each person."""

    # Seen how
    pitch: Range
    roll: float
    """Standard deviation in degrees."""
    distance: Range
    frontal: float
    """Share of people that more or less face the camera; the rest face anywhere."""

    # In which light
    gain: Range
    tints: tuple[tuple[float, float, float], ...]
    gradient: Range
    noise: Range
    blur: Range
    """Softness of the lens, as the sigma of a Gaussian in pixels."""

    # Cut out how
    box_shift: float
    box_scale: float
    """Standard deviations of the detector's error, as a share of the box."""
    cut: float
    """Probability that the box misses part of the person."""


PUBLIC = Population(
    name="public",
    index=0,
    building=0,
    images_per_subject=8.0,
    height=(1.74, 0.09),
    build=(0.8, 1.2),
    outfits={"casual": 0.62, "sports": 0.28, "dress": 0.10},
    cloth_saturation=(0.25, 0.95),
    cloth_value=(0.35, 0.98),
    pattern_contrast=(0.25, 0.9),
    wall_clothes=0.12,
    rooms=48,
    room_kinds={"studio": 0.4, "street": 0.3, "gym": 0.3},
    wall_saturation=(0.05, 0.45),
    wall_value=(0.55, 0.95),
    clutter=(0.2, 0.7),
    actions={
        "stand": 0.15,
        "walk": 0.15,
        "run": 0.10,
        "wave": 0.10,
        "reach": 0.08,
        "phone": 0.08,
        "box": 0.08,
        "kick": 0.06,
        "jumping_jack": 0.07,
        "squat": 0.05,
        "bend": 0.04,
        "sit": 0.05,
        "lie": 0.015,
    },
    manner=0.9,
    people=(0.70, 0.25, 0.05),
    occlusion=0.15,
    pitch=(-3.0, 14.0),
    roll=2.5,
    distance=(3.2, 5.2),
    frontal=0.6,
    gain=(0.78, 1.15),
    tints=((1.0, 1.0, 1.0), (1.03, 1.0, 0.96), (0.97, 1.0, 1.04)),
    gradient=(0.0, 0.3),
    noise=(2.0, 6.0),
    blur=(0.0, 0.6),
    box_shift=0.02,
    box_scale=0.05,
    cut=0.05,
)

PRIVATE = Population(
    name="private",
    index=1,
    building=1,
    images_per_subject=8.0,
    height=(1.67, 0.11),
    build=(0.76, 1.28),
    outfits={"gown": 0.27, "pyjamas": 0.31, "uniform": 0.24, "casual": 0.18},
    cloth_saturation=(0.05, 0.45),
    cloth_value=(0.45, 0.95),
    pattern_contrast=(0.08, 0.4),
    wall_clothes=0.45,
    rooms=48,
    room_kinds={"clinic": 0.4, "ward": 0.3, "home": 0.3},
    wall_saturation=(0.04, 0.35),
    wall_value=(0.5, 0.92),
    clutter=(0.4, 1.0),
    actions={
        "stand": 0.11,
        "walk": 0.13,
        "run": 0.015,
        "wave": 0.07,
        "reach": 0.10,
        "phone": 0.06,
        "box": 0.015,
        "kick": 0.04,
        "jumping_jack": 0.02,
        "squat": 0.09,
        "bend": 0.11,
        "sit": 0.15,
        "lie": 0.06,
    },
    manner=1.1,
    people=(0.70, 0.25, 0.05),
    occlusion=0.3,
    pitch=(6.0, 26.0),
    roll=4.5,
    distance=(3.0, 4.8),
    frontal=0.5,
    gain=(0.6, 0.98),
    tints=((1.12, 1.0, 0.8), (0.86, 1.04, 0.96), (0.84, 0.97, 1.14), (1.08, 0.97, 0.94)),
    gradient=(0.05, 0.45),
    noise=(4.0, 9.0),
    blur=(0.1, 0.8),
    box_shift=0.025,
    box_scale=0.06,
    cut=0.07,
)

TEST = replace(PRIVATE, name="test", index=2)
"""The private distribution itself: what tells ``test`` apart is only who is in it."""

BY_NAME: dict[str, Population] = {p.name: p for p in (PUBLIC, PRIVATE, TEST)}
POPULATIONS: tuple[str, ...] = tuple(BY_NAME)


def choose(rng: np.random.Generator, weights: dict[str, float]) -> str:
    """Draw a name with the given weights; they need not add up to one."""
    u = rng.random() * sum(weights.values())
    for name, weight in weights.items():
        u -= weight
        if u < 0:
            return name
    return next(reversed(weights))


def within(rng: np.random.Generator, bounds: Range) -> float:
    """Draw uniformly from a range."""
    return float(bounds[0] + (bounds[1] - bounds[0]) * rng.random())
