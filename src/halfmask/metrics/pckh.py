"""PCKh: the share of joints placed within a fraction of the person's head size.

The numbers follow the evaluation code that papers on MPII Human Pose customarily use (the one published with
HRNet and the simple baselines), so that they can be set beside published tables:

* a joint is right when its distance to the truth, divided by the head size, is at most the threshold;
* the head size is 0.6 times the diagonal of the annotated head box;
* every annotated joint counts, hidden behind something or not; joints without annotation do not count;
* the mean leaves out pelvis and thorax and weights each joint by how often it is annotated;
* a table column such as "Shoulder" is the plain mean of the right and the left joint.

One difference is deliberate: that code's "Mean@0.1" reads the twelfth entry of a grid that starts at zero,
which is a threshold of 0.11. Here 0.1 means 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.errors import HalfmaskError

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

JOINT_GROUPS: dict[str, tuple[int, ...]] = {
    "head": (9,),
    "shoulder": (12, 13),
    "elbow": (11, 14),
    "wrist": (10, 15),
    "hip": (2, 3),
    "knee": (1, 4),
    "ankle": (0, 5),
}

_LEFT_OUT_OF_MEAN = (JOINT_NAMES.index("pelvis"), JOINT_NAMES.index("thorax"))
_HEAD_SIZE_SHARE_OF_DIAGONAL = 0.6


@dataclass(frozen=True)
class PckhResult:
    """How well joints were placed, in percent.

    Attributes:
        mean: Over all annotated joints except pelvis and thorax; NaN when there is none.
        per_joint: By joint name; NaN for a joint that is never annotated.
        per_group: By the columns of the customary tables; NaN when either side is never annotated.
        count: The number of annotated joints the mean is taken over.
    """

    mean: float
    per_joint: dict[str, float]
    per_group: dict[str, float]
    count: int


def head_size(head_box: np.ndarray) -> np.ndarray:
    """Turn head boxes into the lengths that PCKh measures distances in.

    Args:
        head_box: N×4 corners (x1, y1, x2, y2), in the units of the joints.

    Returns:
        N lengths, each 0.6 times the diagonal of its box.
    """
    boxes = np.asarray(head_box, dtype=np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise HalfmaskError(f"head boxes have shape {boxes.shape}; expected (people, 4) as x1, y1, x2, y2: reshape them")
    return _HEAD_SIZE_SHARE_OF_DIAGONAL * np.linalg.norm(boxes[:, 2:] - boxes[:, :2], axis=1)


def pckh(
    predicted: np.ndarray,
    truth: np.ndarray,
    labelled: np.ndarray,
    head_sizes: np.ndarray,
    threshold: float = 0.5,
) -> PckhResult:
    """Score predicted joints by the customary MPII convention described at the top of this module.

    A prediction that is not finite counts as wrong, so a model that diverges is not scored on the rest alone.

    Args:
        predicted: N×16×2 joints in MPII order.
        truth: N×16×2 joints; entries of joints that are not labelled are ignored.
        labelled: N×16, true where the joint is annotated (hidden but annotated joints are true).
        head_sizes: N lengths in the units of the joints, from `head_size`.
        threshold: The largest distance that counts as right, in head sizes.
    """
    predicted = np.asarray(predicted, dtype=np.float64)
    truth = np.asarray(truth, dtype=np.float64)
    labelled = np.asarray(labelled).astype(bool)
    head_sizes = np.asarray(head_sizes, dtype=np.float64)
    _check_shapes(predicted, truth, labelled, head_sizes)
    _check_truth(truth, labelled, head_sizes)

    annotated_count = labelled.sum(axis=0)
    right_count = _is_right(predicted, truth, labelled, head_sizes, threshold).sum(axis=0)
    joint_percent = np.full(len(JOINT_NAMES), np.nan)
    np.divide(100.0 * right_count, annotated_count, out=joint_percent, where=annotated_count > 0)

    in_mean = np.ones(len(JOINT_NAMES), dtype=bool)
    in_mean[list(_LEFT_OUT_OF_MEAN)] = False
    # Pooling the counts is the same as weighting each joint's percentage by its number of annotations.
    count = int(annotated_count[in_mean].sum())
    mean = 100.0 * float(right_count[in_mean].sum()) / count if count else float("nan")
    return PckhResult(
        mean=mean,
        per_joint={name: float(value) for name, value in zip(JOINT_NAMES, joint_percent, strict=True)},
        per_group={group.capitalize(): float(joint_percent[list(joints)].mean()) for group, joints in JOINT_GROUPS.items()},
        count=count,
    )


def summary(predicted: np.ndarray, truth: np.ndarray, labelled: np.ndarray, head_sizes: np.ndarray) -> dict[str, float]:
    """Score at the two thresholds that papers report, as one flat mapping to keep beside a trained model.

    Keys are "pckh@0.5", "pckh@0.1" and, at 0.5, one for each joint group such as "pckh@0.5/head". A value is
    NaN where nothing was annotated.
    """
    usual = pckh(predicted, truth, labelled, head_sizes, threshold=0.5)
    strict = pckh(predicted, truth, labelled, head_sizes, threshold=0.1)
    groups = {f"pckh@0.5/{group.lower()}": value for group, value in usual.per_group.items()}
    return {"pckh@0.5": usual.mean, "pckh@0.1": strict.mean, **groups}


def _is_right(predicted: np.ndarray, truth: np.ndarray, labelled: np.ndarray, head_sizes: np.ndarray, threshold: float) -> np.ndarray:
    scorable = labelled & np.isfinite(predicted).all(axis=2)
    offset = np.where(scorable[..., None], predicted, 0.0) - np.where(scorable[..., None], truth, 0.0)
    # People without a single label may have no head box; the mask ignores whatever is divided here.
    scale = np.where(labelled.any(axis=1), head_sizes, 1.0)
    distance_in_heads = np.linalg.norm(offset, axis=2) / scale[:, None]
    return scorable & (distance_in_heads <= threshold)


def _check_shapes(predicted: np.ndarray, truth: np.ndarray, labelled: np.ndarray, head_sizes: np.ndarray) -> None:
    joints = len(JOINT_NAMES)
    if truth.ndim != 3 or truth.shape[1:] != (joints, 2):
        raise HalfmaskError(
            f"true joints have shape {truth.shape}; expected (people, {joints}, 2) in MPII order: map the data set's joints to MPII's first"
        )
    people = len(truth)
    if people == 0:
        raise HalfmaskError("there are no people to score; expected at least one: check which split the evaluation reads")
    for name, found, expected in (
        ("predicted joints", predicted.shape, (people, joints, 2)),
        ("labelled flags", labelled.shape, (people, joints)),
        ("head sizes", head_sizes.shape, (people,)),
    ):
        if found != expected:
            raise HalfmaskError(
                f"{name} have shape {found}; expected {expected} to match the {people} people of the truth: "
                "pass arrays made from the same people in the same order"
            )


def _check_truth(truth: np.ndarray, labelled: np.ndarray, head_sizes: np.ndarray) -> None:
    broken = labelled & ~np.isfinite(truth).all(axis=2)
    if broken.any():
        person, joint = (int(i) for i in np.argwhere(broken)[0])
        raise HalfmaskError(
            f"person {person} has {JOINT_NAMES[joint]} labelled at {truth[person, joint].tolist()}; expected "
            "finite coordinates: mend the annotation or mark the joint as not labelled"
        )
    unusable = labelled.any(axis=1) & ~(np.isfinite(head_sizes) & (head_sizes > 0))
    if unusable.any():
        person = int(np.argmax(unusable))
        raise HalfmaskError(
            f"person {person} has head size {head_sizes[person]}; expected a positive length: "
            "mend the head box or leave the person out of the evaluation"
        )
