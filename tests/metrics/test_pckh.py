import json
import math

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.metrics.pckh import JOINT_GROUPS, JOINT_NAMES, head_size, pckh, summary


def people(count, head=10.0):
    """Perfect predictions for `count` people, every joint labelled."""
    truth = np.arange(count * 32, dtype=np.float64).reshape(count, 16, 2)
    return truth.copy(), truth, np.ones((count, 16), dtype=bool), np.full(count, head)


def test_perfect_predictions_score_hundred_everywhere():
    result = pckh(*people(3))
    assert result.mean == 100.0
    assert set(result.per_joint) == set(JOINT_NAMES)
    assert all(value == 100.0 for value in result.per_joint.values())
    assert list(result.per_group) == ["Head", "Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle"]
    assert result.count == 3 * 14


def test_head_size_is_six_tenths_of_the_diagonal_and_ignores_corner_order():
    assert head_size(np.array([[10, 20, 40, 60], [40, 60, 10, 20]])) == pytest.approx([30.0, 30.0])


def test_distance_exactly_at_the_threshold_counts_and_just_beyond_does_not():
    predicted, truth, labelled, heads = people(1)
    predicted[0, 0] += (3.0, 4.0)  # distance 5 = 0.5 heads
    predicted[0, 1] += (3.0, 4.001)
    result = pckh(predicted, truth, labelled, heads)
    assert result.per_joint["r_ankle"] == 100.0
    assert result.per_joint["r_knee"] == 0.0
    assert result.mean == pytest.approx(100 * 13 / 14)


def test_each_person_is_measured_by_their_own_head():
    predicted, truth, labelled, heads = people(2)
    heads[1] = 4.0
    predicted[:, 9, 0] += 5.0  # half a head for the first person, more than one head for the second
    assert pckh(predicted, truth, labelled, heads).per_group["Head"] == 50.0


def test_missing_joints_count_neither_right_nor_wrong():
    predicted, truth, labelled, heads = people(2)
    labelled[1, 10] = False
    predicted[1, 10] += 1000.0
    truth[1, 10] = np.nan
    result = pckh(predicted, truth, labelled, heads)
    assert result.mean == 100.0
    assert result.per_joint["r_wrist"] == 100.0
    assert result.count == 27


def test_mean_weights_joints_by_their_annotations():
    predicted, truth, labelled, heads = people(4)
    labelled[:] = False
    labelled[:, 0] = True  # four right ankles, all right
    labelled[0, 1] = True  # one right knee, wrong
    predicted[0, 1] += 1000.0
    result = pckh(predicted, truth, labelled, heads)
    assert result.mean == pytest.approx(80.0)  # the plain mean over joints would be 50
    assert result.count == 5


def test_mean_leaves_out_pelvis_and_thorax_only():
    predicted, truth, labelled, heads = people(1)
    predicted[0, 6:8] += 1000.0
    result = pckh(predicted, truth, labelled, heads)
    assert result.mean == 100.0
    assert result.per_joint["pelvis"] == result.per_joint["thorax"] == 0.0
    predicted[0, 8] += 1000.0
    assert pckh(predicted, truth, labelled, heads).mean == pytest.approx(100 * 13 / 14)


def test_group_is_the_plain_mean_of_right_and_left():
    predicted, truth, labelled, heads = people(4)
    labelled[1:, 13] = False  # left shoulder annotated once, and wrong; right shoulder four times, all right
    predicted[0, 13] += 1000.0
    assert pckh(predicted, truth, labelled, heads).per_group["Shoulder"] == 50.0


def test_groups_name_the_joints_they_hold():
    for group, joints in JOINT_GROUPS.items():
        assert all(group in JOINT_NAMES[joint] for joint in joints)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_prediction_that_is_not_finite_is_wrong(bad):
    predicted, truth, labelled, heads = people(2)
    predicted[0, 0, 1] = bad
    result = pckh(predicted, truth, labelled, heads)
    assert result.per_joint["r_ankle"] == 50.0
    assert result.mean == pytest.approx(100 * 27 / 28)


def test_joint_never_annotated_is_nan_and_does_not_poison_the_mean():
    predicted, truth, labelled, heads = people(2)
    labelled[:, 5] = False
    result = pckh(predicted, truth, labelled, heads)
    assert math.isnan(result.per_joint["l_ankle"])
    assert math.isnan(result.per_group["Ankle"])
    assert result.mean == 100.0


def test_nothing_annotated_gives_nan_and_asks_for_no_head_size():
    predicted, truth, labelled, _ = people(2)
    labelled[:] = False
    result = pckh(predicted, truth, labelled, np.zeros(2))
    assert math.isnan(result.mean)
    assert result.count == 0


def test_agrees_with_the_masked_array_arithmetic_of_the_customary_script():
    rng = np.random.default_rng(5)
    truth = rng.uniform(0, 200, (50, 16, 2))
    predicted = truth + rng.normal(0, 8, truth.shape)
    labelled = rng.random((50, 16)) < 0.8
    heads = rng.uniform(10, 40, 50)
    counts = np.ma.array(labelled.sum(axis=0), mask=np.isin(np.arange(16), (6, 7)))
    scaled = np.linalg.norm(predicted - truth, axis=2) / heads[:, None]
    percent = 100.0 * ((scaled <= 0.5) & labelled).sum(axis=0) / counts
    expected = float((percent * (counts / counts.sum())).sum())
    assert pckh(predicted, truth, labelled, heads).mean == pytest.approx(expected)


def test_summary_holds_both_thresholds_and_the_groups():
    predicted, truth, labelled, heads = people(1)
    predicted[0, 9, 0] += 2.0  # 0.2 heads: right at 0.5, wrong at 0.1
    predicted[0, 0, 0] += 9.0  # wrong at both
    scores = summary(predicted, truth, labelled, heads)
    assert scores["pckh@0.5"] == pytest.approx(100 * 13 / 14)
    assert scores["pckh@0.1"] == pytest.approx(100 * 12 / 14)
    assert scores["pckh@0.5/head"] == 100.0
    assert scores["pckh@0.5/ankle"] == 50.0
    assert set(scores) == {"pckh@0.5", "pckh@0.1"} | {f"pckh@0.5/{group}" for group in JOINT_GROUPS}
    json.dumps(scores)


@pytest.mark.parametrize(
    ("position", "wrong", "words"),
    [
        (0, np.zeros((2, 15, 2)), r"predicted joints have shape \(2, 15, 2\); expected \(2, 16, 2\)"),
        (1, np.zeros((2, 16, 3)), r"true joints have shape \(2, 16, 3\)"),
        (1, np.zeros((0, 16, 2)), "no people to score"),
        (2, np.ones((16, 2), dtype=bool), r"labelled flags have shape \(16, 2\)"),
        (3, np.ones(3), r"head sizes have shape \(3,\); expected \(2,\)"),
        (3, np.array([5.0, 0.0]), "person 1 has head size 0.0"),
        (3, np.array([np.nan, 1.0]), "person 0 has head size nan"),
    ],
)
def test_mistaken_arrays_are_named(position, wrong, words):
    arguments = list(people(2))
    arguments[position] = wrong
    with pytest.raises(HalfmaskError, match=words):
        pckh(*arguments)


def test_labelled_truth_must_be_finite():
    predicted, truth, labelled, heads = people(2)
    truth[1, 12, 0] = np.nan
    with pytest.raises(HalfmaskError, match="person 1 has r_shoulder labelled"):
        pckh(predicted, truth, labelled, heads)


def test_head_boxes_of_the_wrong_shape_are_refused():
    with pytest.raises(HalfmaskError, match=r"head boxes have shape \(4,\)"):
        head_size(np.zeros(4))
