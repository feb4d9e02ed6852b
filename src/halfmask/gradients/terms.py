"""The gradient of one parameter for every record of a batch, in the cheapest exact form.

A layer's per-record gradient is either held as it is (`Direct`) or as the two factors whose product it is (`Outer`): for a linear map,
Σ_t b_t a_tᵀ over the record's tokens. From the factors the norm follows without forming the product (the "ghost norm", when the tokens
are few), and so does the weighted sum over records, as one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Direct:
    """Per-record gradients, records × the parameter's shape."""

    gradients: Tensor

    def squared_norms(self) -> Tensor:
        """‖g_i‖² for each record, in double precision so that no square overflows."""
        return torch.linalg.vector_norm(self.gradients.flatten(1), dim=1, dtype=torch.float64).square()

    def weighted_sum(self, factors: Tensor, keep: Tensor | None) -> Tensor:
        """Σ_i factors_i · g_i over the records to keep."""
        flat = self.gradients.flatten(1)
        if keep is not None:
            flat = torch.where(keep[:, None], flat, torch.zeros_like(flat))
        return (factors.to(flat.dtype) @ flat).view(self.gradients.shape[1:])

    def direct(self) -> Direct:
        """Itself: the form in which gradients of several records are added up."""
        return self

    def joined(self, other: Term) -> Direct:
        """The sum of two uses of the same parameter."""
        return Direct(self.gradients + other.direct().gradients)


@dataclass
class Outer:
    """Factors a (records × tokens × inputs) and b (records × tokens × outputs); the gradient is Σ_t b_t a_tᵀ, in `shape`."""

    a: Tensor
    b: Tensor
    shape: torch.Size
    _direct: Direct | None = None

    def squared_norms(self) -> Tensor:
        """‖Σ_t b_t a_tᵀ‖² for each record.

        As Σ_{s,t} (a_s·a_t)(b_s·b_t) where that is cheaper than the product itself. In double precision: the terms may cancel, and a
        norm that came out too small would break the clip.
        """
        tokens = self.a.shape[1]
        if 2 * tokens * tokens >= self.a.shape[2] * self.b.shape[2]:
            return self.direct().squared_norms()
        a, b = self.a.double(), self.b.double()
        if tokens == 1:
            return a.square().sum((1, 2)) * b.square().sum((1, 2))
        return ((a @ a.transpose(1, 2)) * (b @ b.transpose(1, 2))).sum((1, 2)).clamp(min=0)

    def weighted_sum(self, factors: Tensor, keep: Tensor | None) -> Tensor:
        """Σ_i factors_i · g_i, as one matrix product over all tokens of all records."""
        if self._direct is not None:
            return self._direct.weighted_sum(factors, keep)
        a, b = self.a, self.b * factors.to(self.b.dtype)[:, None, None]
        if keep is not None:
            zero = torch.zeros((), dtype=a.dtype, device=a.device)
            a, b = torch.where(keep[:, None, None], a, zero), torch.where(keep[:, None, None], b, zero)
        return (b.flatten(0, 1).T @ a.flatten(0, 1)).view(self.shape)

    def direct(self) -> Direct:
        """The products, formed once."""
        if self._direct is None:
            product = self.b.transpose(1, 2) @ self.a
            self._direct = Direct(product.view(len(product), *self.shape))
        return self._direct

    def joined(self, other: Term) -> Term:
        """The sum of two uses of the same parameter: their tokens side by side."""
        if isinstance(other, Outer):
            return Outer(torch.cat([self.a, other.a], 1), torch.cat([self.b, other.b], 1), self.shape)
        return self.direct().joined(other)


Term = Direct | Outer


def by_unit(term: Term, unit_of_record: Tensor, units: int) -> Direct:
    """Add the gradients of each unit's records up."""
    gradients = term.direct().gradients
    summed = gradients.new_zeros(units, *gradients.shape[1:])
    return Direct(summed.index_add_(0, unit_of_record.to(gradients.device), gradients))
