"""A view that can be undone is refused, by looking at random pictures and at nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.views import VIEWS, Blur, Constant, Downsample, ImageView, View, make_view
from halfmask.views.trial import LEAST_LOSS, check_view, loss_of, random_pictures


@dataclass(frozen=True)
class Changed(ImageView):
    """Any map of bytes to bytes."""

    change: Callable[[np.ndarray], np.ndarray]

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return self.change(image).astype(np.uint8)

    def describe(self) -> str:
        return "a changed picture"


def moved(image: np.ndarray) -> np.ndarray:
    return np.roll(image, 2, axis=1)


USEFUL = [
    (Blur(25, 10.0), 20.96),
    (Blur(9, 3.0), 11.75),
    (Blur(5, 2.0), 8.48),
    (Downsample(2, 256), 7.05),
    (Downsample(8, 16), 18.08),
    (Downsample(16, 16), 25.19),
    (Constant(), 50.11),
]
USELESS = [
    (Blur(1, 10.0), 0.0),
    (Blur(25, 0.05), 0.0),
    (Blur(25, 0.3), 0.05),
    (Blur(3, 0.4), 0.34),
    (Blur(25, 0.5), 0.51),
    (Blur(25, 0.7), 1.74),
    (Blur(3, 1.0), 4.78),
]


@pytest.mark.parametrize(("view", "loss"), USEFUL, ids=repr)
def test_views_that_lose_something_pass_with_room_to_spare(view: View, loss: float) -> None:
    assert loss_of(view) == pytest.approx(loss, abs=0.3)
    assert loss_of(view) > 1.3 * LEAST_LOSS
    check_view(view)


@pytest.mark.parametrize(("view", "loss"), USELESS, ids=repr)
def test_views_that_are_the_image_are_refused(view: View, loss: float) -> None:
    assert loss_of(view) == pytest.approx(loss, abs=0.1)
    with pytest.raises(HalfmaskError, match=r"can be undone up to .* grey levels.*[Ee]xpected a loss of 5 or more.*'constant'"):
        check_view(view)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: 255 - image,
        lambda image: image // 2 + 40,
        lambda image: 255 * (image / 255) ** 0.5,
        lambda image: image[:, ::-1],
        lambda image: image[::-1],
        lambda image: 255 - image[::-1, ::-1],
        lambda image: image[..., [2, 0, 1]],
        lambda image: Blur(3, 0.5)(image[:, ::-1].copy()),
        moved,
    ],
)
def test_what_can_be_undone_loses_nothing_however_different_it_looks(change: Callable[[np.ndarray], np.ndarray]) -> None:
    different = max(float(np.abs(change(picture).astype(float) - picture).mean()) for picture in random_pictures())
    assert different > LEAST_LOSS, "a difference of pixels would let it pass"
    assert loss_of(Changed(change)) < LEAST_LOSS / 2


def test_a_restorer_is_judged_on_pictures_it_did_not_learn_from() -> None:
    """A view that shows each picture as a label of its own tells nothing of the next one."""
    labels = {picture.tobytes(): number for number, picture in enumerate(random_pictures())}
    view = Changed(lambda image: np.full_like(image, 20 * labels[image.tobytes()]))
    assert loss_of(view) > 40


@pytest.mark.parametrize("options", [{"kernel": 1}, {"sigma": 0.05}])
def test_a_recipe_cannot_declare_the_image_public(options: dict) -> None:
    with pytest.raises(HalfmaskError, match="as good as publishing the images"):
        make_view("blur", options)


def test_every_view_passes_as_it_comes() -> None:
    for name in VIEWS:
        make_view(name)


def test_the_pictures_are_random_and_the_same_for_everybody() -> None:
    pictures = random_pictures()
    assert all(picture.shape == (128, 96, 3) and picture.dtype == np.uint8 for picture in pictures)
    assert 40 < np.mean([picture.std() for picture in pictures]) < 80
    likeness = np.corrcoef([picture.ravel() for picture in pictures]) - np.eye(len(pictures))
    assert np.abs(likeness).max() < 0.6
    random_pictures.cache_clear()
    assert all(np.array_equal(one, again) for one, again in zip(pictures, random_pictures(), strict=True))


@pytest.mark.alone
def test_a_view_is_tried_once_and_quickly() -> None:
    calls = []

    def count(image: np.ndarray) -> np.ndarray:
        calls.append(image.shape)
        return Blur()(image)

    view = Changed(count)
    begun = time.perf_counter()
    check_view(view)
    # 0.15 s on an idle core; the bound leaves room for a busy machine.
    assert time.perf_counter() - begun < 1.0
    tried = len(calls)
    check_view(view)
    assert len(calls) == tried == len(random_pictures())
