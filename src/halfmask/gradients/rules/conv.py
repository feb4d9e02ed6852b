"""Convolutions.

A 1×1 convolution is a linear map over pixels. A depthwise one has few weights: each comes from one shifted product. Any other is a linear
map over unfolded patches, group by group.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import rule
from halfmask.gradients.terms import Direct, Outer, Term


@rule(nn.Conv2d)
def conv2d(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Weight by the cheapest of three ways; bias as the sum over pixels."""
    assert isinstance(module, nn.Conv2d)
    inputs = inputs.reshape(records, -1, *inputs.shape[-3:])
    output_gradient = output_gradient.reshape(records, -1, *output_gradient.shape[-3:])
    terms: dict[str, Term] = {"weight": _weight(module, inputs, output_gradient)}
    if module.bias is not None:
        terms["bias"] = Direct(output_gradient.sum((1, 3, 4)))
    return terms


def _weight(module: nn.Conv2d, inputs: Tensor, gradient: Tensor) -> Term:
    """`inputs` and `gradient` are records × copies × channels × height × width."""
    records, copies = inputs.shape[:2]
    pointwise = module.kernel_size == (1, 1) and module.groups == 1 and module.padding in ((0, 0), 0)
    if pointwise:
        stride = module.stride
        a = inputs[..., :: stride[0], :: stride[1]].permute(0, 1, 3, 4, 2).reshape(records, -1, module.in_channels)
        b = gradient.permute(0, 1, 3, 4, 2).reshape(records, -1, module.out_channels)
        return Outer(a, b, module.weight.shape)
    if isinstance(module.padding, str):
        pad = [(d * (k - 1)) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        sides = [(p // 2, p - p // 2) for p in pad] if module.padding == "same" else [(0, 0), (0, 0)]
    else:
        sides = [(p, p) for p in module.padding]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    flat = F.pad(inputs.flatten(0, 1), (*sides[1], *sides[0]), mode=mode)
    gradient = gradient.flatten(0, 1)
    if module.groups == module.in_channels == module.out_channels:
        return Direct(_depthwise(module, flat, gradient).view(records, copies, *module.weight.shape).sum(1))
    patches = F.unfold(flat, module.kernel_size, module.dilation, 0, module.stride)
    groups = module.groups
    a = patches.view(len(flat), groups, -1, patches.shape[-1])
    b = gradient.flatten(2).view(len(flat), groups, -1, patches.shape[-1])
    if groups == 1:
        a = a[:, 0].transpose(1, 2).reshape(records, -1, a.shape[2])
        b = b[:, 0].transpose(1, 2).reshape(records, -1, b.shape[2])
        return Outer(a, b, module.weight.shape)
    product = torch.einsum("ngot,ngit->ngoi", b, a)
    return Direct(product.reshape(records, copies, *module.weight.shape).sum(1))


def _depthwise(module: nn.Conv2d, padded: Tensor, gradient: Tensor) -> Tensor:
    """One weight of every channel's kernel at a time: a shifted input times the gradient, summed over pixels."""
    height, width = gradient.shape[-2:]
    (sy, sx), (dy, dx) = module.stride, module.dilation
    taps = [
        (padded[..., y * dy : y * dy + sy * height : sy, x * dx : x * dx + sx * width : sx][..., :height, :width] * gradient).sum((2, 3))
        for y in range(module.kernel_size[0])
        for x in range(module.kernel_size[1])
    ]
    return torch.stack(taps, -1).view(len(padded), *module.weight.shape)
