"""What is public: bytes in, bytes out, the declared loss really happens, and nothing but the image decides."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.views import VIEWS, Blur, Constant, Downsample, Superpixels, make_view

IMAGE = np.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=np.uint8)
ALL = pytest.mark.parametrize(
    "view", [Blur(), Blur(5, 1.0), Constant(), Downsample(), Downsample(5, 3), Superpixels(), Superpixels(1)], ids=repr
)


@ALL
def test_a_view_is_a_function_of_the_image_in_its_form(view: object) -> None:
    before = IMAGE.copy()
    seen = view(IMAGE)  # type: ignore[operator]
    assert seen.shape == IMAGE.shape and seen.dtype == np.uint8
    assert np.array_equal(seen, view(IMAGE)) and np.array_equal(IMAGE, before)  # type: ignore[operator]
    assert not np.array_equal(seen, IMAGE)


@ALL
def test_a_view_says_what_is_public(view: object) -> None:
    assert len(view.describe()) > 10  # type: ignore[attr-defined]


@ALL
def test_different_images_can_look_alike(view: object) -> None:
    """The lossy step: an image that differs by a grey level in one pixel has the same view."""
    other = np.full((64, 48, 3), 128, np.uint8)
    changed = other.copy()
    changed[30, 20, 1] += 1
    assert np.array_equal(view(other), view(changed))  # type: ignore[operator]


def test_blurring_hides_detail_and_keeps_shapes() -> None:
    seen = Blur(25, 10.0)(IMAGE).astype(float)
    assert seen.std() < 0.1 * IMAGE.std()
    assert abs(seen.mean() - IMAGE.mean()) < 3
    assert "25×25" in Blur(25, 10.0).describe()


def test_a_blur_by_its_deviation_alone_is_as_wide_as_it_needs() -> None:
    assert repr(Blur()) == "Blur(kernel=25, sigma=10.0)" and Blur() == Blur(25, 10.0) and Blur(kernel=9) == Blur(9, 10.0)
    for sigma in (0.5, 1, 3.8, 4.4, 10, 15):
        kernel = Blur(sigma=sigma).kernel
        assert kernel % 2 == 1 and 6 * sigma + 1 <= kernel < 6 * sigma + 4
        assert Blur(sigma=sigma) == Blur(kernel, sigma) and repr(Blur(sigma=sigma)) == repr(Blur(kernel, sigma))
    # A wider window than needed changes nothing but rounding.
    assert np.abs(Blur(sigma=3.8)(IMAGE).astype(int) - Blur(61, 3.8)(IMAGE)).max() <= 2


def test_cells_may_be_as_large_as_the_picture() -> None:
    for cell in (5, 8, 11, 14, 50, 400):
        seen = Downsample(cell, 256)(IMAGE)
        assert len(np.unique(seen.reshape(-1, 3), axis=0)) <= max(1, 64 // cell) * max(1, 48 // cell)
    assert np.abs(Downsample(50, 256)(IMAGE)[0, 0] - IMAGE.reshape(-1, 3).mean(0)).max() <= 1


def test_the_constant_view_is_the_same_for_everyone() -> None:
    assert len(np.unique(Constant()(IMAGE))) == 1
    assert np.array_equal(Constant()(IMAGE), Constant()(255 - IMAGE))


def test_downsampling_leaves_few_cells_and_levels() -> None:
    seen = Downsample(cell=16, levels=4)(IMAGE)
    assert set(np.unique(seen)) <= {0, 85, 170, 255}
    assert all(len(np.unique(seen[y : y + 16, x : x + 16], axis=None)) <= 3 for y in range(0, 64, 16) for x in range(0, 48, 16))
    smooth = np.tile(np.linspace(0, 255, 48).astype(np.uint8)[None, :, None], (64, 1, 3))
    fine = Downsample(cell=16, levels=256)(smooth)
    for x in range(0, 48, 16):
        assert abs(float(fine[0, x, 0]) - smooth[0, x : x + 16, 0].mean()) <= 1


def test_views_are_found_by_name() -> None:
    assert set(VIEWS) >= {"blur", "constant", "downsample"}
    assert make_view("blur", {"kernel": 9, "sigma": 2.0}) == Blur(9, 2.0)
    assert make_view("downsample") == Downsample()
    with pytest.raises(HalfmaskError, match="did you mean 'blur'"):
        make_view("blurr")
    with pytest.raises(HalfmaskError, match="does not take"):
        make_view("blur", {"radius": 3})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("blur", {"kernel": 4}),
        ("blur", {"kernel": 0}),
        ("blur", {"kernel": 9.0}),
        ("blur", {"sigma": 0}),
        ("blur", {"sigma": float("nan")}),
        ("blur", {"sigma": float("inf")}),
        ("blur", {"sigma": -2.0}),
        ("downsample", {"cell": 2.5}),
        ("downsample", {"cell": 1}),
        ("downsample", {"levels": 1}),
        ("downsample", {"levels": 257}),
    ],
)
def test_options_without_meaning_are_refused(name: str, options: dict) -> None:
    with pytest.raises(HalfmaskError, match="expected"):
        make_view(name, options)
