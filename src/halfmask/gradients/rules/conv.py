"""Convolutions in one, two or three dimensions, with any groups, stride, dilation and padding, and transposed ones.

A 1×1 convolution is a linear map over pixels; what becomes of any other is told in `halfmask.gradients.rules.convolved`.

A transposed convolution is a convolution from its output to its input, so that the two change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import function_rule, rule
from halfmask.gradients.rules.convolved import Convolution, Convolved, Kernel
from halfmask.gradients.terms import Direct, Outer, Term

Numbers = int | Sequence[int]


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Weight by the cheapest way; bias as the sum over pixels."""
    assert isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    _check_images(inputs, module.weight)
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
    _check_images(inputs, module.weight)
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
    _check_images(input, weight)
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
    _check_images(input, weight)
    axes = weight.dim() - 2
    kernel = Kernel(weight, _each(stride, axes), (0,) * axes, _each(dilation, axes), groups)
    term = _transposed_weight(kernel, _each(padding, axes), input, gradient, records)
    return {"weight": term, "bias": _over_pixels(gradient, records)}


def _check_images(inputs: Tensor, weight: Tensor) -> None:
    """Torch takes a single image without a leading dimension too; its channels must not pass for records."""
    if inputs.dim() != weight.dim():
        raise NotImplementedError(f"a single image of shape {tuple(inputs.shape)}")


def _each(value: Numbers, axes: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _over_pixels(gradient: Tensor, records: int) -> Direct:
    return Direct(gradient.flatten(2).sum(2).view(records, len(gradient) // records, gradient.shape[1]).sum(1))


def _transposed_weight(kernel: Kernel, padding: tuple[int, ...], inputs: Tensor, gradient: Tensor, records: int) -> Term:
    padded = F.pad(gradient, [size for p in reversed(padding) for size in (p, p)])
    # What output_padding adds beyond the last window is no window's.
    for axis, (size, kept_size, stride, dilation) in enumerate(
        zip(inputs.shape[2:], kernel.kernel_size, kernel.stride, kernel.dilation, strict=True)
    ):
        padded = padded.narrow(axis + 2, 0, (size - 1) * stride + dilation * (kept_size - 1) + 1)
    return _weight(kernel, padded, inputs, records)


def _weight(module: Convolution, inputs: Tensor, gradient: Tensor, records: int) -> Term:
    if not len(inputs):
        return Direct(module.weight.detach().new_zeros(records, *module.weight.shape))
    padded, padding = _padded(module, inputs)
    if prod(module.kernel_size) == 1 and module.groups == 1 and not any(padding):
        every = [slice(None), slice(None)] + [slice(None, None, step) for step in module.stride]
        a = padded[tuple(every)].flatten(2).transpose(1, 2)
        b = gradient.flatten(2).transpose(1, 2)
        if len(inputs) != records:
            a, b = (x.reshape(records, -1, x.shape[2]) for x in (a, b))
        return Outer(a, b, module.weight.shape)
    # Several images of one record, such as windows or pairs: their gradients add up.
    return Convolved(padded, gradient, module, padding, len(inputs) // records)


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
