"""Films known again: under other bytes, and never for somebody else before the same wall."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from halfmask.data.clip_prints import film_print
from halfmask.privacy.fingerprints import Fingerprints


def wall(seed: int = 0, shape: tuple[int, int] = (144, 180)) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(60, 200, (7, 9, 3), dtype=np.uint8)
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC)


def film_of(number: int, room: int = 0) -> np.ndarray:
    """Somebody of their own height, clothes and place before a wall."""
    rng = np.random.default_rng(100 + number)
    frames = np.stack([wall(room)] * 9)
    high, wide, left = int(rng.integers(60, 90)), int(rng.integers(16, 30)), int(rng.integers(10, 90))
    for step, frame in enumerate(frames):
        cv2.rectangle(frame, (left + 3 * step, 130 - high), (left + 3 * step + wide, 130), rng.integers(0, 50, 3).tolist(), -1)
        cv2.circle(frame, (left + 3 * step + wide // 2, 122 - high), 9, (150, 110, 90), -1)
    return frames


def prints_of(*films: np.ndarray) -> Fingerprints:
    return Fingerprints.stacked([film_print(film) for film in films])


def jpeg(film: np.ndarray) -> np.ndarray:
    return np.stack([cv2.imdecode(cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 60])[1], 1) for frame in film])


CHANGES = {
    "as it was": lambda film: film.copy(),
    "re-encoded": jpeg,
    "half the size": lambda film: np.stack([cv2.resize(frame, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA) for frame in film]),
    "mirrored": lambda film: film[:, :, ::-1],
    "edges cut": lambda film: film[:, 6:-6, 8:-8],
    "mirrored and re-encoded": lambda film: jpeg(np.ascontiguousarray(film[:, :, ::-1])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_film_is_known_again(change) -> None:
    films = [film_of(number) for number in range(6)]
    copies = prints_of(*(CHANGES[change](film) for film in films))
    assert copies.in_pictures_of(prints_of(*films)).all()


def test_somebody_else_before_the_same_wall_is_somebody_else() -> None:
    ours, theirs = prints_of(*map(film_of, range(6))), prints_of(*map(film_of, range(6, 12)))
    assert not ours.in_pictures_of(theirs).any()


def test_films_without_motion_or_light_are_told_apart_by_their_pixels() -> None:
    dark = [np.full((9, 60, 80, 3), level, np.uint8) for level in (0, 1)]
    assert not prints_of(dark[0]).in_pictures_of(prints_of(dark[1])).any()
    assert prints_of(dark[0]).in_pictures_of(prints_of(dark[0])).all()
    # The same middle frame in another film: nothing but all frames together is exact.
    one = film_of(0)
    other = one.copy()
    other[0] = 0
    assert (film_print(one)["exact"] != film_print(other)["exact"]).any()


def test_real_people_before_one_wall_are_never_taken_for_each_other(shared_data) -> None:
    from halfmask.data.video_sets.weizmann import read_weizmann

    takes = [take for take in read_weizmann(shared_data("weizmann")).takes if take.label in ("bend", "wave2")]
    prints = prints_of(*(take.read().frames for take in takes))
    people = np.array([take.subject for take in takes])
    for person in ("daria", "moshe"):
        ours, theirs = np.flatnonzero(people == person), np.flatnonzero(people != person)
        assert len(ours) == 2 and not prints.take(ours).in_pictures_of(prints.take(theirs)).any()
