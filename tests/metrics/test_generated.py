"""Distances of distributions whose distance is known, and poses that are known to be kept or lost."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.metrics import generated
from halfmask.metrics.generated import METRICS, frechet_distance, judge_generated, pose_kept, precision_and_recall
from halfmask.models.judge import Sight


class Eye:
    """A judge that sees the mean of each of a picture's rows, and finds all joints at its brightest pixel."""

    name = "eye (12345678)"

    def look(self, images: np.ndarray) -> Sight:
        places = images.mean(1).reshape(len(images), -1).argmax(1)
        where = np.stack([places % images.shape[3], places // images.shape[3]], 1)
        joints = np.repeat(where[:, None], 16, 1).astype(float)
        return Sight(images.mean((1, 3)) / 50, images.mean((1, 3)), joints, np.ones(joints.shape[:2]))


def seen(joints: np.ndarray) -> Sight:
    return Sight(np.zeros((len(joints), 1)), np.zeros((len(joints), 1)), joints, np.ones(joints.shape[:2]))


def pose(count: int) -> np.ndarray:
    joints = np.random.default_rng(0).uniform(10, 40, (count, 16, 3))
    joints[..., 2] = 1
    joints[:, 9, :2] = joints[:, 8, :2] + [0, -8]
    return joints


def test_the_distance_of_normal_distributions() -> None:
    rng = np.random.default_rng(0)
    spread, wide = np.array([1.0, 2.0, 0.5]), np.array([2.0, 2.0, 1.5])
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    first = rng.normal(size=(60_000, 3)) * spread @ turn
    second = (rng.normal(size=(60_000, 3)) * wide + [3.0, 0.0, -1.0]) @ turn
    # Means 10 apart, squared; spreads by 1, 0 and 1.
    assert frechet_distance(first, second) == pytest.approx(12, rel=0.02)
    assert frechet_distance(second, first) == pytest.approx(frechet_distance(first, second))
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-6)


def test_fewer_pictures_than_features_have_a_distance_too() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(5, 40)), rng.normal(size=(6, 40)).astype(np.float32)
    assert 0 < frechet_distance(first, second) < 500
    assert frechet_distance(np.zeros((4, 3)), np.zeros((4, 3))) == pytest.approx(0, abs=1e-9)


def test_precision_and_recall_tell_repetition_from_straying() -> None:
    rng = np.random.default_rng(0)
    real = rng.normal(size=(300, 4))
    alike = rng.normal(size=(300, 4))
    precise, complete = precision_and_recall(alike, real)
    assert precise > 0.8 and complete > 0.8
    precise, complete = precision_and_recall(0.01 * alike, real)
    assert precise > 0.95 and complete < 0.05, "always the same picture"
    precise, complete = precision_and_recall(np.concatenate([alike, alike + 100]), real)
    assert 0.4 < precise < 0.5 and complete > 0.8, "half of them are nobody"
    assert precision_and_recall(real, real) == (1.0, 1.0)


def test_a_pose_is_kept_or_lost() -> None:
    wanted = pose(3)
    assert pose_kept(seen(wanted[..., :2]), wanted) == 100
    # The head is 8 pixels: 3.9 off is near enough, 4.1 is not.
    assert pose_kept(seen(wanted[..., :2] + [3.9, 0]), wanted) == 100
    assert pose_kept(seen(wanted[..., :2] + [4.1, 0]), wanted) == 0
    boxes = np.tile([0.0, 0.0, 8.0, 6.0], (3, 1))  # a head of 6 pixels
    assert pose_kept(seen(wanted[..., :2] + [3.9, 0]), wanted, boxes) == 0
    boxes[1:] = np.nan
    assert pose_kept(seen(wanted[..., :2] + [3.9, 0]), wanted, boxes) == pytest.approx(200 / 3)
    wanted[0, 9, 2] = 0
    assert pose_kept(seen(wanted[..., :2] + [3.9, 0]), wanted, boxes) == pytest.approx(100 * 28 / (28 + 13), abs=0.1)
    wanted[:, 8, 2] = 0
    assert np.isnan(pose_kept(seen(wanted[..., :2]), wanted)), "nobody has a head to measure by"


def test_all_at_once_and_who_judged() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (20, 3, 8, 6), dtype=np.uint8)
    wanted = pose(20)
    found = judge_generated(images, images[:12] // 2, wanted, judge=Eye())  # type: ignore[arg-type]
    assert found.judge == Eye.name and (found.generated, found.real) == (20, 12)
    assert found.metrics.keys() == METRICS.keys() == generated.METRICS.keys()
    assert found.metrics["frechet_distance"] > 1 and found.metrics["pose_kept"] < 50
    same = judge_generated(images, images, judge=Eye())  # type: ignore[arg-type]
    assert same.metrics == {"frechet_distance": pytest.approx(0, abs=1e-4), "generated_precision": 100, "generated_recall": 100}
    assert same.to_json()["judge"] == Eye.name
    assert not METRICS["frechet_distance"].higher_is_better and METRICS["generated_recall"].unit == "%"


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="diverged"):
        frechet_distance(np.full((4, 2), np.nan), np.zeros((4, 2)))
    with pytest.raises(HalfmaskError, match="at least 4"):
        precision_and_recall(np.zeros((3, 2)), np.zeros((9, 2)))
    with pytest.raises(HalfmaskError, match="MPII"):
        pose_kept(seen(np.zeros((2, 16, 2))), np.zeros((2, 17, 3)))
    with pytest.raises(HalfmaskError, match="generated pictures"):
        judge_generated(np.zeros((0, 3, 8, 6), np.uint8), np.zeros((2, 3, 8, 6), np.uint8), judge=Eye())  # type: ignore[arg-type]
