"""Movements: what the people of clips do, each a pose over time.

Some go round and round (walking, waving) and begin anywhere; others go one way, from a first to a last pose (sitting down). Several of
those are another one backwards in time, pose for pose: no single frame tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import cos, pi, sin

import numpy as np

from halfmask.data.figures.actions import L_ARM, L_LEG, R_ARM, R_LEG, Manner, act
from halfmask.data.figures.skeleton import Pose

Range = tuple[float, float]


@dataclass(frozen=True)
class Movement:
    """One movement: ``pose(t, manner)`` over its cycle, or from 0 to 1 where it goes one way."""

    pose: Callable[[float, Manner], Pose]
    cycles: Range | None = None
    """How many cycles a clip shows; None for a movement that goes one way."""
    back: bool = False
    """Whether it is ``pose`` backwards in time."""
    speed: float = 0.0
    """Metres that the person moves forwards in a cycle."""
    spin: float = 0.0
    """Degrees that the person turns in a cycle."""
    support: str = ""
    """What carries the person at the end: ``chair`` or ``bed``. It stands there from the first frame on."""
    held: str = ""
    """What they have in their hand."""
    handed: bool = False
    """Whether one hand does it all."""
    view: str = "front"
    """From where it is seen: ``front``, ``side`` or ``turned`` (in between)."""


def _swing(t: float, shift: float = 0.0) -> float:
    return sin(2 * pi * (t + shift))


def _round(t: float) -> float:
    """From 0 to 1 and back over one cycle, resting at the ends."""
    return 0.5 - 0.5 * cos(2 * pi * t)


def hands(m: Manner) -> tuple[int, int]:
    """The rows of the leading arm and of the other one."""
    return (L_ARM, R_ARM) if m.left else (R_ARM, L_ARM)


def blend(a: Pose, b: Pose, weight: float) -> Pose:
    """The pose a share ``weight`` of the way from ``a`` to ``b``."""

    def three(x: tuple[float, float, float], y: tuple[float, float, float]) -> tuple[float, float, float]:
        return (x[0] + (y[0] - x[0]) * weight, x[1] + (y[1] - x[1]) * weight, x[2] + (y[2] - x[2]) * weight)

    root = (a.root[0] + (b.root[0] - a.root[0]) * weight, a.root[1] + (b.root[1] - a.root[1]) * weight)
    limbs = a.limbs + (b.limbs - a.limbs) * weight
    return Pose(limbs, three(a.spine, b.spine), three(a.neck, b.neck), root, a.lift + (b.lift - a.lift) * weight)


def _of(name: str) -> Callable[[float, Manner], Pose]:
    """A movement that the pictures of the pose world know too."""
    return lambda t, m: act(name, t, m)


def upright(t: float, m: Manner) -> Pose:
    """Standing with the arms at the sides."""
    return act("stand", t, replace(m, variant=0.4 * m.variant))


def _march(t: float, m: Manner) -> Pose:
    pose = Pose(spine=(2 + m.lean * 0.4, 0.0, 0.0))
    for leg, arm, shift in ((R_LEG, L_ARM, 0.0), (L_LEG, R_ARM, 0.5)):
        up = max(0.0, _swing(t, shift))
        pose.limbs[leg] = [82 * up * m.amplitude, 3, 4, 92 * up * m.amplitude + 3, 0]
        pose.limbs[arm] = [-12 + 62 * up * m.amplitude, 6, 0, 20 + 45 * up, 0]
    return pose


def _reach(t: float, m: Manner) -> Pose:
    pose = upright(t, m)
    lead, other = hands(m)
    up = _round(t)
    pose.limbs[lead] = [22 + 118 * up * m.amplitude**0.3, 8, 0, 52 * (1 - up) + 4, 0]
    pose.limbs[other] = [6, 10, 0, 16, 0]
    pose.spine = (2 - 4 * up, 7 * up * (1 if lead == R_ARM else -1), 8 * up * (1 if lead == R_ARM else -1))
    pose.neck = (-16 * up, 0.0, 0.0)
    return pose


def _stretch(t: float, m: Manner) -> Pose:
    """Both arms sideways and up."""
    pose = upright(t, m)
    up = _round(t)
    pose.limbs[:2] = [2, 12 + 150 * up * m.amplitude**0.3, 20, 8, 0]
    pose.spine = (2 - 6 * up, 0.0, 0.0)
    pose.neck = (-8 * up, 0.0, 0.0)
    return pose


def _drink(t: float, m: Manner) -> Pose:
    pose = upright(t, m)
    lead, other = hands(m)
    up = _round(t) ** 0.8
    low, mouth = np.array([8.0, 8, -12, 80, 0]), np.array([70.0, 34, -6, 131, 0])
    pose.limbs[lead] = low + (mouth - low) * up
    pose.limbs[other] = [4, 9, 0, 14, 0]
    pose.neck = (6 - 26 * up**3, 0.0, 0.0)
    return pose


def _brush_teeth(t: float, m: Manner) -> Pose:
    pose = upright(0.0, m)
    lead, other = hands(m)
    rub = _swing(2 * t)
    pose.limbs[lead] = [66 + 6 * rub, 52 + 32 * rub * m.amplitude, 8 + 20 * rub, 126 - 14 * rub, 0]
    pose.limbs[other] = [22, 12, -18, 62, 0]
    pose.root = (6.0, 0.0)
    pose.limbs[2:, 0] += 6
    pose.spine = (10 + m.lean * 0.4, 0.0, 3 * rub)
    pose.neck = (6.0, 0.0, 3 * rub)
    return pose


def _phone(t: float, m: Manner) -> Pose:
    pose = upright(t, m)
    lead, other = hands(m)
    pose.limbs[lead] = [36 + 3 * _swing(t), 62, 32, 141, 0]
    pose.limbs[other] = [16 + 24 * _round(t) * m.amplitude, 14, -15, 45 + 40 * _round(t), 0]
    pose.neck = (4.0, -10.0 if lead == R_ARM else 10.0, 8 * _swing(t, 0.2))
    return pose


def _wash_hands(t: float, m: Manner) -> Pose:
    pose = upright(0.0, m)
    rub = _swing(2 * t)
    for arm, sign in ((R_ARM, 1.0), (L_ARM, -1.0)):
        pose.limbs[arm] = [22 + 15 * sign * rub * m.amplitude, 10, -34, 68 + 18 * sign * rub * m.amplitude, 0]
    pose.root = (14.0, 0.0)
    pose.limbs[2:, 0] += 14
    pose.spine = (20 + m.lean * 0.4, 0.0, 4 * rub)
    pose.neck = (16.0, 0.0, 0.0)
    return pose


def _stir(t: float, m: Manner) -> Pose:
    pose = upright(0.0, m)
    lead, other = hands(m)
    pose.limbs[lead] = [32 + 16 * _swing(t), 16 + 14 * _swing(t, 0.25), -16 - 14 * _swing(t, 0.25), 80 + 14 * _swing(t), 0]
    pose.limbs[other] = [24, 10, -34, 74, 0]
    pose.spine = (12.0, 0.0, 5 * _swing(t))
    pose.neck = (14.0, 0.0, 0.0)
    return pose


def _clap(t: float, m: Manner) -> Pose:
    pose = upright(0.0, m)
    apart = _round(t)
    pose.limbs[:2] = [52, 14 + 26 * apart * m.amplitude, -44 + 52 * apart * m.amplitude, 62, 0]
    return pose


def _throw(t: float, m: Manner) -> Pose:
    pose = upright(0.0, m)
    lead, other = hands(m)
    sign = 1 if lead == R_ARM else -1
    back = _round(t) ** 2
    pose.limbs[lead] = [64 - 20 * back, 14 + 66 * back, 8 + 84 * back, 14 + 84 * back, 0]
    pose.limbs[other] = [18 + 46 * back, 18, 0, 22, 0]
    pose.limbs[lead + 2] = [-14, 6, 8, 12, 0]
    pose.limbs[other + 2] = [16 + 14 * back, 6, 6, 14, 0]
    pose.spine = (14 - 20 * back, 0.0, sign * (18 - 52 * back))
    return pose


def sitting(m: Manner) -> Pose:
    """Sitting with the hands in the lap."""
    pose = Pose(root=(-8.0, 0.0), spine=(12 + m.lean, 0.0, 0.0), neck=(8.0, 0.0, 0.0))
    pose.limbs[2:] = [80, 8 + 6 * m.variant, 6, 84, 0]
    pose.limbs[:2] = [30, 8, -14, 56, 0]
    return pose


def lying(m: Manner) -> Pose:
    """Lying on the back, one knee drawn up a little."""
    lead, other = hands(m)
    pose = Pose(root=(-84.0, 0.0), spine=(8.0, 0.0, 0.0), neck=(12.0, 0.0, 0.0), rest="bed")
    pose.limbs[2:] = [4, 7, 8, 6, 0]
    pose.limbs[lead + 2] = [8 + 34 * m.variant, 8, 10, 12 + 62 * m.variant, 0]
    pose.limbs[lead] = [22, 14, -50, 70, 0]
    pose.limbs[other] = [8, 18, 0, 22, 0]
    return pose


def _sit_down(s: float, m: Manner) -> Pose:
    pose = blend(upright(0.0, m), sitting(m), s)
    lean = 34 * sin(pi * s) ** 1.2  # nobody can sit down upright: they would fall over backwards
    pose.root = (pose.root[0] + lean, 0.0)
    pose.limbs[2:, 0] += lean
    pose.limbs[:2, 0] += 0.6 * lean
    pose.neck = (pose.neck[0] - 0.5 * lean, 0.0, 0.0)
    return pose


def _pick_up(s: float, m: Manner) -> Pose:
    """Down to the floor in the first half and up again, carrying something, in the second."""
    lead, other = hands(m)
    low = sin(pi * min(1.0, max(0.0, s))) ** 1.3
    pose = upright(0.0, m)
    bow, knees = 48 * low, (40 + 50 * m.variant) * low
    pose.root = (bow, 0.0)
    pose.spine = (2 + 34 * low, 0.0, 10 * low * (1 if m.left else -1))
    pose.limbs[2:] = [2 + bow + 0.5 * knees, 5, 6, knees + 4, 0]
    carry = np.array([14.0, 9, -20, 84, 0]) if s > 0.5 else np.array([4.0, 8, 0, 12, 0])
    pose.limbs[lead] = carry + (np.array([76.0, 6, 0, 6, 0]) - carry) * low
    pose.limbs[other] = np.array([4.0, 8, 0, 12, 0]) + np.array([16.0, 8, -20, 40, 0]) * low
    pose.neck = (-14 * low, 0.0, 0.0)
    return pose


_CARE: dict[str, Movement] = {
    "walk": Movement(_of("walk"), (0.9, 1.4), speed=0.75, view="side"),
    "sit_down": Movement(_sit_down, support="chair", view="turned"),
    "stand_up": Movement(_sit_down, back=True, support="chair", view="turned"),
    "drink": Movement(_drink, (0.8, 1.3), held="mug", view="turned", handed=True),
    "phone": Movement(_phone, (0.7, 1.3), held="phone", handed=True),
    "pick_up": Movement(_pick_up, held="box", view="turned", handed=True),
    "put_down": Movement(_pick_up, back=True, held="box", view="turned", handed=True),
    "reach": Movement(_reach, (0.8, 1.3), view="turned", handed=True),
    "lie_down": Movement(_sit_down, support="bed"),
    "get_up": Movement(_sit_down, back=True, support="bed"),
    "wash_hands": Movement(_wash_hands, (0.7, 1.1), view="turned"),
    "brush_teeth": Movement(_brush_teeth, (0.7, 1.1), held="brush", view="turned", handed=True),
    "wave": Movement(lambda t, m: act("wave", t, replace(m, variant=0.4 * m.variant)), (0.7, 1.1), handed=True),
    "stretch": Movement(_stretch, (0.8, 1.3)),
    "march": Movement(_march, (1.0, 1.6), view="turned"),
    "squat": Movement(_of("squat"), (0.8, 1.3), view="turned"),
}
_OTHERS: dict[str, Movement] = {
    "walk_backwards": Movement(_of("walk"), (0.9, 1.4), back=True, speed=0.75, view="side"),
    "run": Movement(_of("run"), (1.1, 1.7), speed=0.85, view="side"),
    "bend": Movement(_of("bend"), (0.8, 1.3), view="turned"),
    "kick": Movement(_of("kick"), (0.9, 1.5), view="turned"),
    "box": Movement(_of("box"), (1.0, 1.8), view="turned"),
    "jumping_jack": Movement(_of("jumping_jack"), (1.0, 1.7)),
    "clap": Movement(_clap, (1.4, 2.4), view="turned"),
    "throw": Movement(_throw, (0.9, 1.4), view="turned", handed=True),
    "stir": Movement(_stir, (1.2, 2.0), held="brush", view="turned", handed=True),
    "turn": Movement(upright, (0.6, 1.1), spin=360.0),
}
TABLE: dict[str, Movement] = _CARE | _OTHERS

MOVEMENTS: tuple[str, ...] = tuple(TABLE)
"""All that the public performs."""
CARE_ACTIONS: tuple[str, ...] = tuple(_CARE)
"""What the private and the test population perform, from the most to the least frequent of an ordinary day."""
