"""Convolutions in one, two or three dimensions, with any groups, stride, dilation and padding, and transposed ones.

A 1×1 convolution is a linear map over pixels. Any other with few output pixels is a linear map over unfolded patches: where it is much
larger than those, they wait for the clip factors, and else each record's gradient is formed from them, a few records at a time, so that
patches never leave the processor's cache. With many pixels a record's gradient is formed as the weight gradient of one convolution in which
every record is a group of its own.

Patches have their channels last: whole rows of them lie next to each other then. What is formed from patches has them last too, until it
is summed up (`Turned`).

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


# With more output pixels than this, one convolution with a group for each record is the faster way to form their gradients.
_FEW_PIXELS = 200
_FEW_CHANNELS = 4
# Numbers of patches to hold at once: few enough to stay in the processor's cache.
_PATCHES_AT_ONCE = 1 << 18

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
    # Several images of one record, such as windows or pairs: their gradients add up.
    return Convolved(padded, gradient, module, padding, len(inputs) // records)


@dataclass
class Convolved(Term):
    """Inputs (already padded but for `padding` zeros on each side) and output gradient of a convolution.

    Attributes:
        each: how many images a record has; they lie next to each other.
    """

    inputs: Tensor
    gradient: Tensor
    module: Convolution
    padding: tuple[int, ...]
    each: int = 1

    @property
    def ghost(self) -> bool:
        """Whether to wait with inputs and output gradient, and take the norm from unfolded patches."""
        weight = self.module.weight
        return self.module.groups == 1 and factors_win(self.each * self._pixels, weight[0].numel(), len(weight))

    @property
    def _pixels(self) -> int:
        return prod(self.gradient.shape[2:])

    def squared_norms(self) -> Tensor:  # noqa: D102
        if not self.ghost:
            return self._formed().squared_norms()
        return ghost_norms(self._patches(self.inputs), self._tokens(self.gradient))

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:
        """From unfolded patches: the ordinary weight gradient would round all records together."""
        if not self.ghost:
            return self._formed().weighted_sum(factors, keep)
        images = keep if keep is None else keep.repeat_interleave(self.each)
        total = outer_sum(self._patches(kept(self.inputs, images)), self._tokens(kept(self.gradient, images)), factors)
        return total.view(self._turned_shape).movedim(-1, 1)

    def direct(self) -> Direct:  # noqa: D102
        return self._formed().direct()

    def settled(self) -> Term:  # noqa: D102
        return self if self.ghost else self._formed().settled()

    def by_unit(self, grouping: Grouping) -> Term:
        """The images of a unit's records side by side."""
        if not grouping.even:
            return self._formed().by_unit(grouping)
        inputs, gradient = (grouping.side_by_side(x.unflatten(0, (-1, self.each))).flatten(0, 1) for x in (self.inputs, self.gradient))
        return Convolved(inputs, gradient, self.module, self.padding, self.each * grouping.most)

    def joined(self, other: Term) -> Term:
        """Two uses of the same parameter: their images side by side, if they are of one size."""
        if not isinstance(other, Convolved):
            return self._formed().joined(other)
        alike = self.padding == other.padding and _windows_of(self.module) == _windows_of(other.module)
        if not alike or self.inputs.shape[1:] != other.inputs.shape[1:]:
            return self._formed().joined(other)
        pairs = ((self.inputs, other.inputs), (self.gradient, other.gradient))
        inputs, gradient = (
            torch.cat([mine.unflatten(0, (-1, self.each)), others.unflatten(0, (-1, other.each))], 1).flatten(0, 1)
            for mine, others in pairs
        )
        return Convolved(inputs, gradient, self.module, self.padding, self.each + other.each)

    @property
    def _turned_shape(self) -> tuple[int, ...]:
        outputs, channels, *kernel = self.module.weight.shape
        return (outputs, *kernel, channels)

    def _tokens(self, images: Tensor) -> Tensor:
        """A record's pixels, those of all its images: records × pixels × channels."""
        return images.flatten(2).transpose(1, 2).reshape(len(images) // self.each, -1, images.shape[1])

    def _patches(self, images: Tensor) -> Tensor:
        """What each output pixel of a record looks at: records × pixels × (kernel · channels)."""
        return _patches(images, self.module, self.padding).reshape(len(images) // self.each, self.each * self._pixels, -1)

    def _formed(self) -> Term:
        """All gradients at once."""
        if self.module.groups == 1 and (self.ghost or self._pixels <= _FEW_PIXELS or self._few_channels):
            return Turned(Direct(self._from_patches()))
        return Direct(self._as_groups())

    @property
    def _few_channels(self) -> bool:
        """A few channels in each of many groups are slow where kernels are large, or where the channels have to be brought to the front."""
        few = self.inputs.shape[1] <= _FEW_CHANNELS
        return few and (prod(self.module.kernel_size) > 9 or self.gradient.movedim(1, -1).is_contiguous())

    def _from_patches(self) -> Tensor:
        records, weight = len(self.inputs) // self.each, self.module.weight
        at_once = max(1, _PATCHES_AT_ONCE // (self.each * self._pixels * weight[0].numel()))
        product = self.gradient.new_empty(records, len(weight), weight[0].numel())
        some = at_once * self.each
        for inputs, gradient, out in zip(self.inputs.split(some), self.gradient.split(some), product.split(at_once), strict=True):
            torch.bmm(self._tokens(gradient).transpose(1, 2), self._patches(inputs), out=out)
        return product.view(records, *self._turned_shape)

    def _as_groups(self) -> Tensor:
        """One convolution in which each record has its own groups; it adds up a record's images, as it would those of a batch."""
        records, module = len(self.inputs) // self.each, self.module
        weight = module.weight.detach()
        inputs, gradient = (
            x.unflatten(0, (records, self.each)).transpose(0, 1).reshape(self.each, -1, *x.shape[2:]) for x in (self.inputs, self.gradient)
        )
        # Of the weight nothing but the shape is asked for.
        each = weight.new_empty(records * len(weight), *weight.shape[1:])
        return _weight_gradient(module, inputs, gradient, each, self.padding, records * module.groups).view(records, *weight.shape)


@dataclass
class Turned(Term):
    """Gradients with their channels last (records × outputs × kernel × channels)."""

    last: Direct

    def squared_norms(self) -> Tensor:  # noqa: D102
        return self.last.squared_norms()

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.last.weighted_sum(factors, keep).movedim(-1, 1)

    def direct(self) -> Direct:  # noqa: D102
        return Direct(self.last.gradients.movedim(-1, 2))

    def settled(self) -> Term:  # noqa: D102
        self.last.settled()
        return self

    def by_unit(self, grouping: Grouping) -> Term:  # noqa: D102
        return Turned(self.last.by_unit(grouping).direct())

    def joined(self, other: Term) -> Term:  # noqa: D102
        formed = other._formed() if isinstance(other, Convolved) else other
        if isinstance(formed, Turned):
            return Turned(Direct(self.last.gradients + formed.last.gradients))
        return super().joined(formed)


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


def _windows_of(module: Convolution) -> tuple[object, ...]:
    return tuple(module.kernel_size), tuple(module.stride), tuple(module.dilation), module.groups


def _patches(inputs: Tensor, module: Convolution, padding: tuple[int, ...]) -> Tensor:
    """What each output pixel looks at: images × pixels × (kernel · channels)."""
    windows = inputs.movedim(1, -1).contiguous()
    if any(padding):
        windows = F.pad(windows, [0, 0, *(size for p in reversed(padding) for size in (p, p))])
    for axis, (kernel, stride, dilation) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True)):
        windows = windows.unfold(axis + 1, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    axes = len(module.kernel_size)
    order = (*range(1 + axes), *range(2 + axes, 2 + 2 * axes), 1 + axes)
    return windows.permute(order).reshape(len(inputs), prod(windows.shape[1 : 1 + axes]), -1)
