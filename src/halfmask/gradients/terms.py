"""The gradient of one parameter for every record of a batch, in the cheapest exact form.

A layer's per-record gradient is either held as it is (`Direct`) or as the two factors whose product it is (`Outer`): for a linear map,
Σ_t b_t a_tᵀ over the record's tokens. From the factors the norm follows without forming the product (the "ghost norm", when the tokens
are few), and so does the weighted sum over records, as one matrix product. Other families of layers bring forms of their own
(`halfmask.gradients.rules`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 1024
# Numbers to hold in double precision at once: few enough to stay in the processor's cache.
_WIDE_AT_ONCE = 1 << 19
# With fewer tokens than this, one product of all units in double precision is cheaper than a product for each unit.
_FEW_TOKENS = 32


@dataclass(frozen=True)
class Grouping:
    """Which records of a batch belong to the same unit.

    Attributes:
        unit: the unit of each record, from 0, in ascending order.
        place: the record's place among those of its unit.
        units: how many units there are.
        most: how many records the largest has.
    """

    unit: Tensor
    place: Tensor
    units: int
    most: int

    @classmethod
    def of(cls, unit: Tensor, units: int) -> Grouping:
        """From the unit of each record, in ascending order."""
        sizes = torch.bincount(unit, minlength=units)
        place = torch.arange(len(unit)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        return cls(unit, place, units, int(sizes.max()))

    def side_by_side(self, tokens: Tensor) -> Tensor:
        """Tokens of each record (records × tokens × width) to tokens of each unit, shorter units filled up with zeros."""
        wide = tokens.new_zeros(self.units, self.most, *tokens.shape[1:])
        wide[self.unit.to(tokens.device), self.place.to(tokens.device)] = tokens
        return wide.flatten(1, 2)

    @property
    def even(self) -> bool:
        """Whether filling up costs little."""
        return self.units * self.most <= 2 * len(self.unit)


class Term(ABC):
    """One parameter's gradient for each record (or, once `by_unit`, for each unit)."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """‖g_i‖² for each record, in double precision: a norm that came out too small would break the clip."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:
        """Σ_i factors_i · g_i over the records to keep (all if None), in double precision.

        What a record adds may be rounded by itself, in the working precision, but never together with others: rounding of the sum
        changes for all of them when one leaves, and what all of them do counts against the one.
        """

    @abstractmethod
    def direct(self) -> Direct:
        """The gradients as they are."""

    def seen_from(self, left: Tensor, right: Tensor) -> Tensor:
        """Lᵀ G R of each record, its gradient G taken as a matrix of the parameter's first axis by all others."""
        gradients = self.direct().gradients
        return left.T.to(gradients.dtype) @ gradients.reshape(len(gradients), len(left), len(right)) @ right.to(gradients.dtype)

    def joined(self, other: Term) -> Term:
        """The sum of two uses of the same parameter."""
        return Direct(self.direct().gradients + other.direct().gradients)

    def by_unit(self, grouping: Grouping) -> Term:
        """The gradients of each unit's records, added up."""
        gradients = self.direct().gradients
        summed = gradients.new_zeros(grouping.units, *gradients.shape[1:])
        return Direct(summed.index_add_(0, grouping.unit.to(gradients.device), gradients))

    def settled(self) -> Term:
        """The form in which to wait for the clip factors: the one that holds and costs less."""
        return self.direct().settled()


@dataclass
class Direct(Term):
    """Per-record gradients, records × the parameter's shape."""

    gradients: Tensor
    _squares: Tensor | None = None

    def squared_norms(self) -> Tensor:
        """Computed once."""
        if self._squares is None:
            self._squares = self._sum_squares()
        return self._squares

    def settled(self) -> Term:
        """Itself, its norms taken while the gradients are still in the processor's cache."""
        self.squared_norms()
        return self

    def _sum_squares(self) -> Tensor:
        flat = as_rows(self.gradients)
        whole = flat.shape[1] // _BLOCK * _BLOCK
        # Short stretches in the working precision, their sum in double: as exact, and no copy of all gradients.
        squares = torch.linalg.vector_norm(flat[:, whole:], dim=1).double().square()
        if whole:
            squares = squares + torch.linalg.vector_norm(flat[:, :whole].unflatten(1, (-1, _BLOCK)), dim=2).double().square().sum(1)
        return squares

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: D102
        flat, factors = as_rows(self.gradients), factors.double()
        columns = max(_BLOCK, _WIDE_AT_ONCE // max(1, len(flat)))
        total = factors.new_empty(flat.shape[1])
        # One room for all columns in turn: fresh memory for each would cost more than the sums themselves.
        room = factors.new_empty(len(flat) * min(columns, flat.shape[1]))
        for some, part in zip(flat.split(columns, 1), total.split(columns), strict=True):
            wide = room[: some.numel()].view(some.shape)
            torch.mv(wide.copy_(kept(some, keep)).T, factors, out=part)
        return total.view(self.gradients.shape[1:])

    def direct(self) -> Direct:  # noqa: D102
        return self


@dataclass
class Outer(Term):
    """Factors a (records × tokens × inputs) and b (records × tokens × outputs); the gradient is Σ_t b_t a_tᵀ, in `shape`."""

    a: Tensor
    b: Tensor
    shape: torch.Size

    @property
    def ghost(self) -> bool:
        """Whether to wait with the factors."""
        return factors_win(self.a.shape[1], self.a.shape[2], self.b.shape[2])

    def squared_norms(self) -> Tensor:
        """‖Σ_t b_t a_tᵀ‖², as Σ_{s,t} (a_s·a_t)(b_s·b_t) where that is cheaper."""
        return ghost_norms(self.a, self.b) if self.ghost else self.direct().squared_norms()

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:
        """From the factors: each record's product in the working precision, or one in double of all tokens of all records."""
        return outer_sum(kept(self.a, keep), kept(self.b, keep), factors).view(self.shape)

    def direct(self) -> Direct:  # noqa: D102
        product = self.b.transpose(1, 2) @ self.a
        return Direct(product.view(len(product), *self.shape))

    def seen_from(self, left: Tensor, right: Tensor) -> Tensor:
        """From the factors: the gradient itself is not formed."""
        return (self.b @ left.to(self.b.dtype)).transpose(1, 2) @ (self.a @ right.to(self.a.dtype))

    def joined(self, other: Term) -> Term:
        """Two uses of the same parameter: their tokens side by side."""
        if isinstance(other, Outer) and self.shape == other.shape:
            return Outer(torch.cat([self.a, other.a], 1), torch.cat([self.b, other.b], 1), self.shape)
        return super().joined(other)

    def by_unit(self, grouping: Grouping) -> Term:
        """The tokens of a unit's records side by side."""
        if not grouping.even:
            return super().by_unit(grouping)
        return Outer(grouping.side_by_side(self.a), grouping.side_by_side(self.b), self.shape)

    def settled(self) -> Term:  # noqa: D102
        return self if self.ghost else self.direct().settled()


def outer_sum(a: Tensor, b: Tensor, factors: Tensor) -> Tensor:
    """Σ_i factors_i Σ_t b_it a_itᵀ in double precision, no record rounded together with another."""
    if few_tokens(a) or a.dtype == torch.float64:
        return (b.double() * factors.double()[:, None, None]).flatten(0, 1).T @ a.double().flatten(0, 1)
    total = a.new_zeros(b.shape[2], a.shape[2], dtype=torch.float64)
    product, wide = a.new_empty(total.shape), torch.empty_like(total)
    for one_a, one_b in zip(a, b * factors.to(b.dtype)[:, None, None], strict=True):
        total += wide.copy_(torch.mm(one_b.T, one_a, out=product))
    return total


def few_tokens(tokens: Tensor) -> bool:
    """Whether one product in double precision of all records is cheaper than one for each, in the working precision."""
    return tokens.shape[1] < _FEW_TOKENS


def factors_win(tokens: int, inputs: int, outputs: int) -> bool:
    """Whether a record's gradient should wait for its clip factor as two factors, rather than as their product.

    Formed at once, the product costs what the weight gradient of ordinary training costs, and no second product is needed. So the
    factors win only where they are much smaller: at most half the product's size. (It follows that 2·tokens² < inputs·outputs, so that
    the norm from the factors is the cheaper one as well.)
    """
    return 2 * tokens * (inputs + outputs) < inputs * outputs


def ghost_norms(a: Tensor, b: Tensor) -> Tensor:
    """‖Σ_t b_t a_tᵀ‖² of each record without forming the product, and never less than what a sum in the working precision adds.

    In double precision: the terms may cancel. Where they do, the sum itself, in the working precision, keeps rounding errors in
    proportion to Σ_t ‖a_t‖‖b_t‖, however short the exact gradient is; they are allowed for.
    """
    precision = b.dtype  # `a` may have been widened already
    a, b = a.double(), b.double()
    if a.shape[1] == 1:
        return with_rounding(a.square().sum((1, 2)) * b.square().sum((1, 2)), (a.norm(dim=2) * b.norm(dim=2)).sum(1), 1, precision)
    left, right = a @ a.transpose(1, 2), b @ b.transpose(1, 2)
    sizes = (left.diagonal(dim1=1, dim2=2) * right.diagonal(dim1=1, dim2=2)).clamp(min=0).sqrt().sum(1)
    return with_rounding((left * right).sum((1, 2)).clamp(min=0), sizes, a.shape[1], precision)


def with_rounding(squares: Tensor, sizes: Tensor, terms: int, precision: torch.dtype) -> Tensor:
    """Squared norms with an allowance for a sum of `terms` terms, of lengths `sizes` in all, in a shorter precision; ∞ if it overflows."""
    limits = torch.finfo(precision)
    allowed = (squares.sqrt() + 4 * limits.eps * terms**0.5 * sizes).square()
    return torch.where(sizes < 1e-3 * limits.max, allowed, torch.full_like(allowed, torch.inf))


def as_rows(gradients: Tensor) -> Tensor:
    """Each record's gradient as one row, that of a parameter without dimensions too."""
    return gradients.flatten(1) if gradients.dim() > 1 else gradients.unsqueeze(1)


def kept(values: Tensor, keep: Tensor | None) -> Tensor:
    """Zeros in place of the records not to keep: weighing inf or NaN by 0 would give NaN, and poison the sum."""
    if keep is None:
        return values
    return values.masked_fill(~keep.view(-1, *[1] * (values.dim() - 1)), 0)
