"""Depthwise convolutions over space and time whose gradients cost what their outputs cost.

torch's own backward pass of such a convolution takes 4 to 9 times as long as need be on a processor (24 channels of 4×4×4 to 4×24×24, one
thread). Both of its gradients are convolutions themselves: that of the input with the kernel turned round, that of the kernel with the
output's gradient for a kernel, each channel of each record by itself, which is what per-record gradients are made of too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Triple = tuple[int, int, int]


class _Depthwise(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, stride: Triple) -> Tensor:
        return _convolved(x, weight, stride)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Triple], output: Tensor) -> None:
        x, weight, ctx.stride = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        below = weights = None
        if ctx.needs_input_grad[0]:
            below = _convolved(_spread(gradient, x, ctx.stride), weight.flip(2, 3, 4), (1, 1, 1))
        if ctx.needs_input_grad[1]:
            weights = kernel_gradients(x, gradient, weight, ctx.stride).sum(0)
        return below, weights, None


def _convolved(x: Tensor, weight: Tensor, stride: Triple) -> Tensor:
    return F.conv3d(x, weight, None, stride, _padding(weight), 1, x.shape[1])


def _padding(weight: Tensor) -> list[int]:
    return [size // 2 for size in weight.shape[2:]]


def _spread(gradient: Tensor, x: Tensor, stride: Triple) -> Tensor:
    """The output's gradient at the places that outputs were centred on, and nothing between them."""
    if stride == (1, 1, 1):
        return gradient
    spread = gradient.new_zeros(*gradient.shape[:2], *x.shape[2:])
    spread[:, :, :: stride[0], :: stride[1], :: stride[2]] = gradient
    return spread


def kernel_gradients(x: Tensor, gradient: Tensor, weight: Tensor, stride: Triple) -> Tensor:
    """Of each row of x by itself: N×channels×1×kernel."""
    rows, channels = x.shape[:2]
    found = F.conv3d(
        x.reshape(1, rows * channels, *x.shape[2:]),
        gradient.reshape(rows * channels, 1, *gradient.shape[2:]),
        padding=_padding(weight),
        dilation=stride,
        groups=rows * channels,
    )
    frames, height, width = weight.shape[2:]
    return found[:, :, :frames, :height, :width].reshape(rows, *weight.shape)


class DepthwiseConv3d(nn.Conv3d):
    """A convolution of each channel by itself, centred, without a bias."""

    def __init__(self, channels: int, kernel: Triple, stride: Triple):
        super().__init__(channels, channels, kernel, stride, [size // 2 for size in kernel], groups=channels, bias=False)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        out: Tensor = _Depthwise.apply(x, self.weight, self.stride)
        return out

    def record_gradients(self, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Tensor]:
        """Of each record, all of its heads together."""
        rows = kernel_gradients(inputs, output_gradient, self.weight, self.stride)  # type: ignore[arg-type]
        return {"weight": rows.view(records, -1, *self.weight.shape).sum(1)}
