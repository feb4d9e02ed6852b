"""What a convolution's gradients wait as, and the ways to form them.

With few output pixels a convolution is a linear map over unfolded patches: where it is much larger than those, they wait for the clip
factors, and else each record's gradient is formed from them, a few records at a time, so that patches never leave the processor's cache
and never take more memory than a bound, whatever a picture's size. With many pixels a record's gradient is formed as the weight gradient of
one convolution in which every record is a group of its own.

Patches have their channels last: whole rows of them lie next to each other then. What is formed from patches has them last too, until it
is summed up (`Turned`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.terms import Direct, Grouping, Term, factors_win, few_tokens, ghost_norms, kept, outer_sum


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
# A picture with more of them than this is not unfolded: patches are as many times the picture as a kernel has pixels.
_PATCHES_OF_ONE = 1 << 22

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | Kernel


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
    _wide: Tensor | None = None

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
        patches = self._patches(self.inputs)
        if few_tokens(patches):
            # They are asked for in double precision again; even so they are smaller than the gradients would be.
            patches = self._wide = patches.double()
        return ghost_norms(patches, self._tokens(self.gradient))

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:
        """From unfolded patches: the ordinary weight gradient would round all records together."""
        if not self.ghost:
            return self._formed().weighted_sum(factors, keep)
        if keep is None and self._wide is not None:
            total = outer_sum(self._wide, self._tokens(self.gradient), factors)
        else:
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
        if self.ghost or self._unfolds:
            product = self._from_patches()
            return Turned(Direct(product), self._outputs_last)
        return Direct(self._as_groups())

    @property
    def _unfolds(self) -> bool:
        if self.module.groups != 1 or self._patches_of_one > _PATCHES_OF_ONE:
            return False
        return self._pixels <= _FEW_PIXELS or self._few_channels

    @property
    def _patches_of_one(self) -> int:
        """How many numbers the patches of one image are."""
        return self._pixels * self.module.weight[0].numel()

    @property
    def _outputs_last(self) -> bool:
        """A product is formed faster with its longer side last."""
        return self.module.weight[0].numel() < len(self.module.weight)

    @property
    def _few_channels(self) -> bool:
        """A few channels in each of many groups are slow where kernels are large, or where the channels have to be brought to the front."""
        few = self.inputs.shape[1] <= _FEW_CHANNELS
        return few and (prod(self.module.kernel_size) > 9 or self.gradient.movedim(1, -1).is_contiguous())

    def _from_patches(self) -> Tensor:
        """Records × outputs × kernel × channels, or records × kernel × channels × outputs."""
        records, (outputs, *inner) = len(self.inputs) // self.each, self._turned_shape
        sides = (prod(inner), outputs) if self._outputs_last else (outputs, prod(inner))
        product = self.gradient.new_empty(records, *sides)
        at_once = _PATCHES_AT_ONCE // (self.each * self._patches_of_one)
        if self.each > 1 and not at_once:
            for out, inputs, gradient in zip(product, self.inputs.split(self.each), self.gradient.split(self.each), strict=True):
                self._add_up(out.zero_(), inputs, gradient)
        else:
            at_once = max(1, at_once)
            some = at_once * self.each
            for inputs, gradient, out in zip(self.inputs.split(some), self.gradient.split(some), product.split(at_once), strict=True):
                first, last = self._tokens(gradient), self._patches(inputs)
                if self._outputs_last:
                    first, last = last, first
                torch.bmm(first.transpose(1, 2), last, out=out)
        return product.view(records, *((*inner, outputs) if self._outputs_last else (outputs, *inner)))

    def _add_up(self, total: Tensor, inputs: Tensor, gradient: Tensor) -> None:
        """One record of many images: some of them at a time."""
        some = max(1, _PATCHES_AT_ONCE // self._patches_of_one)
        for images, theirs in zip(inputs.split(some), gradient.split(some), strict=True):
            total += Convolved(images, theirs, self.module, self.padding, len(images))._from_patches().view_as(total)

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
    """Gradients in another order: records × outputs × kernel × channels or, with `outputs_last`, records × kernel × channels × outputs."""

    last: Direct
    outputs_last: bool = False

    def squared_norms(self) -> Tensor:  # noqa: D102
        return self.last.squared_norms()

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: D102
        return self._back(self.last.weighted_sum(factors, keep)[None])[0]

    def direct(self) -> Direct:  # noqa: D102
        return Direct(self._back(self.last.gradients))

    def _back(self, gradients: Tensor) -> Tensor:
        return (gradients.movedim(-1, 1) if self.outputs_last else gradients).movedim(-1, 2)

    def settled(self) -> Term:  # noqa: D102
        self.last.settled()
        return self

    def by_unit(self, grouping: Grouping) -> Term:  # noqa: D102
        return Turned(self.last.by_unit(grouping).direct(), self.outputs_last)

    def joined(self, other: Term) -> Term:  # noqa: D102
        formed = other._formed() if isinstance(other, Convolved) else other
        if isinstance(formed, Turned) and formed.outputs_last == self.outputs_last:
            return Turned(Direct(self.last.gradients + formed.last.gradients), self.outputs_last)
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
