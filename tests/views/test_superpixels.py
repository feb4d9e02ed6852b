"""Superpixels: as many patches as asked for, each of one colour, that of its pixels."""

from __future__ import annotations

from types import SimpleNamespace

import cv2
import numpy as np
import pytest

import halfmask.views.superpixels as module
from halfmask.errors import HalfmaskError
from halfmask.views import Superpixels, make_view


def photograph(height: int = 64, width: int = 48, seed: int = 0) -> np.ndarray:
    """Soft colours with an edge across."""
    rng = np.random.default_rng(seed)
    soft = cv2.resize(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    soft[height // 2 :] //= 2
    return soft


@pytest.mark.parametrize("segments", [2000, 800, 100, 20, 14, 2])
def test_there_are_about_as_many_segments_as_asked_for(segments: int) -> None:
    view = Superpixels(segments)
    found = len(np.unique(view._labels(photograph())))
    assert 0.6 * segments <= found <= 1.4 * segments + 1


def test_each_segment_has_its_mean_colour() -> None:
    image, view = photograph(), Superpixels(20)
    labels, seen = view._labels(image), view(image)
    for label in np.unique(labels):
        np.testing.assert_array_equal(np.unique(seen[labels == label], axis=0), image[labels == label].mean(0).round()[None])


def test_one_segment_is_the_mean_of_the_picture() -> None:
    image = photograph()
    assert (Superpixels(1)(image) == image.reshape(-1, 3).mean(0).round()).all()


def test_it_is_the_same_every_time_and_by_any_number_of_threads() -> None:
    image, before = photograph(128, 96), cv2.getNumThreads()
    try:
        seen = []
        for threads in (1, 4):
            cv2.setNumThreads(threads)
            seen.append(Superpixels(200)(image))
    finally:
        cv2.setNumThreads(before)
    assert np.array_equal(*seen)


def test_a_segment_is_one_piece() -> None:
    """Dots finer than a segment do not show as shreds of its neighbours."""
    dotted = photograph(seed=5)
    dotted[::4, ::4] = 255 - dotted[::4, ::4]
    labels = Superpixels(14)._labels(dotted)
    for label in np.unique(labels):
        assert cv2.connectedComponents((labels == label).astype(np.uint8), connectivity=4)[0] == 2, "the others, and it"


def test_fewer_segments_lose_more() -> None:
    image = photograph(seed=3)
    errors = [np.abs(Superpixels(number)(image).astype(float) - image).mean() for number in (2000, 200, 20, 1)]
    assert errors == sorted(errors)


def test_recipes_name_it_and_it_is_refused_where_it_loses_nothing() -> None:
    assert make_view("superpixels", {"segments": 14}) == Superpixels(14)
    assert "14 superpixels" in Superpixels(14).describe() and "mean colour of the crop" in Superpixels(1).describe()
    with pytest.raises(HalfmaskError, match="as good as publishing"):
        make_view("superpixels", {"segments": 12_000})
    for segments in (0, -3, 2.5, True):
        with pytest.raises(HalfmaskError, match="whole number of at least 1"):
            Superpixels(segments)


def test_an_opencv_without_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.cv2, "ximgproc", SimpleNamespace())
    with pytest.raises(HalfmaskError, match="contrib"):
        Superpixels(20)(photograph())
    assert Superpixels(1)(photograph()).shape == (64, 48, 3)
