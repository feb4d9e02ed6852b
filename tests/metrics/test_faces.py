"""Scores of faces against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.metrics.faces import average_precision, cumulative, face_scores, landmark_errors


def test_average_precision() -> None:
    # Faces at ranks 1, 3 and 4: precisions 1, 2/3 and 3/4.
    scores, labels = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([1, 0, 1, 1, 0])
    assert average_precision(scores, labels) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert np.isnan(average_precision(scores, np.zeros(5)))


def test_equal_scores_stand_together_whatever_their_order() -> None:
    labels = np.array([1, 0, 0, 1])
    assert average_precision(np.ones(4), labels) == average_precision(np.ones(4), labels[::-1]) == pytest.approx(0.5)


def test_landmark_errors_are_shares_of_the_face() -> None:
    said, truth = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    said[0, 0] = (0.1, 0.0)  # a tenth of a region 50 wide: 5 pixels
    said[0, 1] = (9.0, 9.0)  # cannot be seen, does not count
    visible = np.array([[1, 0], [0, 0]])
    regions, faces = np.array([[0, 0, 50, 80.0]] * 2), np.array([[0, 0, 20, 45.0]] * 2)
    errors = landmark_errors(said, truth, visible, regions, faces)
    assert errors[0] == pytest.approx(5 / 30) and np.isnan(errors[1])


def test_the_curve_counts_faces_up_to_an_error() -> None:
    assert cumulative(np.array([0.1, 0.3, np.nan, 0.2]), np.array([0.05, 0.1, 0.25, 1.0])).tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


def test_all_five_tasks() -> None:
    targets = {
        "face": np.array([1.0, 1.0, 0.0]),
        "landmarks": np.zeros((3, 1, 2)),
        "visible": np.array([[1.0], [1.0], [0.0]]),
        "pose": np.zeros((3, 3)),
        "posed": np.array([1.0, 0.0, 0.0]),
        "attribute": np.array([1.0, 0.0, 0.0]),
        "attributed": np.array([1.0, 1.0, 0.0]),
    }
    truth = {"boxes": np.array([[0, 0, 10, 10.0]] * 3), "face_boxes": np.array([[0, 0, 10, 10.0]] * 3)}
    said = {
        "detection": np.array([2.0, -1.0, -3.0]),
        "landmarks": np.array([[[0.1, 0.0]], [[0.3, 0.0]], [[5.0, 5.0]]]),
        "visibility": np.array([[0.5], [1.0], [7.0]]),
        "pose": np.deg2rad([[3.0, 0.0, 0.0], [90.0, 90.0, 90.0], [90.0, 90.0, 90.0]]),
        "attribute": np.array([1.0, 1.0, 1.0]),
    }
    scores = face_scores(said, targets, truth)
    assert scores["detection_accuracy"] == pytest.approx(200 / 3) and scores["detection_ap"] == pytest.approx(100)
    assert scores["landmark_error"] == pytest.approx(20) and scores["landmark_mse"] == pytest.approx((0.01 + 0.09) / 2 / 2)
    assert scores["visibility_mse"] == pytest.approx(0.125)
    assert scores["pose_error"] == pytest.approx(1.0), "of a head whose pose nobody knows nothing is asked"
    assert scores["attribute_accuracy"] == pytest.approx(50)
    assert set(face_scores({"pose": said["pose"]}, targets, truth)) == {"pose_error", "pose_mse"}
