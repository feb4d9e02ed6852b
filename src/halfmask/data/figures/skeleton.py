"""The sixteen joints, and the body that carries them: from joint angles to points in space.

The body is posed in three dimensions and projected afterwards, because only then do near limbs hide far
ones, do left and right swap sides when a person turns, and does a high camera shorten the legs: the things
that make finding joints hard.

Frames are right-handed with x to the person's own left, y up and z forward. A person with yaw 0 faces the
camera, so their left hand is on the right of the image.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

JOINT_NAMES: tuple[str, ...] = (
    "r_ankle",
    "r_knee",
    "r_hip",
    "l_hip",
    "l_knee",
    "l_ankle",
    "pelvis",
    "thorax",
    "upper_neck",
    "head_top",
    "r_wrist",
    "r_elbow",
    "r_shoulder",
    "l_shoulder",
    "l_elbow",
    "l_wrist",
)
"""The joints in the order of MPII, with left and right as the person themself would say."""

FLIP_PAIRS: tuple[tuple[int, int], ...] = ((0, 5), (1, 4), (2, 3), (10, 15), (11, 14), (12, 13))
"""Joints that change places when an image is mirrored."""

# Points beyond the sixteen, kept in the same array so that one projection serves all of them.
R_TOE, L_TOE, R_HEEL, L_HEEL, R_HAND, L_HAND, WAIST, HEAD = range(16, 24)
POINTS = 24

Vector = np.ndarray


@dataclass(frozen=True)
class Proportions:
    """Lengths of a body in metres. They persist with the subject: gait and build tell people apart."""

    height: float
    spine: float
    neck: float
    head: float
    shoulder: float
    hip: float
    upper_arm: float
    forearm: float
    hand: float
    thigh: float
    shin: float
    foot: float
    build: float
    """Thickness of limbs and trunk relative to the average, about 0.75 to 1.35."""


def _row() -> np.ndarray:
    return np.zeros((4, 5))


@dataclass
class Pose:
    """Joint angles in degrees.

    ``limbs`` has one row each for right arm, left arm, right leg and left leg, and the columns *flex*
    (forwards), *spread* (sideways, away from the body), *twist* (about the limb's own axis, outwards),
    *bend* (elbow or knee) and *swing* (about the vertical, outwards). Left and right are given with the same
    signs, so that a symmetric pose has equal rows.
    """

    limbs: np.ndarray = field(default_factory=_row)
    spine: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Forward bend, sideways bend and twist of the chest against the pelvis."""
    neck: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Nod, tilt and turn of the head against the chest."""
    root: tuple[float, float] = (0.0, 0.0)
    """Pitch (forwards) and roll of the pelvis, and with it of the whole body."""
    lift: float = 0.0
    """Metres between the lowest point of the body and what it rests on: a jump."""
    rest: str = "floor"
    """What carries the body: ``floor``, ``seat`` (a chair is drawn) or ``bed``."""


def rotate(axis: int, degrees: np.ndarray | float) -> np.ndarray:
    """Rotation matrices about one axis, for one angle or for many at once."""
    radians = np.deg2rad(np.asarray(degrees, dtype=np.float64))
    c, s = np.cos(radians), np.sin(radians)
    out = np.zeros((*radians.shape, 3, 3))
    i, j = (axis + 1) % 3, (axis + 2) % 3
    out[..., axis, axis] = 1.0
    out[..., i, i] = c
    out[..., j, j] = c
    out[..., i, j] = -s
    out[..., j, i] = s
    return out


@dataclass(frozen=True)
class Body:
    """A posed body: points in room coordinates and the frames that shape trunk and head."""

    points: np.ndarray
    pelvis: np.ndarray
    chest: np.ndarray
    skull: np.ndarray


_SIDE = np.array([-1.0, 1.0, -1.0, 1.0])
BED_HEIGHT = 0.48


def pose_body(size: Proportions, pose: Pose, yaw: float, place: tuple[float, float]) -> Body:
    """Put a body of the given size into a pose, turn it by ``yaw`` and stand it at ``place`` (x, z).

    The body is lowered until its lowest point touches what it rests on, so that no action has to know how
    long anybody's legs are.
    """
    pitch, roll = pose.root
    forward, side, twist = pose.spine
    nod, tilt, turn = pose.neck
    # Ten small rotations are cheaper made together than one by one.
    ry = rotate(1, np.concatenate([[yaw, twist, turn], _SIDE * pose.limbs[:, 4], _SIDE * pose.limbs[:, 2]]))
    rx = rotate(0, np.concatenate([[pitch, forward, nod], -pose.limbs[:, 0], pose.limbs[:, 3] * [-1, -1, 1, 1]]))
    rz = rotate(2, np.concatenate([[roll, side, tilt], _SIDE * pose.limbs[:, 1]]))
    pelvis = ry[0] @ rx[0] @ rz[0]
    chest = pelvis @ ry[1] @ rx[1] @ rz[1]
    skull = chest @ ry[2] @ rx[2] @ rz[2]
    base = np.stack([chest, chest, pelvis, pelvis])
    upper = base @ ry[3:7] @ rz[3:7] @ rx[3:7] @ ry[7:11]
    lower = upper @ rx[7:11]

    p = np.zeros((POINTS, 3))
    p[WAIST] = pelvis[:, 1] * (0.38 * size.spine)
    p[7] = p[WAIST] + chest[:, 1] * (0.62 * size.spine)
    p[8] = p[7] + chest[:, 1] * size.neck + chest[:, 2] * (0.12 * size.neck)
    p[9] = p[8] + skull[:, 1] * size.head
    p[HEAD] = p[8] + skull[:, 1] * (0.5 * size.head) + skull[:, 2] * (0.09 * size.head)
    # A raised arm takes its shoulder with it.
    up = np.clip(-np.einsum("i,ni->n", chest[:, 1], upper[:2, :, 1]), 0.0, 1.0) * (0.18 * size.shoulder)
    for j, hip, knee, ankle, toe, heel in ((0, 2, 1, 0, R_TOE, R_HEEL), (1, 3, 4, 5, L_TOE, L_HEEL)):
        p[hip] = pelvis[:, 0] * (_SIDE[j] * size.hip)
        p[knee] = p[hip] - upper[2 + j, :, 1] * size.thigh
        p[ankle] = p[knee] - lower[2 + j, :, 1] * size.shin
        p[toe] = lower[2 + j, :, 2]
        p[heel] = 0.0
    for j, shoulder, elbow, wrist, hand in ((0, 12, 11, 10, R_HAND), (1, 13, 14, 15, L_HAND)):
        p[shoulder] = p[7] + chest[:, 0] * (_SIDE[j] * (size.shoulder - 0.5 * up[j])) + chest[:, 1] * (up[j] - 0.06 * size.spine)
        p[elbow] = p[shoulder] - upper[j, :, 1] * size.upper_arm
        p[wrist] = p[elbow] - lower[j, :, 1] * size.forearm
        p[hand] = p[wrist] - lower[j, :, 1] * (0.55 * size.hand)
    _plant_feet(p, size, flat=pose.rest != "bed")

    margin = np.full(POINTS, 0.05)
    margin[[0, 5]] = 0.045 * size.height
    margin[[2, 3, 6, 7, WAIST]] = 0.1
    margin[HEAD] = 0.5 * size.head
    margin[[R_TOE, L_TOE, R_HEEL, L_HEEL]] = 0.015
    low = float(np.min(p[:, 1] - margin))
    ground = BED_HEIGHT if pose.rest == "bed" else 0.0
    p += np.array([place[0], ground + pose.lift - low, place[1]])
    return Body(p, pelvis, chest, skull)


def _plant_feet(p: np.ndarray, size: Proportions, flat: bool) -> None:
    """Lay a foot flat when its ankle is low and let it follow the shin when it is in the air."""
    lowest = min(p[0, 1], p[5, 1])
    for ankle, toe, heel in ((0, R_TOE, R_HEEL), (5, L_TOE, L_HEEL)):
        ahead = p[toe].copy()
        down = np.array([0.0, -0.03 * size.height, 0.0])
        if flat:
            weight = max(0.0, 1.0 - (p[ankle, 1] - lowest) / 0.2)
            ahead[1] *= 1.0 - 0.95 * weight
            ahead /= max(1e-6, float(np.linalg.norm(ahead)))
        p[toe] = p[ankle] + ahead * (0.75 * size.foot) + down
        p[heel] = p[ankle] - ahead * (0.2 * size.foot) + down
