"""Masks by motion: which way they err."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from halfmask.data.clip_frames import protected_pixels
from halfmask.data.clip_masks import mask_source
from halfmask.data.clip_motion import MOTION, MotionMasks, moving
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError


def walker(frames: int = 24, speed: int = 5, noise: int = 2) -> Film:
    """Somebody dark who walks along a light wall, past the noise of a camera."""
    rng = np.random.default_rng(0)
    wall = cv2.resize(rng.integers(140, 220, (8, 10, 3), dtype=np.uint8), (160, 120), interpolation=cv2.INTER_CUBIC)
    stored = np.stack([wall] * frames).astype(int)
    person = np.zeros((frames, 120, 160), bool)
    for number in range(frames):
        left = 10 + speed * number
        person[number, 50:110, left : left + 20] = True
        person[number, 35:50, left + 5 : left + 15] = True
    stored[person] = (60, 40, 90)
    return Film(np.clip(stored + rng.integers(-noise, noise + 1, stored.shape), 0, 255).astype(np.uint8), person=person)


TAKE = Take("one", "walk", walker)


@pytest.mark.parametrize("way", MOTION)
def test_somebody_who_walks_is_found_and_errs_on_the_safe_side(way) -> None:
    film = walker()
    assert film.person is not None
    for protect in ("background", "person"):
        found = mask_source("motion", protect, motion=way)(TAKE, Film(film.frames))
        protected = protected_pixels(found, protect, margin=1)
        if protect == "person":
            assert not (film.person & ~protected).any(), "all of the person is protected"
            assert protected.mean() < 0.5
        elif way != "hull":
            public = ~protected
            assert not (public & ~film.person).any(), "nothing of the background is public"
            assert way != "median" or public[film.person].mean() > 0.5
        else:
            assert (~protected)[film.person].mean() > 0.8 and protected.mean() > 0.7


def test_masks_are_the_same_each_time() -> None:
    film, found = walker(12), []
    for seed in (1, 2):
        cv2.setRNGSeed(seed)
        found.append(moving(film.frames, False))
    np.testing.assert_array_equal(*found)
    some = moving(film.frames, False, picked=np.array([2, 7, 7]))
    np.testing.assert_array_equal(some[[2, 7]], found[0][[2, 7]])
    assert not some[[0, 1, 3, 11]].any(), "nobody looks at those, and nothing of them would be public"


def test_a_still_body_stays_protected_with_the_background_and_its_outline_is_that_of_the_film() -> None:
    """Only an arm moves: the rest is protected with the background, and an outline covers what moves anywhere in the film."""
    film = walker(24, speed=0)
    frames = film.frames.copy()
    arm = np.zeros(frames.shape[:3], bool)
    for number in range(24):
        top = 30 + 3 * (number % 8)
        arm[number, top : top + 12, 30:50] = True
    frames[arm] = (60, 40, 90)
    sure = moving(frames, generous=False)
    assert not (sure & film.person).any() and sure.any()
    generous = moving(frames, generous=True)
    assert (generous == generous[0]).all() and not (arm.any(0) & ~generous[0])[:, 31:].any()


def test_nothing_moves_nobody_is_found() -> None:
    still = Film(np.full((8, 40, 50, 3), 90, np.uint8))
    for protect in ("background", "person"):
        found = MotionMasks(protect)(TAKE, still)
        assert found.person is not None and not found.person.any()
    assert protected_pixels(MotionMasks("background")(TAKE, still), "background").all()


def test_motion_is_of_a_person() -> None:
    with pytest.raises(HalfmaskError, match="what moves is a person; protect person or background"):
        MotionMasks("mask")
    with pytest.raises(HalfmaskError, match="unknown way to find what moves"):
        MotionMasks("person", "flow")
    assert MotionMasks("person").key != MotionMasks("background").key != MotionMasks("background", "hull").key
    assert "the background there too" in MotionMasks("background", "hull").words
