"""How well actions are told apart: over all clips, class by class, and which are taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.metrics.names import MetricInfo

METRICS = {
    "accuracy": MetricInfo("accuracy", "%", digits=1),
    "mean_class_accuracy": MetricInfo("mean class accuracy", "%", digits=1),
}


def action_scores(logits: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Judge logits by labels.

    A clip whose logits are no numbers, after training that diverged, is not recognised, and was taken for nothing.

    Args:
        logits: N×K; probabilities do as well.
        labels: N, the number of each clip's class.
        classes: the K names.

    Returns:
        `accuracy`, over clips; `mean_class_accuracy`, the mean over those classes that have clips; `per_class`, by name, NaN for a class
        without any; `confusion`, K×K counts with the class of a clip down and what it was taken for across; `without_clips`, the classes
        that the mean leaves out. Accuracies are percentages.
    """
    logits, labels = np.asarray(logits), np.asarray(labels)
    known = len(classes)
    if logits.shape != (len(labels), known):
        raise HalfmaskError(f"logits have shape {logits.shape} for {len(labels)} clips of {known} classes: expected {len(labels)}×{known}")
    if len(labels) and not (labels.min() >= 0 and labels.max() < known):
        raise HalfmaskError(f"labels go from {labels.min()} to {labels.max()}: expected numbers of {known} classes, from 0")
    answered = np.isfinite(logits).all(1)
    cells = labels[answered] * known + logits[answered].argmax(1) if answered.any() else np.zeros(0, int)
    confusion = np.bincount(cells, minlength=known**2).reshape(known, known)
    clips = np.bincount(labels, minlength=known)
    right = np.diag(confusion)
    each = np.where(clips > 0, 100 * right / np.maximum(clips, 1), np.nan)
    return {
        "accuracy": 100 * float(right.sum() / len(labels)) if len(labels) else float("nan"),
        "mean_class_accuracy": float(each[clips > 0].mean()) if clips.any() else float("nan"),
        "per_class": dict(zip(classes, each.tolist(), strict=True)),
        "confusion": confusion,
        "without_clips": [name for name, count in zip(classes, clips, strict=True) if not count],
    }


def metrics_of(scores: Mapping[str, Any]) -> dict[str, float]:
    """The means alone, the headline first."""
    return {name: scores[name] for name in METRICS}


def tables_of(scores: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What a file says besides numbers: the test set is public, so the counts are given whole."""
    return {"classes": list(scores["per_class"]), "confusion": scores["confusion"].tolist(), "without_clips": scores["without_clips"]}
