"""Scores of actions against numbers worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.metrics.actions import METRICS, action_scores, metrics_of, tables_of

CLASSES = ("walk", "wave", "sit")
# Four walks, one taken for a wave and one for sitting; one wave, recognised; nobody sits.
LABELS = np.array([0, 0, 0, 0, 1])
LOGITS = np.eye(3)[[0, 0, 1, 2, 1]] * 4 - 1


def test_accuracy_is_over_clips_and_the_mean_over_classes_that_have_some() -> None:
    found = action_scores(LOGITS, LABELS, CLASSES)
    assert metrics_of(found) == {"accuracy": pytest.approx(60), "mean_class_accuracy": pytest.approx(75)}
    assert list(metrics_of(found)) == list(METRICS) and found["without_clips"] == ["sit"]
    assert found["per_class"]["walk"] == 50 and found["per_class"]["wave"] == 100 and np.isnan(found["per_class"]["sit"])


def test_confusion_has_the_truth_down_and_the_answer_across() -> None:
    found = action_scores(LOGITS, LABELS, CLASSES)
    rows = [[2, 1, 1], [0, 1, 0], [0, 0, 0]]
    assert found["confusion"].tolist() == rows
    assert json.loads(json.dumps(tables_of(found))) == {"classes": list(CLASSES), "confusion": rows, "without_clips": ["sit"]}


def test_what_is_not_a_number_is_no_answer() -> None:
    broken = LOGITS.copy()
    broken[0, 2] = np.nan
    found = action_scores(broken, LABELS, CLASSES)
    assert found["accuracy"] == pytest.approx(40) and found["per_class"]["walk"] == 25
    assert found["confusion"].sum() == 4
    assert action_scores(np.full((5, 3), np.inf), LABELS, CLASSES)["mean_class_accuracy"] == 0


def test_no_clips_no_score() -> None:
    found = action_scores(np.zeros((0, 3)), np.zeros(0, int), CLASSES)
    assert np.isnan(found["accuracy"]) and np.isnan(found["mean_class_accuracy"]) and found["without_clips"] == list(CLASSES)


@pytest.mark.parametrize(("shape", "labels"), [((5, 2), LABELS), ((4, 3), LABELS), ((5, 3), LABELS + 2), ((5, 3), LABELS - 1)])
def test_other_shapes_and_labels_are_refused(shape: tuple[int, int], labels: np.ndarray) -> None:
    with pytest.raises(HalfmaskError, match="expected"):
        action_scores(np.zeros(shape), labels, CLASSES)
