"""What people do: each action is a smooth, periodic pose over a phase t in [0, 1).

The actions are told apart by how the pose changes, not by one frame alone: a raised arm may be a wave, a
reach or a jumping jack. Every performer does them in a *manner* of their own (amplitude, lean, which hand):
an action is a family of movements and not one film.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np

from halfmask.data.figures.skeleton import Pose

ACTIONS: tuple[str, ...] = (
    "stand",
    "walk",
    "run",
    "wave",
    "reach",
    "phone",
    "box",
    "kick",
    "jumping_jack",
    "squat",
    "bend",
    "sit",
    "lie",
)
"""The names, in the order in which a :class:`~halfmask.data.figures.scene.Figure` counts them."""

R_ARM, L_ARM, R_LEG, L_LEG = range(4)


@dataclass(frozen=True)
class Manner:
    """How one performer does an action: constant over a clip, drawn anew for each image."""

    amplitude: float
    """Size of the movement, about 0.75 to 1.25."""
    left: bool
    """Whether the leading hand or foot is the left one."""
    lean: float
    """Degrees of habitual stoop."""
    look: tuple[float, float]
    """Where the head points: nod and turn, in degrees."""
    offsets: np.ndarray
    """Degrees added to the limb angles (4×5)."""
    variant: float
    """A number in [0, 1) that picks between the forms an action can take."""


def draw_manner(rng: np.random.Generator, spread: float) -> Manner:
    """Draw a manner; ``spread`` scales how far people stray from the textbook movement."""
    offsets = rng.normal(0.0, 1.0, (4, 5)) * np.array([7.0, 4.0, 9.0, 7.0, 6.0]) * spread
    offsets[2:] *= 0.55
    u = rng.random(4)
    turn, nod = rng.normal(0.0, 1.0, 2)
    return Manner(
        amplitude=float(0.78 + 0.44 * u[0]),
        left=bool(u[1] < 0.4),
        lean=float((u[2] - 0.3) * 10.0 * spread),
        look=(float(nod * 9.0 * spread), float(turn * 22.0 * spread)),
        offsets=offsets,
        variant=float(u[3]),
    )


def _wave(t: float, shift: float = 0.0) -> float:
    return sin(2 * pi * (t + shift))


def _ease(t: float) -> float:
    """From 0 to 1 and back over one period, resting at the ends."""
    return 0.5 - 0.5 * cos(2 * pi * t)


def _stand(t: float, m: Manner, pose: Pose) -> None:
    sway = 2.5 * _wave(t)
    pose.root = (m.lean * 0.3, 0.0)
    pose.spine = (2 + m.lean * 0.5, sway, 3 * _wave(t, 0.2))
    if m.variant < 0.45:  # arms at the sides
        pose.limbs[:2] = [4, 8, 0, 12, 0]
    elif m.variant < 0.65:  # hands on the hips
        pose.limbs[:2] = [-18, 42, -48, 88, 0]
    elif m.variant < 0.85:  # arms folded
        pose.limbs[:2] = [32, 12, -62, 98, 0]
    else:  # hands behind the back
        pose.limbs[:2] = [-28, 14, -40, 42, 0]
    pose.limbs[2:] = [2, 5, 8, 4, 0]
    pose.limbs[R_LEG, 1] += sway
    pose.limbs[L_LEG, 1] -= sway


def _gait(t: float, m: Manner, pose: Pose, stride: float, fold: float, arms: float, elbow: float) -> None:
    a = m.amplitude
    for leg, arm, shift in ((R_LEG, L_ARM, 0.0), (L_LEG, R_ARM, 0.5)):
        swing = _wave(t, shift)
        lifted = max(0.0, _wave(t, shift + 0.22)) ** 1.5
        pose.limbs[leg] = [stride * a * swing + 0.25 * fold * lifted, 2, 4, 6 + fold * a * lifted, 0]
        pose.limbs[arm] = [arms * a * swing, 7, 0, elbow + 0.35 * arms * (1 + swing), 0]
    pose.spine = (3 + m.lean * 0.5, 0.0, 7 * a * _wave(t, 0.5))


def _walk(t: float, m: Manner, pose: Pose) -> None:
    _gait(t, m, pose, stride=26, fold=48, arms=24, elbow=12)
    pose.root = (2.0, 0.0)


def _run(t: float, m: Manner, pose: Pose) -> None:
    _gait(t, m, pose, stride=42, fold=96, arms=44, elbow=72)
    pose.root = (9.0, 0.0)
    pose.lift = 0.07 * abs(_wave(t, 0.1))


def _hand(m: Manner) -> tuple[int, int]:
    return (L_ARM, R_ARM) if m.left else (R_ARM, L_ARM)


def _wave_hand(t: float, m: Manner, pose: Pose) -> None:
    _stand(t, m, pose)
    lead, other = _hand(m)
    pose.limbs[other] = [4, 9, 0, 14, 0]
    high = 40 * m.variant
    pose.limbs[lead] = [8, 72 + high, 88 + 4 * _wave(t), 78 - 0.8 * high + 36 * m.amplitude * _wave(2 * t), 0]


def _reach(t: float, m: Manner, pose: Pose) -> None:
    _stand(t, m, pose)
    lead, other = _hand(m)
    up = _ease(t)
    pose.limbs[lead] = [25 + 140 * up * m.amplitude**0.3, 10 + 8 * up, 0, 38 * (1 - up) + 6, 0]
    pose.limbs[other] = pose.limbs[lead] if m.variant > 0.6 else [6, 10, 0, 16, 0]
    pose.spine = (2 - 6 * up, 6 * up * (1 if lead == R_ARM else -1) * (m.variant <= 0.6), 0.0)
    pose.neck = (-18 * up, 0.0, 0.0)


def _phone(t: float, m: Manner, pose: Pose) -> None:
    if m.variant > 0.5:
        _walk(t, m, pose)
    else:
        _stand(t, m, pose)
    lead, other = _hand(m)
    pose.limbs[lead] = [38 + 4 * _wave(t), 30, 10, 138 + 4 * _wave(t, 0.3), 0]
    if m.variant <= 0.5:
        pose.limbs[other] = [22 + 24 * _ease(2 * t), 14, -15, 55 + 32 * _wave(2 * t), 0]
    pose.neck = (4.0, -9.0 if lead == R_ARM else 9.0, 0.0)


def _box(t: float, m: Manner, pose: Pose) -> None:
    lead, other = _hand(m)
    jab, cross = _ease(t) ** 3, _ease(t + 0.5) ** 3
    for arm, punch in ((lead, jab), (other, cross)):
        pose.limbs[arm] = [42 + 46 * punch, 16 - 8 * punch, -8, 128 - 116 * punch * m.amplitude**0.2, -6]
    sign = 1 if lead == R_ARM else -1
    pose.spine = (10 + m.lean, 0.0, sign * 22 * (jab - cross))
    front, back = (R_LEG, L_LEG) if lead == R_ARM else (L_LEG, R_LEG)
    pose.limbs[front] = [24, 8, 10, 26, 0]
    pose.limbs[back] = [-14, 10, 18, 24, 0]


def _kick(t: float, m: Manner, pose: Pose) -> None:
    lead, other = _hand(m)
    leg, stance = lead + 2, other + 2
    up = _ease(t) ** 1.5
    back = max(0.0, _wave(t, 0.55)) * 22
    pose.limbs[leg] = [
        -back + 84 * up * m.amplitude,
        6 + 16 * m.variant * up,
        0,
        8 + 62 * up * (1 - up) + back,
        0,
    ]
    pose.limbs[stance] = [4, 4, 10, 10, 0]
    pose.limbs[lead] = [-22 * up, 26 + 18 * up, 0, 30, 0]
    pose.limbs[other] = [16 + 44 * up, 24, 0, 40, 0]
    pose.root = (-14 * up, 0.0)
    pose.spine = (6 + 8 * up, 0.0, 0.0)


def _jack(t: float, m: Manner, pose: Pose) -> None:
    out = _ease(t)
    pose.limbs[:2] = [0, 10 + 145 * out * m.amplitude**0.3, 20, 14, 0]
    pose.limbs[2:] = [2, 3 + 24 * out * m.amplitude, 6, 5, 0]
    pose.lift = 0.12 * abs(_wave(t))


def _squat(t: float, m: Manner, pose: Pose) -> None:
    low = 0.35 + 0.65 * _ease(t)
    pose.limbs[2:] = [92 * low, 14 + 8 * m.variant, 12, 108 * low, 0]
    pose.root = (20 * low, 0.0)
    pose.spine = (16 * low, 0.0, 0.0)
    pose.neck = (-18 * low, 0.0, 0.0)
    pose.limbs[:2] = [98 * low, 8, 0, 10, 0] if m.variant < 0.6 else [58 * low, 10, -70 * low, 100 * low, 0]


def _bend(t: float, m: Manner, pose: Pose) -> None:
    low = 0.3 + 0.7 * _ease(t)
    bow = 52 * low * m.amplitude
    knees = 44 * low * m.variant
    pose.root = (bow, 0.0)
    pose.spine = (34 * low, 8 * low * (1 if m.left else -1), 14 * low * (1 if m.left else -1))
    pose.limbs[2:] = [bow + 0.5 * knees, 5, 6, knees + 4, 0]
    lead, other = _hand(m)
    pose.limbs[lead] = [60 * low, 6, 0, 12, 0]
    pose.limbs[other] = [40 * low, 12, 0, 26, 0] if m.variant < 0.5 else [20, 14, -50, 70, 0]
    pose.neck = (-12 * low, 0.0, 0.0)


def _sit(t: float, m: Manner, pose: Pose) -> None:
    v = m.variant
    pose.rest = "seat"
    pose.root = (-8.0, 0.0)
    pose.spine = (10 + 26 * max(0.0, v - 0.6) + m.lean + 4 * _wave(t), 3 * _wave(t, 0.3), 4 * _wave(t))
    pose.limbs[2:] = [80, 8 + 8 * v, 6, 84, 0]
    lead, other = _hand(m)
    if v < 0.25:  # legs crossed
        pose.limbs[lead + 2] = [98, -9, -4, 64, 0]
    elif v < 0.5:  # legs stretched out
        pose.limbs[2:] = [74, 7, 4, 48, 0]
    pose.limbs[:2] = [30, 8, -14, 56, 0]  # hands in the lap
    if v > 0.7:  # turning pages, eating
        pose.limbs[lead] = [40 + 6 * _wave(t), 12, -20, 86 + 34 * _ease(t), 0]
        pose.limbs[other] = [34, 8, -24, 78, 0]
    elif v > 0.45:
        pose.limbs[other] = [22, 26, -10, 74, 0]
    pose.neck = (8 + 10 * v, 0.0, 6 * _wave(t))


def _lie(t: float, m: Manner, pose: Pose) -> None:
    v = m.variant
    lead, other = _hand(m)
    pose.rest = "bed"
    breath = 3 * _wave(t)
    pose.root = (-84.0 + 26.0 * max(0.0, v - 0.55), 34 * (v - 0.5) if v < 0.55 else 0.0)
    pose.spine = (8 + 34 * max(0.0, v - 0.45) + breath * 0.5, 0.0, 0.0)
    pose.limbs[2:] = [4, 8, 8, 6, 0]
    pose.limbs[lead + 2] = [12 + 40 * v + 8 * _wave(t), 9, 10, 18 + 78 * v + 8 * _wave(t), 0]
    pose.limbs[:2] = [4, 16, -10, 26, 0]
    pose.limbs[lead] = [26, 14, -58, 76 + breath, 0] if v < 0.6 else [150, 26, 30, 96, 0]
    pose.limbs[other] = [8 + 10 * _ease(t), 24, 0, 22, 0]
    pose.neck = (12.0, 0.0, 0.0)


_ACTS: dict[str, Callable[[float, Manner, Pose], None]] = {
    "stand": _stand,
    "walk": _walk,
    "run": _run,
    "wave": _wave_hand,
    "reach": _reach,
    "phone": _phone,
    "box": _box,
    "kick": _kick,
    "jumping_jack": _jack,
    "squat": _squat,
    "bend": _bend,
    "sit": _sit,
    "lie": _lie,
}


def act(name: str, t: float, manner: Manner) -> Pose:
    """The textbook pose of an action at phase ``t``, before :func:`finish`."""
    pose = Pose()
    _ACTS[name](t, manner, pose)
    return pose


def finish(pose: Pose, manner: Manner) -> Pose:
    """Add what a performer does to any pose: limbs a little off, the head turned."""
    pose.limbs = pose.limbs + manner.offsets
    pose.limbs[:, 3] = np.clip(pose.limbs[:, 3], 0.0, 148.0)  # neither elbows nor knees bend backwards
    nod, tilt, turn = pose.neck
    pose.neck = (nod + manner.look[0], tilt, turn + manner.look[1])
    return pose


def pose_at(action: int, t: float, manner: Manner) -> Pose:
    """The pose of an action at phase ``t``, done in the given manner."""
    return finish(act(ACTIONS[action], t, manner), manner)
