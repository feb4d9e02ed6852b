"""The pose network of a run, with and without mirror images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.inference.torch_pose import pose_of_run
from halfmask.metrics.calibration import Calibration
from halfmask.tasks import pose
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder
from halfmask.training.runs import open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    config = RunConfig()
    folder = RunFolder.create(tmp_path / "run", config)
    folder.save_model(pose.build_model(config.model))
    body = {name: Calibration(slope, 5.0, 100, 0.5, 0.0).to_json() for name, slope in (("plain", 1.0), ("flip", 2.0))}
    folder.save_calibration(body)
    return folder.path


@pytest.mark.usefixtures("one_thread")
def test_scores_are_chances_by_the_curve_of_how_it_looks(run: Path) -> None:
    crops = np.random.default_rng(0).integers(0, 255, (2, 3, 256, 192)).astype(np.uint8)
    network = pose_of_run(open_run(run, "cpu"), flip_test=True)
    assert network.skeleton is MPII and network.input_size == (256, 192) and network.calibrated and network.words == "'run'"
    for one, flip_test, slope in ((network, True, 2.0), (network.plain(), False, 1.0)):
        joints, scores = one(crops)
        expected, raw = pose.predict(one.model, crops, flip_test)
        np.testing.assert_array_equal(joints, expected)
        np.testing.assert_allclose(scores, Calibration(slope, 5.0, 100, 0.5, 0.0)(raw))


def test_without_a_calibration_they_are_the_networks_own(run: Path) -> None:
    (run / "calibration.json").unlink()
    assert not pose_of_run(open_run(run, "cpu"), flip_test=False).calibrated
    (run / "calibration.json").write_text(json.dumps({"plain": {"slope": "steep"}}))
    with pytest.raises(HalfmaskError, match="no finite slope"):
        pose_of_run(open_run(run, "cpu"), flip_test=False)


def test_other_tasks_have_no_poses(generate_run, tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="poses need a run of the task 'pose'"):
        pose_of_run(open_run(generate_run(tmp_path / "drawn"), "cpu"), flip_test=False)
