from __future__ import annotations

import time

import numpy as np
import pytest

from halfmask.data.avatar_draw import draw_avatar, draw_look
from halfmask.data.avatar_joints import HEAD_TOP, L_ELBOW, L_WRIST, R_ANKLE
from halfmask.data.avatars import AVATARS
from halfmask.data.figures.clips import Clips
from halfmask.data.inpainting import grown


def posed(number: int = 4, frames: int = 4, size: tuple[int, int] = (96, 96)) -> tuple[np.ndarray, np.ndarray]:
    drawn = Clips("private", size=size, frames=frames).clip(number)
    return drawn.joints.astype(float), drawn.person


def test_every_avatar_stands_where_the_person_stood() -> None:
    joints, mask = posed()
    for avatar in AVATARS:
        covered = draw_look(joints, avatar, (96, 96))[..., 3] == 255
        shared = (covered & mask).sum() / (covered | mask).sum()
        assert shared > 0.45, avatar
        for joint in range(16):
            if joint in (R_ANKLE, HEAD_TOP, 5):
                continue
            x, y = np.rint(joints[0, joint]).astype(int)
            assert grown(covered, 2)[0, y, x], (avatar, joint)


def test_colours_end_where_the_cover_does() -> None:
    joints, _ = posed()
    for avatar in AVATARS:
        sheets = draw_look(joints, avatar, (96, 96))
        colour, cover = sheets[..., :3].astype(int), sheets[..., 3].astype(int)
        assert not colour[cover == 0].any()
        # A colour is never stronger than its cover; rounding in OpenCV may add a step or two.
        assert (colour <= cover[..., None] + 3).all()


def test_avatars_are_drawn_differently() -> None:
    joints, _ = posed()
    assert len({draw_look(joints, avatar, (96, 96)).tobytes() for avatar in AVATARS}) == len(AVATARS)


def test_a_limb_without_joints_is_not_drawn_and_the_rest_is() -> None:
    joints, _ = posed()
    whole = draw_avatar(joints, 1, (96, 96))
    joints[:, [L_ELBOW, L_WRIST]] = np.nan
    without = draw_avatar(joints, 1, (96, 96))
    assert 0 < (without[..., 3] == 255).sum() < (whole[..., 3] == 255).sum()
    assert not draw_avatar(np.full_like(joints, np.nan), 1, (96, 96)).any()


def test_frames_do_not_depend_on_the_picture_around_them() -> None:
    joints, _ = posed()
    small = draw_avatar(joints, 1, (96, 96))
    large = draw_avatar(joints, 1, (120, 140))
    np.testing.assert_array_equal(large[:, :94, :94], small[:, :94, :94])


@pytest.mark.alone
def test_avatars_are_drawn_quickly() -> None:
    joints, _ = posed(frames=8)
    draw_avatar(joints, 0, (96, 96))
    start = time.process_time()
    for key in range(30):
        draw_avatar(joints, key, (96, 96))
    assert 30 / (time.process_time() - start) > 40
