"""What a sketch keeps of a picture, and what it cannot."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from halfmask.privacy.sketches import THUMBNAIL, WORDS, Sketches, sketch, thumbnail_shape


def photograph(seed: int = 0, height: int = 240, width: int = 200) -> np.ndarray:
    """Shapes of every size, as a photograph has them."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), np.float32)
    for cells in (3, 6, 12, 24):
        total += cv2.resize(rng.normal(0, 1, (cells, cells, 3)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(128 + 30 * total, 0, 255).astype(np.uint8)


def shared(one: Sketches, other: Sketches) -> int:
    return len(np.intersect1d(one.words[one.words > 0], other.words[other.words > 0]))


def test_a_mirror_image_has_the_same_words() -> None:
    image = photograph()
    seen, mirror = sketch(image), sketch(np.ascontiguousarray(image[:, ::-1]))
    assert shared(seen, mirror) > 0.8 * len(np.unique(seen.words[seen.words > 0]))


def test_words_survive_loss_and_tell_strangers_apart() -> None:
    image = photograph()
    body = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1]
    again = sketch(cv2.imdecode(body, cv2.IMREAD_COLOR))
    strangers = [shared(sketch(image), sketch(photograph(seed))) for seed in range(1, 6)]
    assert shared(sketch(image), again) > 3 * max(strangers)


def test_a_sketch_has_one_size_whatever_the_picture() -> None:
    for height, width in ((1, 1), (19, 38), (30, 400), (400, 30), (1200, 900)):
        seen = sketch(photograph(height=height, width=width))
        assert seen.words.shape == (1, WORDS) and seen.places.shape == (1, WORDS, 3) and seen.thumbnails.shape == (1, THUMBNAIL)
        rows, columns = thumbnail_shape(*seen.sizes[0].astype(float))
        assert 0 < rows * columns <= THUMBNAIL


@pytest.mark.parametrize("level", [0, 127, 255])
def test_an_empty_picture_has_no_words(level: int) -> None:
    """Else every black frame would be a copy of every other."""
    seen = sketch(np.full((100, 80, 3), level, np.uint8))
    assert not seen.words.any() and not seen.thumbnails.any()


def test_threads_see_what_one_sees() -> None:
    images = [photograph(seed) for seed in range(8)]
    alone = [sketch(image) for image in images]
    gate = threading.Barrier(4)

    def look(number: int) -> Sketches:
        if number < 4:
            gate.wait(10)
        return sketch(images[number])

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(look, range(8)))
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.words, other.words) and np.array_equal(one.thumbnails, other.thumbnails)
