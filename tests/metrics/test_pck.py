"""PCK of torso length, against cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halfmask.data.skeleton import LSP, MPII
from halfmask.errors import HalfmaskError
from halfmask.metrics.pck import pck, summary, torso_lengths

SHOULDER, HIP = LSP.index("left_shoulder"), LSP.index("right_hip")


def people(count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Everyone's torso runs from (40, 20) to (10, 60): 50 pixels."""
    truth = np.full((count, 14, 2), 30.0)
    truth[:, SHOULDER], truth[:, HIP] = (40, 20), (10, 60)
    return truth, np.ones((count, 14), bool)


def test_the_torso_runs_from_left_shoulder_to_right_hip() -> None:
    truth, labelled = people(3)
    labelled[1, SHOULDER], labelled[2, HIP] = False, False
    lengths = torso_lengths(truth, labelled, LSP)
    assert lengths[0] == 50 and np.isnan(lengths[1:]).all()
    truth[0, SHOULDER] = truth[0, HIP]
    assert np.isnan(torso_lengths(truth, labelled, LSP)[0]), "nothing is measured in a torso of no length"
    assert (LSP.names[SHOULDER], LSP.names[HIP]) == ("l_shoulder", "r_hip")


def test_a_joint_is_right_up_to_a_fifth_and_up_to_half_of_the_torso() -> None:
    truth, labelled = people()
    predicted = truth.copy()
    predicted[0, 0] += (6, 8)  # 10 pixels: a fifth exactly
    predicted[0, 1] += (10.1, 0)
    predicted[0, 2] += (25, 0)  # half exactly
    predicted[0, 3] += (0, 25.1)
    results = pck(predicted, truth, labelled, torso_lengths(truth, labelled, LSP))
    assert results[0.2].mean == pytest.approx(100 * 11 / 14) and results[0.5].mean == pytest.approx(100 * 13 / 14)
    assert results[0.2].per_joint[:4].tolist() == [100, 0, 0, 0] and results[0.5].per_joint[:4].tolist() == [100, 100, 100, 0]


def test_people_without_a_torso_are_skipped_and_unlabelled_joints_do_not_count() -> None:
    truth, labelled = people(3)
    predicted = truth.copy()
    labelled[1, HIP] = False
    predicted[1] += 1000
    labelled[2, 0] = False
    truth[2, 0] = math.nan
    predicted[2, 1] += 1000
    result = pck(predicted, truth, labelled, torso_lengths(truth, labelled, LSP))[0.2]
    assert result.skipped == 1 and result.labelled.sum() == 14 + 13 and result.right.sum() == 14 + 12
    assert result.mean == pytest.approx(100 * 26 / 27)


def test_a_prediction_that_is_not_finite_is_wrong() -> None:
    truth, labelled = people()
    predicted = truth.copy()
    predicted[0, 4] = math.nan
    assert pck(predicted, truth, labelled, np.array([50.0]))[0.5].mean == pytest.approx(100 * 13 / 14)


def test_the_summary_pools_sides() -> None:
    truth, labelled = people(2)
    labelled[1, LSP.index("l_knee")] = False
    predicted = truth.copy()
    predicted[0, LSP.index("l_knee")] += 500
    scores = summary(pck(predicted, truth, labelled, np.array([50.0, 50.0])), LSP)
    assert scores["pck@0.2/knee"] == pytest.approx(100 * 2 / 3) and scores["pck@0.2/ankle"] == 100
    assert list(scores)[:2] == ["pck@0.2", "pck@0.5"] and scores["pck@0.2"] == pytest.approx(100 * 26 / 27)


def test_nobody_to_measure_gives_no_score() -> None:
    truth, labelled = people()
    results = pck(truth, truth, labelled, np.array([math.nan]))
    assert math.isnan(results[0.2].mean) and np.isnan(results[0.2].per_joint).all()
    assert math.isnan(summary(results, LSP)["pck@0.2/head"])


def test_what_is_refused() -> None:
    truth, labelled = people()
    with pytest.raises(HalfmaskError, match=r"predictions have shape \(1, 13, 2\)"):
        pck(truth[:, :13], truth, labelled, np.ones(1))
    with pytest.raises(HalfmaskError, match="no people to score"):
        pck(truth[:0], truth[:0], labelled[:0], np.ones(0))


def test_mpiis_torso_is_found_by_name() -> None:
    joints = np.zeros((1, 16, 2))
    joints[0, 13] = (3, 4)
    assert torso_lengths(joints, np.ones((1, 16), bool), MPII).tolist() == [5.0]
