"""The same photograph is found under any change we name, and no other picture is taken for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.privacy import alignment
from halfmask.privacy.alignment import candidates, same_pictures
from halfmask.privacy.sketches import Sketches, sketch

COUNT = 12


def photograph(seed: int, height: int = 240, width: int = 200) -> np.ndarray:
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), np.float32)
    for cells in (3, 6, 12, 24):
        total += cv2.resize(rng.normal(0, 1, (cells, cells, 3)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(120 + 18 * total, 0, 255).astype(np.uint8)


def sketches(images: list[np.ndarray]) -> Sketches:
    seen = [sketch(image) for image in images]
    return Sketches(*(np.concatenate([getattr(one, name) for one in seen]) for name in ("words", "places", "sizes", "thumbnails")))


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def resized(image: np.ndarray, factor: float) -> np.ndarray:
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)


def light(image: np.ndarray, gain: float, more: float = 0.0) -> np.ndarray:
    return np.clip(image * gain + more, 0, 255).astype(np.uint8)


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "JPEG 30": lambda image: jpeg(image, 30),
    "WebP": lambda image: cv2.imdecode(cv2.imencode(".webp", image, [cv2.IMWRITE_WEBP_QUALITY, 50])[1], cv2.IMREAD_COLOR),
    "smaller": lambda image: resized(image, 0.3),
    "larger": lambda image: resized(image, 2.0),
    "mirrored": lambda image: image[:, ::-1],
    "brighter": lambda image: light(image, 1.2),
    "darker": lambda image: light(image, 0.8),
    "more contrast": lambda image: light(image, 1.3, -38),
    "grey": lambda image: np.repeat(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None], 3, 2),
    "cut on the left": lambda image: image[:, 40:],
    "cut below": lambda image: image[:-48],
    "cut all round": lambda image: image[24:-24, 20:-20],
    "shifted": lambda image: image[4:, 4:],
    "cut, mirrored, stored with loss": lambda image: jpeg(np.ascontiguousarray(image[30:, ::-1][:, :170]), 75),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_photograph_is_found(change: str) -> None:
    images = [photograph(seed) for seed in range(COUNT)]
    changed = [np.ascontiguousarray(CHANGES[change](image)) for image in images]
    for mine, theirs in ((images, changed), (changed, images)):
        same = same_pictures(sketches(mine), sketches(theirs))
        assert sorted(map(tuple, same.tolist())) == [(number, number) for number in range(COUNT)]


def test_cut_pictures_are_laid_exactly_upon_each_other() -> None:
    """Else the largest difference is that of two edges side by side, and hides a person's."""
    images = [photograph(seed) for seed in range(COUNT)]
    mine, theirs = sketches(images), sketches([image[:-48] for image in images])
    likeness = alignment.compare(mine, theirs, np.column_stack([np.arange(COUNT)] * 2))
    assert likeness.difference.mean() < 0.06 and likeness.overlap.min() > 0.97


def test_strangers_are_not() -> None:
    mine, theirs = (sketches([photograph(seed) for seed in range(first, first + 60)]) for first in (0, 100))
    assert len(same_pictures(mine, theirs)) == 0
    assert len(candidates(mine.words, theirs.words)) > 60, "they were compared, and found to differ"


def person(room: np.ndarray, across: int, shirt: int, trousers: int) -> np.ndarray:
    """Someone a quarter as high as the room."""
    out = room.copy()
    cv2.circle(out, (across, 112), 6, (190, 150, 130), -1)
    cv2.rectangle(out, (across - 8, 119), (across + 8, 144), (shirt, shirt, shirt), -1)
    cv2.rectangle(out, (across - 6, 145), (across + 6, 170), (trousers, trousers, trousers), -1)
    return out


def test_someone_else_in_the_same_room_is_someone_else() -> None:
    """A fixed camera gives pictures that are nearly the same all over; where the person stands they are not."""
    for seed in range(4):
        room = photograph(seed)
        mine = sketches([person(room, across, 100, 120) for across in (60, 100, 140)])
        theirs = sketches([person(room, across, 160, 120) for across in (60, 100, 140)] + [room])
        pairs = candidates(mine.words, theirs.words)
        likeness = alignment.compare(mine, theirs, pairs)
        assert likeness.correlation.max() > 0.9, "as a whole they look alike, or this tests nothing"
        assert len(same_pictures(mine, theirs)) == 0
        # And the frame itself, stored again, is known although the room recurs.
        again = sketches([jpeg(person(room, 100, 100, 120), 80)])
        assert same_pictures(again, mine).tolist() == [[0, 1]]


def test_a_scene_that_recurs_is_judged_more_strictly() -> None:
    """Small differences pass where a picture stands alone, not where others like it show that a camera did not move."""
    between = (alignment.SAME + alignment.SAME_IN_A_RECURRING_SCENE) / 2
    values = ([30] * 4, [1.0] * 4, [0.98, 0.92, 0.92, 0.98], [between, 0.6, 0.6, between])
    likeness = alignment.Likeness(*(np.array(column) for column in values))
    pairs = np.array([[0, 0], [0, 1], [0, 2], [1, 3]])
    assert alignment.confirmed(pairs, likeness).tolist() == [False, False, False, True]


def test_a_small_part_is_no_evidence() -> None:
    """A plain part fits many pictures, so however well it fits, it must be a good part of the whole."""
    images = [photograph(seed) for seed in range(COUNT)]
    parts = [np.ascontiguousarray(image[40:168, 30:140]) for image in images]
    likeness = alignment.compare(sketches(images), sketches(parts), np.column_stack([np.arange(COUNT)] * 2))
    assert np.median(likeness.difference) < alignment.SAME, "they fit, or this tests nothing"
    assert len(same_pictures(sketches(images), sketches(parts))) == 0


def test_nothing_is_compared_with_nothing() -> None:
    some, none = sketches([photograph(0)]), sketches([photograph(0)]).take(np.arange(0))
    blank = sketches([np.zeros((60, 60, 3), np.uint8)] * 2)
    for mine, theirs in ((some, none), (none, some), (none, none), (blank, blank), (some, blank)):
        assert same_pictures(mine, theirs).shape == (0, 2)


def test_real_photographs(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("lspet")
    images = [cv2.imread(str(folder / "images" / f"im{number:05d}.jpg")) for number in range(101, 141)]
    changed = [jpeg(np.ascontiguousarray(image[image.shape[0] // 8 :, ::-1]), 75) for image in images]
    same = same_pictures(sketches(images), sketches(changed))
    assert (same[:, 0] == same[:, 1]).all() and len(same) >= 39
