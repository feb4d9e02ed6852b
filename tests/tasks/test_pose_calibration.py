"""What a pose network's scores are worth comes from public people, and from those joints alone that can be judged."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.pose_records import PoseRecords
from halfmask.models.simcc import PoseModel
from halfmask.tasks import pose_calibration
from halfmask.tasks.pose_calibration import calibrate_scores


def test_joints_near_their_place_are_right(tiny_records: PoseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that is sure of joints it places well and unsure of others: its scores become 1 and 0."""
    asked = []

    def placed(model, images, flip_test, device, skeleton):
        asked.append(flip_test)
        far = np.arange(tiny_records.joints.shape[1]) % 2 == 1
        joints = np.asarray(tiny_records.joints, np.float64) + np.where(far, 50.0, 0.0)[None, :, None]
        return joints, np.tile(np.where(far, 0.01, 0.06), (len(images), 1))

    monkeypatch.setattr(pose_calibration, "predict", placed)
    found = calibrate_scores(PoseModel("nano", 16, (64, 48)), tiny_records)
    assert asked == [False, True] and found.keys() == {"plain", "flip"}
    chances = found["plain"](np.array([0.01, 0.06]))
    assert chances[0] < 0.1 < 0.9 < chances[1]


def test_people_without_a_torso_are_not_judged(tiny_records: PoseRecords) -> None:
    labelled = np.array(tiny_records.labelled)
    labelled[:, 13] = False
    assert calibrate_scores(PoseModel("nano", 16, (64, 48)), tiny_records.changed(labelled=labelled, annotated=labelled, key="-")) == {}
