from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.avatar_joints import HEAD_TOP, L_WRIST, NECK, PELVIS, R_HIP, THORAX, check_joints, fill_gaps, stance
from halfmask.data.figures.clips import Clips
from halfmask.errors import HalfmaskError

EVERYWHERE = np.ones(6, bool)


def joints_of(number: int = 4) -> np.ndarray:
    return Clips("private", size=(96, 96), frames=6).clip(number).joints.astype(float)


def test_gaps_are_bridged_and_ends_are_held() -> None:
    joints = joints_of()
    lost = joints.copy()
    lost[[0, 2, 5], L_WRIST] = np.nan
    filled = fill_gaps(lost, EVERYWHERE)
    np.testing.assert_allclose(filled[2, L_WRIST], (joints[1, L_WRIST] + joints[3, L_WRIST]) / 2)
    np.testing.assert_array_equal(filled[0, L_WRIST], joints[1, L_WRIST])
    np.testing.assert_array_equal(filled[5, L_WRIST], joints[4, L_WRIST])
    others = np.delete(filled, L_WRIST, axis=1)
    np.testing.assert_array_equal(others, np.delete(joints, L_WRIST, axis=1))


def test_nobody_is_held_in_a_frame_that_shows_nobody() -> None:
    joints = joints_of()
    joints[4:] = np.nan
    filled = fill_gaps(joints, np.array([1, 1, 1, 1, 1, 0], bool))
    assert np.isfinite(filled[4]).all() and np.isnan(filled[5]).all()


def test_a_joint_that_is_never_known_has_a_stand_in_or_stays_unknown() -> None:
    joints = joints_of()
    lost = joints.copy()
    lost[:, [PELVIS, THORAX, NECK, HEAD_TOP, L_WRIST]] = np.nan
    body = stance(lost, EVERYWHERE)
    assert np.isfinite(body.joints[:, [PELVIS, THORAX, NECK, HEAD_TOP]]).all()
    np.testing.assert_allclose(body.joints[:, PELVIS], joints[:, [R_HIP, R_HIP + 1]].mean(axis=1))
    assert np.isnan(body.joints[:, L_WRIST]).all()
    assert body.known.all()
    assert not stance(np.full_like(joints, np.nan), EVERYWHERE).known.any()


def test_front_tells_faces_from_backs_and_mirrors_turn() -> None:
    joints = joints_of()
    swapped = joints[:, [5, 4, 3, 2, 1, 0, 6, 7, 8, 9, 15, 14, 13, 12, 11, 10]]
    one, other = stance(joints, EVERYWHERE), stance(swapped, EVERYWHERE)
    np.testing.assert_allclose(one.front, -other.front)
    mirrored = swapped * [-1, 1] + [95, 0]
    np.testing.assert_allclose(stance(mirrored, EVERYWHERE).front, one.front)
    np.testing.assert_allclose(stance(mirrored, EVERYWHERE).turn, -one.turn)


def test_size_follows_the_picture() -> None:
    joints = joints_of()
    np.testing.assert_allclose(stance(2 * joints, EVERYWHERE).scale, 2 * stance(joints, EVERYWHERE).scale)


def test_other_shapes_are_refused_and_infinities_are_missing() -> None:
    joints = joints_of()
    joints[0, 0, 1] = np.inf
    assert np.isnan(check_joints(joints, 6)[0, 0]).all()
    with pytest.raises(HalfmaskError, match=r"shape \(6, 17, 2\)"):
        check_joints(np.zeros((6, 17, 2)), 6)
