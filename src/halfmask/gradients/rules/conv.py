"""Convolutions in one, two or three dimensions, with any groups, stride, dilation and padding, and transposed ones.

A 1×1 convolution is a linear map over pixels. Any other with few output pixels is a linear map over unfolded patches. With many pixels the
weights are fewer: the gradient of each record is formed, as the weight gradient of one convolution in which every record is a group of its
own.

A transposed convolution is a convolution from its output to its input, so that the two change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import function_rule, rule
from halfmask.gradients.terms import Direct, Grouping, Outer, Term, factors_win, ghost_norms, kept, outer_sum


@dataclass(frozen=True)
class Kernel:
    """What of a convolution matters here, whether a layer has it or a function was given it."""

    weight: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str = "zeros"

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """As a layer calls it."""
        return tuple(self.weight.shape[2:])


Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | Kernel
Numbers = int | Sequence[int]


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Weight by the cheapest way; bias as the sum over pixels."""
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    terms: dict[str, Term] = {}
    if module.weight.requires_grad:
        terms["weight"] = _weight(module, inputs, output_gradient, records)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = _over_pixels(output_gradient, records)
    return terms


@rule(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def transposed_convolution(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """The weight's gradient is that of the convolution from output to input."""
    assert isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d))
    stride, padding, dilation = tuple(module.stride), tuple(int(p) for p in module.padding), tuple(module.dilation)
    terms: dict[str, Term] = {}
    if module.weight.requires_grad:
        kernel = Kernel(module.weight, stride, (0,) * len(stride), dilation, module.groups)
        terms["weight"] = _transposed_weight(kernel, padding, inputs, output_gradient, records)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = _over_pixels(output_gradient, records)
    return terms


@function_rule("conv1d", "conv2d", "conv3d")
def convolution_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers | str = 0,
    dilation: Numbers = 1,
    groups: int = 1,
) -> dict[str, Term]:
    """As for a layer."""
    axes = weight.dim() - 2
    around = padding if isinstance(padding, str) else _each(padding, axes)
    kernel = Kernel(weight, _each(stride, axes), around, _each(dilation, axes), groups)
    return {"weight": _weight(kernel, input, gradient, records), "bias": _over_pixels(gradient, records)}


@function_rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed_convolution_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Numbers = 1,
    padding: Numbers = 0,
    output_padding: Numbers = 0,
    groups: int = 1,
    dilation: Numbers = 1,
) -> dict[str, Term]:
    """As for a layer."""
    axes = weight.dim() - 2
    kernel = Kernel(weight, _each(stride, axes), (0,) * axes, _each(dilation, axes), groups)
    term = _transposed_weight(kernel, _each(padding, axes), input, gradient, records)
    return {"weight": term, "bias": _over_pixels(gradient, records)}


def _each(value: Numbers, axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _over_pixels(gradient: Tensor, records: int) -> Direct:
    return Direct(gradient.flatten(2).sum(2).view(records, -1, gradient.shape[1]).sum(1))


def _transposed_weight(kernel: Kernel, padding: tuple[int, ...], inputs: Tensor, gradient: Tensor, records: int) -> Term:
    padded = F.pad(gradient, [size for p in reversed(padding) for size in (p, p)])
    # What output_padding adds beyond the last window is no window's.
    for axis, (size, kept_size, stride, dilation) in enumerate(
        zip(inputs.shape[2:], kernel.kernel_size, kernel.stride, kernel.dilation, strict=True)
    ):
        padded = padded.narrow(axis + 2, 0, (size - 1) * stride + dilation * (kept_size - 1) + 1)
    return _weight(kernel, padded, inputs, records)


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
