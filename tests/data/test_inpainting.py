from __future__ import annotations

import numpy as np
import pytest

from halfmask.data.inpainting import grown, inpaint, inpaint_frames, inpaint_still, stands_still
from halfmask.errors import HalfmaskError


def room(frames: int = 8, pan: int = 0, grain: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(0)
    wall = rng.integers(30, 220, (12, 20, 3)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    still = np.stack([wall[10:74, pan * k : pan * k + 80] for k in range(frames)]).astype(float)
    return np.clip(still + grain * rng.normal(size=still.shape), 0, 255).round().astype(np.uint8)


def passer_by(frames: int = 8) -> np.ndarray:
    holes = np.zeros((frames, 64, 80), bool)
    for k in range(frames):
        holes[k, 20:60, 8 * k : 8 * k + 12] = True
    return holes


@pytest.mark.parametrize("fill", [inpaint, inpaint_still, inpaint_frames])
def test_nothing_from_inside_a_hole_stays_and_nothing_outside_changes(fill) -> None:
    frames, holes = room(), passer_by()
    holes[:, 30:40, 30:36] = True
    # Hidden most of the time: a median that counted what hides it would show it.
    holes[:7, 2:12, 60:70] = True
    rng = np.random.default_rng(1)
    kept = frames.copy()
    filled = fill(frames, holes)
    other = fill(np.where(holes[..., None], rng.integers(0, 256, frames.shape, np.uint8), frames), holes)
    np.testing.assert_array_equal(filled, other)
    np.testing.assert_array_equal(filled[~holes], frames[~holes])
    np.testing.assert_array_equal(frames, kept)


def test_a_still_camera_sees_the_room_behind_who_passes_by() -> None:
    frames, holes = room(), passer_by()
    np.testing.assert_array_equal(inpaint(frames, holes), frames)
    # Around a hole there is not as much to learn.
    apart = np.abs(inpaint_frames(frames, holes).astype(int) - frames)[holes]
    assert apart.mean() > 10


def test_who_never_moves_is_filled_in_from_around_and_the_same_in_all_frames() -> None:
    frames = np.full((5, 40, 40, 3), 90, np.uint8)
    holes = np.zeros((5, 40, 40), bool)
    holes[:, 10:30, 15:25] = True
    frames[holes] = 250
    filled = inpaint(frames, holes)
    assert (np.abs(filled.astype(int) - 90) <= 3).all()
    np.testing.assert_array_equal(filled, np.broadcast_to(filled[0], filled.shape))


def test_grain_is_no_motion_and_a_pan_is() -> None:
    nobody = np.zeros((8, 64, 80), bool)
    assert stands_still(room(grain=12.0), nobody)
    assert not stands_still(room(pan=8), nobody)
    assert not stands_still(room(pan=3), nobody)
    # What people do is not what the camera does.
    holes = passer_by()
    frames = room()
    frames[holes] = np.random.default_rng(0).integers(0, 256, (int(holes.sum()), 3), np.uint8)
    assert stands_still(frames, holes)


def test_pictures_that_are_all_hole_become_grey() -> None:
    frames, holes = room(), np.ones((8, 64, 80), bool)
    assert (inpaint(frames, holes) == 128).all() and (inpaint_frames(frames, holes) == 128).all()


def test_holes_grow_in_films_of_any_length() -> None:
    masks = np.zeros((200, 9, 9), bool)
    masks[::2, 4, 4] = True
    wide = grown(masks, 2)
    assert wide[0, 4, 2:7].all() and not wide[0, 4, 1] and not wide[1].any()
    np.testing.assert_array_equal(wide[::2], np.broadcast_to(wide[0], (100, 9, 9)))
    np.testing.assert_array_equal(grown(masks, 0), masks)


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(HalfmaskError, match="navier-stokes"):
        inpaint_frames(room(), passer_by(), "navier")
