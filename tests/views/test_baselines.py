"""Baselines: the strengths that are compared, the weak ones too."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.views import Blur, Downsample, Superpixels, make_view
from halfmask.views.baselines import BASELINES, baseline

SMOOTH = np.add.outer(np.arange(64) * 2, np.arange(48) * 2).clip(0, 255).astype(np.uint8)[:, :, None].repeat(3, 2)


@pytest.mark.parametrize(("name", "strength"), [(name, strength) for name, strengths in BASELINES.items() for strength in strengths])
def test_every_strength_makes_a_picture_of_a_picture(name: str, strength: float) -> None:
    seen = baseline(name, strength)(SMOOTH)
    assert seen.shape == SMOOTH.shape and seen.dtype == np.uint8 and not np.array_equal(seen, SMOOTH)
    assert abs(float(seen.mean()) - SMOOTH.mean()) < 5


def test_strengths_grow() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=np.uint8)
    for name, strengths in BASELINES.items():
        left = [baseline(name, strength)(noise).std() for strength in strengths]
        assert left == sorted(left, reverse=True), name


def test_what_is_refused_as_public_is_a_baseline_all_the_same() -> None:
    assert baseline("blur", 1) == Blur(7, 1.0)
    with pytest.raises(HalfmaskError, match="as good as publishing"):
        make_view("blur", {"sigma": 1.0})


def test_strengths_are_scaled_only_where_asked_for() -> None:
    assert baseline("blur", 3.8) == Blur(25, 3.8) and baseline("blur", 10, scale=0.5) == Blur(31, 5.0)
    assert baseline("downsample", 8) == Downsample(8, 256) and baseline("downsample", 5, scale=0.2) == Downsample(2, 256)
    assert baseline("superpixels", 800, scale=0.5) == Superpixels(800)
    with pytest.raises(HalfmaskError, match="above 0"):
        baseline("blur", 3, scale=0)
    with pytest.raises(HalfmaskError, match="did you mean 'blur'"):
        baseline("blurr", 3)
