"""Frames of films: which are picked, and that what is not hidden owes nothing to a protected stored pixel."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from halfmask.data.clip_frames import COVER, fitted, narrowed, network_frames, pick, protected_pixels, widened, windows_of
from halfmask.data.clips import Film
from halfmask.errors import HalfmaskError


def film_of(seed: int = 0, shape: tuple[int, int] = (60, 90), frames: int = 5, blended: int = 1) -> Film:
    """Noise with somebody walking through it."""
    rng = np.random.default_rng(seed)
    person = np.zeros((frames, *shape), bool)
    for number in range(frames):
        person[number, 15:48, 25 + 4 * number : 45 + 4 * number] = True
    return Film(rng.integers(0, 256, (frames, *shape, 3), dtype=np.uint8), person=person, blended=blended)


def other_where(film: Film, protected: np.ndarray, seed: int = 1) -> np.ndarray:
    """The film with other stored pixels wherever they are protected."""
    other = np.random.default_rng(seed).integers(0, 256, film.frames.shape, dtype=np.uint8)
    return np.where(protected[..., None], other, film.frames)


def test_frames_are_picked_evenly_from_the_middle_of_each_stretch() -> None:
    for stored in range(1, 40):
        for wanted in (1, 3, 8, 16):
            expected = [int(np.floor((k + 0.5) * stored / wanted)) for k in range(wanted)]
            assert pick(stored, wanted).tolist() == expected
    assert pick(8, 8).tolist() == list(range(8))
    assert pick(1, 4).tolist() == [0, 0, 0, 0]


def test_masks_grow_and_shrink_by_exactly_so_many_pixels_and_a_frames_edge_is_no_outline() -> None:
    mask = np.zeros((1, 9, 9), bool)
    mask[0, 4, 4] = True
    assert widened(mask, 2)[0].sum() == 25 and widened(mask, 2)[0, 2:7, 2:7].all()
    assert narrowed(widened(mask, 2), 2).sum() == 1
    half = np.zeros((1, 9, 9), bool)
    half[0, :, :5] = True
    assert narrowed(half, 1)[0, :, :4].all() and not narrowed(half, 1)[0, :, 4:].any()
    np.testing.assert_array_equal(widened(mask, 0), mask)


def test_blended_pixels_are_protected_on_whichever_side_they_lie() -> None:
    film = film_of(blended=2)
    assert film.person is not None
    background, person = protected_pixels(film, "background"), protected_pixels(film, "person")
    # The outline belongs to both: two pixels on either side.
    assert (background | person).all() and (background & person).any()
    assert (background & film.person).any() and (person & ~film.person).any()
    wider = protected_pixels(film, "background", margin=3)
    assert (wider >= background).all() and wider.sum() > background.sum()
    own = Film(film.frames, protected=film.person, blended=2)
    np.testing.assert_array_equal(protected_pixels(own, "mask"), film.person)
    assert protected_pixels(own, "mask", margin=1).sum() > film.person.sum()


def test_a_mask_that_is_not_there_is_told_with_what_to_do() -> None:
    film = Film(film_of().frames)
    for protect in ("background", "person", "mask"):
        with pytest.raises(HalfmaskError, match=r"say with data\.masks where the masks come from"):
            protected_pixels(film, protect)
    with pytest.raises(HalfmaskError, match="unknown part to protect"):
        protected_pixels(film, "foreground")


@pytest.mark.parametrize("protect", ["background", "person"])
@pytest.mark.parametrize("fit", ["crop", "squeeze", "person"])
@pytest.mark.parametrize(
    ("shape", "size"), [((60, 90), 32), ((61, 83), 29), ((40, 30), 64), ((48, 48), 48), ((47, 96), 48), ((33, 200), 64)]
)
def test_what_is_not_hidden_owes_nothing_to_a_protected_stored_pixel(protect, fit, shape, size) -> None:
    film = film_of(shape=shape)
    protected = protected_pixels(film, protect)
    windows = windows_of(protected.shape, fit, film.person)
    clip, hidden = network_frames(film.frames, protected, size, windows)
    assert clip.shape == (5, 3, size, size) and hidden.shape == (5, size, size)
    for seed in range(3):
        again, hidden_again = network_frames(other_where(film, protected, seed), protected, size, windows)
        np.testing.assert_array_equal(hidden, hidden_again)
        shown = np.broadcast_to(~hidden[:, None], clip.shape)
        np.testing.assert_array_equal(clip[shown], again[shown])
    if hidden.any():
        assert (clip != again).any(), "what is hidden shows the film"


def test_resampling_before_masking_would_leak() -> None:
    """The order that the test above is there for: a mask resampled beside frames that were resampled as they are."""
    film = film_of()
    protected = protected_pixels(film, "background")
    changed = other_where(film, protected)
    hidden = np.stack([cv2.resize(one.astype(np.uint8), (32, 32), interpolation=cv2.INTER_NEAREST) for one in protected[:, :, 15:75]]) > 0
    late, late_changed = (fitted(frames, 32, windows_of((5, 60, 90))) for frames in (film.frames, changed))
    assert (late[~hidden] != late_changed[~hidden]).any()


def test_what_is_shown_is_public_by_construction_whatever_is_made_of_the_mask(monkeypatch) -> None:
    """Even if resampling the mask missed a contribution, no pixel that is not hidden would hold anything of it."""
    film = film_of(shape=(61, 83))
    protected = protected_pixels(film, "background")

    def forgetful(frames: np.ndarray, size: int, windows: list) -> np.ndarray:
        if frames.ndim == 3:
            return np.stack([cv2.resize(one[:, 11:72], (size, size), interpolation=cv2.INTER_NEAREST) for one in frames])
        return fitted(frames, size, windows)

    monkeypatch.setattr("halfmask.data.clip_frames.fitted", forgetful)
    monkeypatch.setattr("halfmask.data.clip_frames._grown", lambda mask, pixels: mask)
    clip, hidden = network_frames(film.frames, protected, 29)
    again, _ = network_frames(other_where(film, protected), protected, 29)
    shown = np.broadcast_to(~hidden[:, None], clip.shape)
    np.testing.assert_array_equal(clip[shown], again[shown])
    assert (fitted(film.frames, 29, windows_of((5, 61, 83))).transpose(0, 3, 1, 2)[shown] != clip[shown]).any(), "the mask did miss some"


def test_hidden_is_what_anything_protected_has_a_part_in_and_one_pixel_more() -> None:
    person = np.zeros((5, 120, 120), bool)
    person[:, 30:90, 30:90] = True
    frames = np.full((5, 120, 120, 3), 10, np.uint8)
    frames[person] = 200
    clip, hidden = network_frames(frames, protected_pixels(Film(frames, person=person, blended=1), "background"), 40)
    assert hidden is not None
    # Of the network's rows, each of three stored ones, 11 to 28 lie wholly in 31 to 88; the outermost of them are hidden besides.
    expected = np.ones((40, 40), bool)
    expected[12:28, 12:28] = False
    np.testing.assert_array_equal(hidden, np.broadcast_to(expected, hidden.shape))
    public = clip.transpose(0, 2, 3, 1)[~hidden]
    assert (public == 200).all() and COVER not in public


def test_nothing_is_dilated_where_nothing_is_resampled() -> None:
    film = film_of(shape=(48, 96))
    protected = protected_pixels(film, "background")
    clip, hidden = network_frames(film.frames, protected, 48)
    np.testing.assert_array_equal(hidden, protected[:, :, 24:72])
    np.testing.assert_array_equal(clip.transpose(0, 2, 3, 1), film.frames[:, :, 24:72])
    _, resampled = network_frames(film.frames, protected, 47)
    assert resampled.mean() > hidden.mean()


def test_without_a_mask_nothing_is_hidden() -> None:
    clip, hidden = network_frames(film_of().frames, None, 24)
    assert hidden is None and clip.shape == (5, 3, 24, 24) and clip.dtype == np.uint8
    np.testing.assert_array_equal(clip.transpose(0, 2, 3, 1), fitted(film_of().frames, 24, "crop"))
    with pytest.raises(HalfmaskError, match=r"data\.fit"):
        windows_of((5, 60, 90), "stretch")


def test_a_window_follows_whoever_walks_stands_still_before_others_and_stays_inside_the_frame() -> None:
    person = np.zeros((4, 100, 160), bool)
    for number, left in enumerate((0, 45, 95, 145)):
        person[number, 40:90, left : left + 15] = True
    walking = windows_of(person.shape, "person", person)
    assert {window[2:] for window in walking} == {(60, 60)}
    assert [window[1] for window in walking] == [0, 22, 72, 100] and all(0 <= top <= 40 for top, *_ in walking)
    still = np.zeros((4, 100, 160), bool)
    for number, left in enumerate((70, 74, 72, 71)):
        still[number, 20:90, left : left + 30] = True
    assert len(set(windows_of(still.shape, "person", still))) == 1
    # An arm alone is not looked at through a keyhole, and a frame without anybody through the nearest one's window.
    small = np.zeros((3, 100, 160), bool)
    small[1, 50:54, 80:84] = True
    assert set(windows_of(small.shape, "person", small)) == {(27, 57, 50, 50)}
    assert windows_of((2, 100, 160), "person", np.zeros((2, 100, 160), bool)) == windows_of((2, 100, 160))
    with pytest.raises(HalfmaskError, match=r"say with data\.masks where masks come from"):
        windows_of((2, 100, 160), "person")
