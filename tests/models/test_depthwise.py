"""Depthwise convolutions: torch's own numbers, their gradients too, and those of each record by itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.engine import ClippingEngine
from halfmask.models.depthwise import DepthwiseConv3d

STRIDES = [(1, 1, 1), (1, 2, 2), (1, 4, 4), (1, 8, 8), (2, 2, 3)]
GRIDS = [(4, 24, 24), (4, 6, 6), (2, 7, 9), (1, 3, 3)]


def layer(stride: tuple[int, int, int]) -> DepthwiseConv3d:
    torch.manual_seed(0)
    return DepthwiseConv3d(5, (3, 3, 3), stride).double()


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("grid", GRIDS)
def test_outputs_and_gradients_are_torchs_own(stride: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
    conv = layer(stride)
    x = torch.randn(3, 5, *grid, dtype=torch.float64, requires_grad=True)
    ours, torchs = conv(x), F.conv3d(x, conv.weight, None, stride, 1, 1, 5)
    assert torch.equal(ours, torchs)
    weights = torch.randn_like(ours)
    for mine, expected in zip(*(torch.autograd.grad((out * weights).sum(), [x, conv.weight]) for out in (ours, torchs)), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("stride", STRIDES[:3])
def test_each_record_has_its_own_gradient(stride: tuple[int, int, int]) -> None:
    """Several rows of a batch are the heads of one record."""
    conv = layer(stride)
    x = torch.randn(4, 2, 5, 2, 8, 8, dtype=torch.float64)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return model(batch.flatten(0, 1)).view(len(batch), -1).square().sum(1)

    engine = ClippingEngine(conv)
    clipped = engine.clipped_sum(loss, x, 2.0)
    assert engine.path == "fast"
    expected = torch.zeros_like(conv.weight)
    for row in range(4):
        (gradient,) = torch.autograd.grad(loss(conv, x[row : row + 1]).sum(), [conv.weight])
        expected += gradient * min(1.0, 2.0 / float(gradient.norm()))
    torch.testing.assert_close(clipped.sums["weight"], expected, rtol=0, atol=1e-9)


def test_vmap_can_bear_it() -> None:
    conv = layer((1, 2, 2))
    x = torch.randn(3, 1, 5, 2, 6, 6, dtype=torch.float64)

    def alone(weight: Tensor, one: Tensor) -> Tensor:
        return torch.func.functional_call(conv, {"weight": weight}, (one,)).square().sum()

    each = torch.func.vmap(torch.func.grad(alone), in_dims=(None, 0))(conv.weight.detach(), x)
    for row in range(3):
        (expected,) = torch.autograd.grad(conv(x[row]).square().sum(), [conv.weight])
        torch.testing.assert_close(each[row], expected, rtol=0, atol=1e-10)


def test_a_frozen_kernel_lets_gradients_through() -> None:
    conv = layer((1, 2, 2))
    conv.weight.requires_grad = False
    x = torch.randn(1, 5, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    (below,) = torch.autograd.grad(conv(x).sum(), [x])
    assert torch.isfinite(below).all() and below.abs().sum() > 0
