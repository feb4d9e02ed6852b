"""From the joints of a clip to what an avatar needs to be drawn: no gaps, a size, and which way the body faces.

Only joints are looked at. What is public about a clip's pose is then all that an avatar tells about the person.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.errors import HalfmaskError

JOINTS = 16
R_ANKLE, R_KNEE, R_HIP, L_HIP, L_KNEE, L_ANKLE, PELVIS, THORAX, NECK, HEAD_TOP = range(10)
R_WRIST, R_ELBOW, R_SHOULDER, L_SHOULDER, L_ELBOW, L_WRIST = range(10, 16)

# Bones that hardly move against themselves, and their metres in a person of 1.72 m. Seen at an angle they look shorter, never longer.
_RULERS = (
    (PELVIS, THORAX, 0.49),
    (NECK, HEAD_TOP, 0.22),
    (R_HIP, R_KNEE, 0.42),
    (L_HIP, L_KNEE, 0.42),
    (R_KNEE, R_ANKLE, 0.41),
    (L_KNEE, L_ANKLE, 0.41),
    (R_SHOULDER, R_ELBOW, 0.29),
    (L_SHOULDER, L_ELBOW, 0.29),
)
_FROM = np.array([ruler[0] for ruler in _RULERS])
_TO = np.array([ruler[1] for ruler in _RULERS])
_METRES = np.array([ruler[2] for ruler in _RULERS])
_SHOULDERS, _HIPS = 0.36, 0.18
# What stands for a joint that was never seen: the mean of others.
_STAND_INS = (
    (PELVIS, (R_HIP, L_HIP)),
    (R_HIP, (PELVIS,)),
    (L_HIP, (PELVIS,)),
    (THORAX, (R_SHOULDER, L_SHOULDER)),
    (R_SHOULDER, (THORAX,)),
    (L_SHOULDER, (THORAX,)),
    (THORAX, (NECK,)),
    (NECK, (THORAX,)),
)


@dataclass(frozen=True)
class Stance:
    """How a body stands in each frame of a clip.

    Attributes:
        joints: F×16×2 in pixels, not finite where nothing is known.
        scale: F, pixels per metre of a person of average height.
        across: F×2, the unit vector from the left of an upright body to its right, as the image shows it.
        front: F, 1 for a body that faces the camera, 0 for one seen from the side, −1 for one seen from behind.
        turn: F, 1 for a body that faces the side that `across` points to, −1 for the other.
    """

    joints: np.ndarray
    scale: np.ndarray
    across: np.ndarray
    front: np.ndarray
    turn: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """In which frames there is anybody to draw."""
        found: np.ndarray = np.isfinite(self.joints[:, [PELVIS, THORAX]]).all(axis=(1, 2))
        return found


def check_joints(joints: np.ndarray, frames: int) -> np.ndarray:
    """F×16×2 numbers, with anything that is not finite as missing."""
    joints = np.asarray(joints, np.float64)
    if joints.shape != (frames, JOINTS, 2):
        raise HalfmaskError(
            f"the joints of a clip of {frames} frames have shape {joints.shape}; expected ({frames}, {JOINTS}, 2), in pixels and in MPII's "
            "order, with NaN for those that nobody knows"
        )
    return np.where(np.isfinite(joints).all(axis=2, keepdims=True), joints, np.nan)


def fill_gaps(joints: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Joints that are missing in some frames, in a straight line between the frames that have them.

    Before the first frame that has a joint and after the last it is held, as long as the person is `present` (F): the mask shows somebody.
    A frame in which no joint is known and nobody is present stays empty: who has walked out of the picture gets no avatar.
    """
    joints = joints.copy()
    missing = np.isnan(joints[:, :, 0])
    empty = missing.all(axis=1) & ~present
    if missing.any():
        times = np.arange(len(joints), dtype=np.float64)
        for joint in np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0)).tolist():
            known = ~missing[:, joint]
            for axis in (0, 1):
                joints[~known, joint, axis] = np.interp(times[~known], times[known], joints[known, joint, axis])
        joints[empty] = np.nan
        for joint, others in _STAND_INS:
            lost = np.isnan(joints[:, joint, 0])
            joints[lost, joint] = joints[lost][:, list(others)].mean(axis=1)
    return joints


def stance(joints: np.ndarray, present: np.ndarray) -> Stance:
    """What an avatar needs to know of a clip's joints (F×16×2, NaN where missing)."""
    joints = fill_gaps(joints, present)
    if np.isnan(joints[:, [NECK, HEAD_TOP], 0]).any():
        joints = _with_head(joints)
    scale = _scale(joints)
    up = joints[:, THORAX] - joints[:, PELVIS]
    up = up / np.maximum(np.linalg.norm(up, axis=1, keepdims=True), 1e-6)
    across = np.stack([-up[:, 1], up[:, 0]], axis=1)
    wide = np.maximum(scale, 1e-6)
    shoulders = _along(joints[:, L_SHOULDER] - joints[:, R_SHOULDER], across) / (_SHOULDERS * wide)
    hips = _along(joints[:, L_HIP] - joints[:, R_HIP], across) / (_HIPS * wide)
    front = np.clip(np.nan_to_num(0.65 * shoulders + 0.35 * hips), -1.0, 1.0)
    return Stance(joints, scale, across, front, _turn(joints, across, wide, front))


def _along(vectors: np.ndarray, axis: np.ndarray) -> np.ndarray:
    product: np.ndarray = (vectors * axis).sum(axis=1)
    return product


def _with_head(joints: np.ndarray) -> np.ndarray:
    """A head in line with the trunk, where none is known."""
    up = joints[:, THORAX] - joints[:, PELVIS]
    for joint, below, share in ((NECK, THORAX, 0.2), (HEAD_TOP, NECK, 0.45)):
        lost = np.isnan(joints[:, joint, 0])
        joints[lost, joint] = joints[lost, below] + share * up[lost]
    return joints


def _scale(joints: np.ndarray) -> np.ndarray:
    """Pixels per metre. The longest bone for its kind is the least foreshortened; the second longest forgives one joint gone astray."""
    lengths = np.linalg.norm(joints[:, _FROM] - joints[:, _TO], axis=2) / _METRES
    each = np.sort(np.nan_to_num(lengths), axis=1)[:, -2]
    # Somebody who bends down does not shrink: the middle one of five frames.
    known = np.flatnonzero(each > 0)
    if len(known):
        each = np.interp(np.arange(len(each)), known, each[known])
    padded = np.pad(each, 2, mode="edge")
    near: np.ndarray = np.median(np.stack([padded[k : k + len(each)] for k in range(5)]), axis=0)
    return near


def _turn(joints: np.ndarray, across: np.ndarray, scale: np.ndarray, front: np.ndarray) -> np.ndarray:
    """Which side a body faces: knees bend forwards and elbows backwards. Decided over the whole clip, or limbs would change places."""
    ahead = np.zeros(len(joints))
    for first, middle, last, sign in (
        (R_HIP, R_KNEE, R_ANKLE, 1.0),
        (L_HIP, L_KNEE, L_ANKLE, 1.0),
        (R_SHOULDER, R_ELBOW, R_WRIST, -1.0),
        (L_SHOULDER, L_ELBOW, L_WRIST, -1.0),
    ):
        bent = joints[:, middle] - 0.5 * (joints[:, first] + joints[:, last])
        ahead += np.nan_to_num(sign * _along(bent, across) / scale)
    ahead *= 1.0 - np.abs(front)
    window = np.convolve(np.pad(ahead, 4, mode="edge"), np.full(9, 1 / 9), mode="valid")
    side = np.where(window >= 0, 1.0, -1.0)
    turned: np.ndarray = side * np.sqrt(1.0 - front**2)
    return turned
