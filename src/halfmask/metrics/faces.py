"""How well faces are found and told: one number or two for each of the five tasks, over regions of photographs.

Detection is judged on all regions, everything else on those that show a face, as it is learnt.
"""

from __future__ import annotations

import numpy as np


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """The area under precision over recall, by steps: the mean, over faces, of the precision at the score of each."""
    faces = int(labels.sum())
    if not faces:
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ranked, found = scores[order], np.cumsum(labels[order])
    # Regions with one score stand or fall together, whatever order they came in.
    last = np.r_[ranked[1:] != ranked[:-1], True]
    found, looked = found[last], np.flatnonzero(last) + 1
    return float(np.sum(np.diff(np.r_[0, found]) * found / looked) / faces)


def landmark_errors(predicted: np.ndarray, truth: np.ndarray, visible: np.ndarray, regions: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Of each region, the mean distance of its visible landmarks as a share of the face's size; NaN where none is visible.

    Args:
        predicted, truth: N×K×2, as shares of the region.
        visible: N×K.
        regions, faces: N×4 boxes (left, top, width, height); the size of a face is the root of its box's area.
    """
    pixels = np.linalg.norm((predicted - truth) * regions[:, None, 2:], axis=-1)
    counted = visible > 0
    shares = np.where(counted, pixels, 0.0).sum(1) / np.sqrt(faces[:, 2] * faces[:, 3])
    number = counted.sum(1)
    return np.where(number > 0, shares / np.maximum(number, 1), np.nan)


def cumulative(errors: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The share of faces whose error is at most each of these limits: the curve that landmark papers draw."""
    known = np.sort(errors[np.isfinite(errors)])
    return np.searchsorted(known, limits, side="right") / max(1, len(known))


def face_scores(said: dict[str, np.ndarray], targets: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> dict[str, float]:
    """All metrics of what a network says of some regions.

    Args:
        said: by task: logits of `detection` and `attribute`, `landmarks`, `visibility` and `pose` in the units of targets. A task that is
            not learnt has no entry, and no metric.
        targets, truth: as in `halfmask.data.faces.face_records`.
    """
    face = targets["face"] > 0.5
    scores: dict[str, float] = {}
    if "detection" in said:
        scores["detection_accuracy"] = 100 * _mean((said["detection"] > 0) == face)
        scores["detection_ap"] = 100 * average_precision(said["detection"], face)
    if "landmarks" in said:
        points, visible = targets["landmarks"][face], targets["visible"][face]
        errors = landmark_errors(said["landmarks"][face], points, visible, truth["boxes"][face], truth["face_boxes"][face])
        scores["landmark_error"] = 100 * _mean(errors)
        squares = ((said["landmarks"][face] - points) ** 2).sum(-1) * visible
        scores["landmark_mse"] = _mean(squares.sum(1) / (2 * max(1, visible.shape[1])))
    if "visibility" in said:
        scores["visibility_mse"] = _mean((said["visibility"][face] - targets["visible"][face]) ** 2)
    if "pose" in said:
        posed = face & (targets["posed"] > 0.5)
        scores["pose_error"] = _mean(np.rad2deg(np.abs(said["pose"][posed] - targets["pose"][posed])))
        scores["pose_mse"] = _mean((said["pose"][posed] - targets["pose"][posed]) ** 2)
    if "attribute" in said:
        known = face & (targets["attributed"] > 0.5)
        scores["attribute_accuracy"] = 100 * _mean((said["attribute"][known] > 0) == (targets["attribute"][known] > 0.5))
    return scores


def _mean(values: np.ndarray) -> float:
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")
