from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halfmask.data.anonymise import Pipeline, anonymise, compose, no_avatar, own_mask, stages
from halfmask.data.avatar_draw import draw_avatar
from halfmask.data.clips import Film
from halfmask.data.figures.clips import Clips
from halfmask.data.inpainting import grown, inpaint_frames
from halfmask.errors import HalfmaskError


def filmed(number: int = 4, frames: int = 6, size: tuple[int, int] = (96, 96)) -> tuple[Film, np.ndarray]:
    drawn = Clips("private", size=size, frames=frames).clip(number)
    return Film(drawn.frames, drawn.person), drawn.joints.astype(float)


@pytest.mark.parametrize("number", [0, 4, 5])
def test_an_avatar_holds_nothing_of_any_pixel_of_the_clip(number: int) -> None:
    film, joints = filmed(number)
    first = anonymise(film, joints, "clip")
    rng = np.random.default_rng(number)
    for frames in (
        rng.integers(0, 256, film.frames.shape, np.uint8),
        np.zeros_like(film.frames),
        np.full_like(film.frames, 255),
        np.where(film.person[..., None], rng.integers(0, 256, film.frames.shape, np.uint8), film.frames),
    ):
        other = anonymise(replace(film, frames=frames), joints, "clip")
        np.testing.assert_array_equal(other.person, first.person)
        np.testing.assert_array_equal(other.frames[other.person], first.frames[first.person])
    assert first.person.any(axis=(1, 2)).all()
    assert first.blended == 0


def test_what_is_blended_with_the_room_does_not_count_as_avatar() -> None:
    film, joints = filmed()
    black = anonymise(replace(film, frames=np.zeros_like(film.frames)), joints, 1)
    white = anonymise(replace(film, frames=np.full_like(film.frames, 255)), joints, 1)
    differs = (black.frames != white.frames).any(axis=3)
    assert not (differs & black.person).any()
    edge = grown(black.person, 1) & ~black.person
    # The outline is anti-aliased: if it were not, this test would not tell anything.
    blended = (black.frames > 0).any(axis=3) & edge & differs
    assert blended.sum() > 20


def test_nothing_of_the_person_is_left() -> None:
    film, joints = filmed()
    rng = np.random.default_rng(0)
    paint = np.where(grown(film.person, film.blended)[..., None], rng.integers(0, 256, film.frames.shape, np.uint8), film.frames)
    plain = anonymise(film, joints, 1)
    np.testing.assert_array_equal(anonymise(replace(film, frames=paint), joints, 1).frames, plain.frames)
    kept = ~grown(film.person, film.blended + 2) & ~grown(plain.person, 2)
    np.testing.assert_array_equal(plain.frames[kept], film.frames[kept])


def test_the_film_that_goes_in_is_not_changed() -> None:
    film, joints = filmed()
    frames, mask, before = film.frames.copy(), film.person.copy(), joints.copy()
    anonymise(film, joints, 1)
    np.testing.assert_array_equal(film.frames, frames)
    np.testing.assert_array_equal(film.person, mask)
    np.testing.assert_array_equal(joints, before)


def test_one_avatar_for_a_key_and_others_for_others() -> None:
    film, joints = filmed()
    one = anonymise(film, joints, "a")
    np.testing.assert_array_equal(one.frames, anonymise(film, joints, "a").frames)
    assert len({anonymise(film, joints, key).frames.tobytes() for key in range(12)}) > 6


def test_a_frame_without_a_mask_loses_its_person_by_the_joints() -> None:
    film, joints = filmed()
    blind = film.person.copy()
    blind[2] = False
    found = stages(replace(film, person=blind), joints, 1)
    missed = film.person[2] & ~found.holes[2]
    assert missed.sum() < 0.03 * film.person[2].sum()
    assert found.film.person[2].any()


def test_holes_follow_the_bones_where_masks_are_estimates() -> None:
    film, joints = filmed()
    half = film.person.copy()
    half[:, ::2] = False
    half[:, :48] = False
    plain = stages(replace(film, person=half), joints, 1)
    sure = stages(replace(film, person=half), joints, 1, Pipeline(hide_bones=True))
    assert (film.person & ~plain.holes).sum() > 100
    assert (film.person & ~sure.holes).sum() < 0.03 * film.person.sum()


def test_who_left_the_picture_gets_no_avatar_and_who_is_seen_keeps_theirs() -> None:
    film, joints = filmed()
    gone = film.person.copy()
    gone[4] = False
    lost = joints.copy()
    lost[3:5] = np.nan
    made = anonymise(replace(film, person=gone), lost, 1)
    assert made.person[3].any() and made.person[5].any()
    assert not made.person[4].any()


def test_no_joints_at_all_remove_the_person_and_draw_nobody() -> None:
    film, joints = filmed()
    made = anonymise(film, np.full_like(joints, np.nan), 1)
    assert not made.person.any()
    kept = ~grown(film.person, film.blended + 2)
    np.testing.assert_array_equal(made.frames[kept], film.frames[kept])
    assert (made.frames != film.frames).any(axis=3)[film.person].mean() > 0.9
    np.testing.assert_array_equal(anonymise(film, joints, 1, Pipeline(draw=no_avatar)).frames, made.frames)


def test_what_cannot_be_done_is_refused() -> None:
    film, joints = filmed()
    with pytest.raises(HalfmaskError, match="came without joints"):
        anonymise(film, None, 1)
    with pytest.raises(HalfmaskError, match=r"expected \(6, 16, 2\)"):
        anonymise(film, joints[:3], 1)
    with pytest.raises(HalfmaskError, match="no mask of its person"):
        own_mask(replace(film, person=None))
    with pytest.raises(HalfmaskError, match="frames by height by width"):
        anonymise(film, joints, 1, Pipeline(segment=lambda film: film.person[:, :50]))
    with pytest.raises(HalfmaskError, match="nobody could be removed"):
        anonymise(replace(film, person=np.zeros_like(film.person)), np.full_like(joints, np.nan), 1)


def test_every_part_can_be_replaced() -> None:
    film, joints = filmed()
    asked: list[str] = []

    def segment(film: Film) -> np.ndarray:
        asked.append("segment")
        return np.ones(film.frames.shape[:3], bool)

    def pose(film: Film) -> np.ndarray:
        asked.append("pose")
        assert film.person is not None and film.person.all()
        return joints

    def fill(frames: np.ndarray, holes: np.ndarray) -> np.ndarray:
        asked.append("inpaint")
        return np.full_like(frames, 7)

    def draw(joints: np.ndarray, key: str | int, size: tuple[int, int], present: np.ndarray) -> np.ndarray:
        asked.append("draw")
        return np.zeros((len(joints), *size, 4), np.uint8)

    made = anonymise(film, None, 1, Pipeline(segment, fill, pose, draw))
    assert asked == ["segment", "pose", "inpaint", "draw"]
    assert (made.frames == 7).all() and not made.person.any()


def test_what_the_holder_protects_stays_so_and_what_is_filled_in_joins_it() -> None:
    film, joints = filmed()
    guarded = np.zeros_like(film.person)
    guarded[:, :30] = True
    found = stages(replace(film, protected=guarded), joints, 1, Pipeline(inpaint=inpaint_frames))
    made = found.film
    assert made.protected is not None
    assert (made.protected[guarded & ~made.person]).all()
    assert (made.protected[found.holes & ~made.person]).all()
    # Whatever a protected pixel has a part in is protected: change them all, and look.
    rng = np.random.default_rng(0)
    frames = np.where(guarded[..., None], rng.integers(0, 256, film.frames.shape, np.uint8), film.frames)
    other = anonymise(replace(film, protected=guarded, frames=frames), joints, 1, Pipeline(inpaint=inpaint_frames))
    np.testing.assert_array_equal(other.frames[~made.protected], made.frames[~made.protected])


def test_compose_covers_what_is_covered_and_blends_what_is_not() -> None:
    frames = np.full((1, 1, 3, 3), 200, np.uint8)
    sheets = np.array([[[[10, 20, 30, 255], [50, 50, 50, 128], [0, 0, 0, 0]]]], np.uint8)
    made = compose(Film(frames), sheets, np.zeros((1, 1, 3), bool))
    assert made.frames[0, 0].tolist() == [[10, 20, 30], [150, 150, 150], [200, 200, 200]]
    assert made.person is not None and made.person[0, 0].tolist() == [True, False, False]


def test_joints_far_outside_are_drawn_without_harm() -> None:
    film, joints = filmed()
    joints[1] = 1e12
    joints[2, :5] = -1e7
    assert anonymise(film, joints, 1).frames.shape == film.frames.shape
    assert draw_avatar(joints, 1, (8, 8)).shape == (6, 8, 8, 4)
