"""Heatmaps of poses: brightest at the joint, nothing where it is not known."""

from __future__ import annotations

import math

import pytest
import torch

from halfmask.data.heatmaps import pose_heatmaps
from halfmask.errors import HalfmaskError


def test_a_map_is_a_gaussian_round_its_joint() -> None:
    joints = torch.tensor([[[10.0, 20.0, 1.0], [3.25, 40.5, 1.0]]])
    maps = pose_heatmaps(joints, (64, 48), 2.0)
    assert maps.shape == (1, 2, 64, 48) and maps.dtype == torch.float32 and not maps.requires_grad
    assert maps[0, 0, 20, 10] == 1 and maps[0, 0].argmax() == 20 * 48 + 10
    assert maps[0, 0, 23, 12].item() == pytest.approx(math.exp(-(9 + 4) / 8), rel=1e-5)
    assert maps[0, 1, 41, 3].item() == pytest.approx(math.exp(-(0.5**2 + 0.25**2) / 8), rel=1e-5)


def test_what_is_not_known_is_dark_whatever_it_holds() -> None:
    joints = torch.tensor([[[10.0, 20.0, 0.0], [float("nan"), 5.0, 0.0], [5.0, float("inf"), 0.0], [5.0, 5.0, 1.0]]])
    maps = pose_heatmaps(joints, (32, 16), 1.5)
    assert not maps[0, :3].any() and maps[0, 3].max() == 1


def test_a_joint_outside_shows_what_of_it_reaches_in() -> None:
    maps = pose_heatmaps(torch.tensor([[[-1.0, 8.0, 1.0], [-500.0, 8.0, 1.0]]]), (16, 16), 1.0)
    assert maps[0, 0].max().item() == pytest.approx(math.exp(-0.5), rel=1e-5) and maps[0, 1].max() == 0


def test_each_picture_has_its_own_maps() -> None:
    joints = torch.rand(5, 16, 3) * 30
    together = pose_heatmaps(joints, (32, 32), 2.0)
    assert torch.equal(together[2:3], pose_heatmaps(joints[2:3], (32, 32), 2.0))
    assert pose_heatmaps(joints[:0], (32, 32), 2.0).shape == (0, 16, 32, 32)


@pytest.mark.parametrize(("shape", "sigma", "told"), [((4, 16, 2), 1.0, "N×J×3"), ((16, 3), 1.0, "N×J×3"), ((4, 16, 3), 0.0, "above 0")])
def test_other_joints_and_widths_are_refused(shape, sigma, told) -> None:
    with pytest.raises(HalfmaskError, match=told):
        pose_heatmaps(torch.zeros(shape), (16, 16), sigma)
