"""Convolutions in one, two or three dimensions, with any groups, stride, dilation and padding.

A 1×1 convolution is a linear map over pixels. Any other with few output pixels is a linear map over unfolded patches. With many pixels the
weights are fewer: the gradient of each record is formed, as the weight gradient of one convolution in which every record is a group of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import rule
from halfmask.gradients.terms import Direct, Grouping, Outer, Term, factors_win, ghost_norms, kept, outer_sum

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Weight by the cheapest way; bias as the sum over pixels."""
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    terms: dict[str, Term] = {}
    if module.weight.requires_grad:
        terms["weight"] = _weight(module, inputs, output_gradient, records)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = Direct(output_gradient.flatten(2).sum(2).view(records, -1, module.out_channels).sum(1))
    return terms


def _weight(module: Convolution, inputs: Tensor, gradient: Tensor, records: int) -> Term:
    padded, padding = _padded(module, inputs)
    if prod(module.kernel_size) == 1 and module.groups == 1 and not any(padding):
        every = [slice(None), slice(None)] + [slice(None, None, step) for step in module.stride]
        a = padded[tuple(every)].flatten(2).transpose(1, 2)
        b = gradient.flatten(2).transpose(1, 2)
        if len(inputs) != records:
            a, b = (x.reshape(records, -1, x.shape[2]) for x in (a, b))
        return Outer(a, b, module.weight.shape)
    term = Convolved(padded, gradient, module, padding)
    if len(inputs) == records:
        return term
    # Several images of one record, such as windows: their gradients add up.
    return term.by_unit(Grouping.of(torch.arange(records).repeat_interleave(len(inputs) // records), records))


@dataclass
class Convolved(Term):
    """Inputs (already padded but for `padding` zeros on each side) and output gradient of a convolution, one image a record."""

    inputs: Tensor
    gradient: Tensor
    module: Convolution
    padding: tuple[int, ...]

    @property
    def ghost(self) -> bool:
        """Whether to wait with inputs and output gradient, and take the norm from unfolded patches."""
        weight = self.module.weight
        return self.module.groups == 1 and factors_win(prod(self.gradient.shape[2:]), weight[0].numel(), len(weight))

    def squared_norms(self) -> Tensor:  # noqa: D102
        if not self.ghost:
            return self.direct().squared_norms()
        return ghost_norms(_patches(self.inputs, self.module, self.padding), self.gradient.flatten(2).transpose(1, 2))

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:
        """From unfolded patches: the ordinary weight gradient would round all records together."""
        if not self.ghost:
            return self.direct().weighted_sum(factors, keep)
        patches = _patches(kept(self.inputs, keep), self.module, self.padding)
        return outer_sum(patches, kept(self.gradient, keep).flatten(2).transpose(1, 2), factors).view_as(self.module.weight)

    def direct(self) -> Direct:
        """All gradients at once: with many pixels, by one convolution in which each record has its own groups."""
        records, module = len(self.inputs), self.module
        weight = module.weight.detach()
        if self.ghost:
            product = self.gradient.flatten(2) @ _patches(self.inputs, module, self.padding)
            return Direct(product.view(records, *weight.shape))
        each = weight.unsqueeze(0).expand(records, *weight.shape).reshape(-1, *weight.shape[1:])
        inputs = self.inputs.contiguous().view(1, -1, *self.inputs.shape[2:])
        gradient = self.gradient.contiguous().view(1, -1, *self.gradient.shape[2:])
        product = _weight_gradient(module, inputs, gradient, each, self.padding, records * module.groups)
        return Direct(product.view(records, *weight.shape))

    def settled(self) -> Term:  # noqa: D102
        return self if self.ghost else self.direct().settled()


def _weight_gradient(
    module: Convolution, inputs: Tensor, gradient: Tensor, weight: Tensor, padding: tuple[int, ...], groups: int
) -> Tensor:
    _, product, _ = torch.ops.aten.convolution_backward(
        gradient,
        inputs,
        weight,
        None,
        list(module.stride),
        list(padding),
        list(module.dilation),
        False,
        [0] * len(padding),
        groups,
        [False, True, False],
    )
    return product


def _padded(module: Convolution, inputs: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The inputs with all padding applied that is not the same number of zeros on both sides, and the zeros still to add."""
    zeros = module.padding_mode == "zeros"
    if not isinstance(module.padding, str) and zeros:
        return inputs, tuple(module.padding)
    if module.padding == "valid":
        sides = [(0, 0)] * len(module.kernel_size)
    elif module.padding == "same":
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        sides = [(t // 2, t - t // 2) for t in total]
    else:
        sides = [(int(p), int(p)) for p in module.padding]
    if zeros and all(before == after for before, after in sides):
        return inputs, tuple(before for before, _ in sides)
    ends = [size for side in reversed(sides) for size in side]
    return F.pad(inputs, ends, mode="constant" if zeros else module.padding_mode), (0,) * len(sides)


def _patches(inputs: Tensor, module: Convolution, padding: tuple[int, ...]) -> Tensor:
    """What each output pixel looks at: images × pixels × (channels · kernel)."""
    if any(padding):
        inputs = F.pad(inputs, [size for p in reversed(padding) for size in (p, p)])
    windows = inputs
    for axis, (kernel, stride, dilation) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True)):
        windows = windows.unfold(axis + 2, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    axes = len(module.kernel_size)
    order = (0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))
    return windows.permute(order).flatten(1 + axes).flatten(1, axes)
