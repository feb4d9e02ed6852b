"""Coordinates as classes: targets, decoding, mirroring."""

from __future__ import annotations

import pytest
import torch

from halfmask.models.simcc import PoseModel, decode, flip_back, normalise, smoothed_targets


@pytest.mark.parametrize("bins_per_pixel", [1, 2, 3])
def test_targets_are_distributions_that_peak_at_the_coordinate(bins_per_pixel: int) -> None:
    coordinates = torch.tensor([[0.0, 5.0, 20.5], [31.0, 47.0, 12.25]])
    targets = smoothed_targets(coordinates, 48 * bins_per_pixel, bins_per_pixel)
    assert targets.shape == (2, 3, 48 * bins_per_pixel)
    assert torch.allclose(targets.sum(-1), torch.ones(2, 3), atol=1e-6)
    peaks = targets.argmax(-1) / bins_per_pixel
    assert ((peaks - coordinates).abs() <= 0.5 / bins_per_pixel + 1e-6).all()


def test_targets_have_the_width_they_say() -> None:
    bins = torch.arange(400, dtype=torch.float64)
    targets = smoothed_targets(torch.tensor(100.0, dtype=torch.float64), 400, 2, sigma_bins=6.0)
    assert float((targets * bins).sum()) == pytest.approx(200, abs=1e-6)
    assert float((targets * (bins - 200) ** 2).sum()) == pytest.approx(36, rel=1e-3)


@pytest.mark.parametrize("bins_per_pixel", [1, 2, 3])
def test_decoding_finds_the_bin(bins_per_pixel: int) -> None:
    points = torch.tensor([[[3.0, 7.0], [40.0, 11.0]]])
    x_logits = smoothed_targets(points[..., 0], 48 * bins_per_pixel, bins_per_pixel).log()
    y_logits = smoothed_targets(points[..., 1], 64 * bins_per_pixel, bins_per_pixel).log()
    found, confidence = decode(x_logits, y_logits, bins_per_pixel)
    assert torch.equal(found, points)
    expected = torch.minimum(x_logits.exp().amax(-1), y_logits.exp().amax(-1))
    assert torch.allclose(confidence, expected, rtol=1e-5)


def test_confidence_is_that_of_the_worse_axis() -> None:
    sure, unsure = torch.tensor([[[50.0, 0.0]]]), torch.tensor([[[0.0, 0.0]]])
    for logits in ((sure, unsure), (unsure, sure)):
        assert float(decode(*logits, 1)[1]) == pytest.approx(0.5)


@pytest.mark.parametrize("bins_per_pixel", [1, 2, 3])
def test_flipping_back_is_exact(bins_per_pixel: int) -> None:
    """A delta at each possible bin of the mirror image lands where the joint is, on the joint of the other side."""
    width, height, joints = 12, 10, 4
    pairs = ((0, 2),)
    partner = {0: 2, 2: 0, 1: 1, 3: 3}
    y_logits = torch.randn(1, joints, height * bins_per_pixel)
    for joint in range(joints):
        for position in range((width - 1) * bins_per_pixel + 1):
            x_logits = torch.zeros(1, joints, width * bins_per_pixel)
            x_logits[0, joint, position] = 1
            x_back, y_back = flip_back(x_logits, y_logits, pairs, bins_per_pixel)
            x = x_back[0, partner[joint]].argmax() / bins_per_pixel
            assert float(x) == pytest.approx(width - 1 - position / bins_per_pixel)
            assert float(x_back[0, partner[joint]].amax()) == 1
            assert all(not x_back[0, other].any() for other in range(joints) if other != partner[joint])
            assert torch.equal(y_back[0, partner[joint]], y_logits[0, joint])


def test_flipping_twice_is_nothing_where_a_bin_has_a_mirror() -> None:
    x_logits, y_logits = torch.randn(2, 4, 24), torch.randn(2, 4, 20)
    x_twice, y_twice = flip_back(*flip_back(x_logits, y_logits, ((0, 2),), 2), ((0, 2),), 2)
    assert torch.equal(x_twice[..., :23], x_logits[..., :23]) and torch.equal(y_twice, y_logits)


@pytest.mark.parametrize("size", [(64, 48), (96, 64)])
@pytest.mark.parametrize("bins_per_pixel", [1, 2])
def test_shapes(size: tuple[int, int], bins_per_pixel: int) -> None:
    model = PoseModel("nano", 5, size, bins_per_pixel=bins_per_pixel).eval()
    images = torch.randint(0, 256, (3, 3, *size), dtype=torch.uint8)
    with torch.no_grad():
        x_logits, y_logits = model(images)
        again = model.upper(model.lower(images))
    assert x_logits.shape == (3, 5, size[1] * bins_per_pixel) and y_logits.shape == (
        3,
        5,
        size[0] * bins_per_pixel,
    )
    assert torch.equal(x_logits, again[0]) and torch.equal(y_logits, again[1])


def test_images_are_normalised_by_public_constants() -> None:
    grey = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(normalise(grey)[0, :, 0, 0], expected, atol=1e-5)
    mixed = torch.cat([grey, torch.zeros_like(grey)])
    assert torch.equal(normalise(mixed)[:1], normalise(grey))
