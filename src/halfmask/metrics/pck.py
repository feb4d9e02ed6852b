"""PCK: the share of joints placed within a fraction of the person's torso length, for LSP and datasets without head boxes.

* The torso is the line from the left shoulder to the right hip; a person of whom either is not labelled is skipped.
* Every labelled joint of the others counts, those two included.
* The mean pools all joints, so that each counts as often as it is labelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfmask.data.skeleton import Skeleton
from halfmask.errors import HalfmaskError

THRESHOLDS = (0.2, 0.5)


@dataclass(frozen=True)
class PckResult:
    """How well joints were placed, in percent.

    Attributes:
        mean: over all labelled joints of people with a torso; NaN when there is none.
        per_joint: NaN for a joint that is never labelled.
        right, labelled: how often each joint was placed right, and how often it was labelled.
        skipped: people without a torso to measure by.
    """

    mean: float
    per_joint: np.ndarray
    right: np.ndarray
    labelled: np.ndarray
    skipped: int


def torso_lengths(joints: np.ndarray, labelled: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """From the left shoulder to the right hip, for each person; NaN where either is not labelled or both are one point."""
    shoulder, hip = skeleton.index("left_shoulder"), skeleton.index("right_hip")
    lengths = np.linalg.norm(np.asarray(joints[:, shoulder], np.float64) - np.asarray(joints[:, hip], np.float64), axis=1)
    known = np.asarray(labelled[:, shoulder], bool) & np.asarray(labelled[:, hip], bool) & (lengths > 0)
    return np.where(known, lengths, np.nan)


def pck(
    predicted: np.ndarray, truth: np.ndarray, labelled: np.ndarray, torsos: np.ndarray, thresholds: tuple[float, ...] = THRESHOLDS
) -> dict[float, PckResult]:
    """Score predicted joints at each threshold. A prediction that is not finite counts as wrong.

    Args:
        predicted, truth: N×J×2 in one unit of length.
        labelled: N×J.
        torsos: N lengths in the same unit, NaN for people to skip.
    """
    predicted, truth = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)
    labelled, torsos = np.asarray(labelled, bool), np.asarray(torsos, np.float64)
    people, joints = labelled.shape if labelled.ndim == 2 else (0, 0)
    if predicted.shape != (people, joints, 2) or truth.shape != predicted.shape or torsos.shape != (people,):
        raise HalfmaskError(
            f"predictions have shape {predicted.shape}, the truth {truth.shape}, labels {labelled.shape}, torsos {torsos.shape}: expected "
            "people×joints×2 twice, people×joints, and one length per person"
        )
    if not people:
        raise HalfmaskError("there are no people to score; expected at least one: check which split the evaluation reads")
    measurable = np.isfinite(torsos)
    counted = labelled & measurable[:, None]
    scorable = counted & np.isfinite(predicted).all(-1)
    offset = np.where(scorable[..., None], predicted, 0.0) - np.where(scorable[..., None], truth, 0.0)
    distance = np.linalg.norm(offset, axis=-1) / np.where(measurable, torsos, 1.0)[:, None]
    times = counted.sum(0)
    results = {}
    for threshold in thresholds:
        right = (scorable & (distance <= threshold)).sum(0)
        per_joint = np.full(joints, np.nan)
        np.divide(100.0 * right, times, out=per_joint, where=times > 0)
        mean = 100.0 * float(right.sum()) / float(times.sum()) if times.sum() else float("nan")
        results[threshold] = PckResult(mean, per_joint, right, times, int((~measurable).sum()))
    return results


def summary(results: dict[float, PckResult], skeleton: Skeleton) -> dict[str, float]:
    """`pck@0.2` and `pck@0.5`, and at 0.2 one score for each group of joints such as `pck@0.2/knee`."""
    scores = {f"pck@{threshold:g}": result.mean for threshold, result in results.items()}
    usual = results[THRESHOLDS[0]]
    for group, joints in skeleton.groups.items():
        times = usual.labelled[list(joints)].sum()
        scores[f"pck@0.2/{group}"] = 100.0 * float(usual.right[list(joints)].sum()) / float(times) if times else float("nan")
    return scores
