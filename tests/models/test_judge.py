"""The shipped network looks at pictures of any size."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from halfmask.data.figures import World
from halfmask.errors import HalfmaskError
from halfmask.models.judge import SIZE, check_pictures, resized, shipped_judge
from halfmask.tasks.pose import predict

pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(count: int) -> np.ndarray:
    world = World("public", seed=0, size=SIZE)
    return np.stack([world.figure(number).image.transpose(2, 0, 1) for number in range(count)])


def test_joints_are_in_pixels_of_the_picture_whatever_its_size() -> None:
    judge = shipped_judge()
    images = drawn(3)
    whole = judge.look(images)
    placed, sure = predict(judge.model, images, flip_test=False)
    assert whole.joints == pytest.approx(placed, abs=1e-4) and whole.confidence == pytest.approx(sure, abs=1e-5)
    half = judge.look(resized(images, (128, 96)))
    apart = np.linalg.norm((half.joints + 0.5) * 2 - 0.5 - whole.joints, axis=2)
    assert np.median(apart) < 4, "the same places, to within what is lost of a smaller picture"
    assert whole.features.shape == (3, 208) and whole.grid.shape == (3, 12 * 208)


def test_one_picture_does_not_change_what_is_seen_of_another() -> None:
    judge = shipped_judge()
    images = np.random.default_rng(0).integers(0, 255, (2, 3, 64, 48), dtype=np.uint8)
    assert judge.look(images).features[1:] == pytest.approx(judge.look(images[1:]).features, abs=1e-4)
    assert judge.name.startswith("pose_nano (") and shipped_judge() is judge


def test_sizes_and_kinds() -> None:
    images = np.random.default_rng(0).integers(0, 255, (1, 3, 8, 8), dtype=np.uint8)
    smaller = cv2.resize(np.ascontiguousarray(images[0].transpose(1, 2, 0)), (4, 4), interpolation=cv2.INTER_AREA)
    assert np.array_equal(resized(images, (4, 4))[0].transpose(1, 2, 0), smaller)
    assert resized(images, (16, 12)).shape == (1, 3, 16, 12) and np.array_equal(resized(images, (8, 8)), images)
    for wrong in (images[0], images.astype(np.float32), images.transpose(0, 2, 3, 1), images[:0]):
        with pytest.raises(HalfmaskError, match="uint8"):
            check_pictures(wrong)
