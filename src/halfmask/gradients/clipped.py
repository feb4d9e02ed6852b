"""What clipping yields: sums that each answer for how far one unit can move them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfmask.privacy.adjacency import Adjacency


@dataclass(frozen=True)
class Clipped:
    """A sum over units, each of which adds at most the clip norm to it.

    All of it is private; `norms` (of each unit, before clipping), `nonfinite` and `clipped_fraction` stay so even after the sum was
    noised: for tests and noised uses only.
    """

    norms: Tensor
    clip_norm: float
    nonfinite: int

    @property
    def clipped_fraction(self) -> float:
        """The share of units whose gradient was longer than the clip norm."""
        return float((self.norms > self.clip_norm).double().mean()) if len(self.norms) else 0.0

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far the sum, as one vector, can move between neighbouring datasets."""
        return adjacency.sensitivity(self.clip_norm)


@dataclass(frozen=True)
class ClippedSum(Clipped):
    """Σ over units of the clipped gradient, by parameter.

    Attributes:
        sums: in double precision. The sum of thousands of units, rounded to single precision before it is noised, would be off by more
            than the clip leaves room for.
        dtype: what to round the noised sum to; that of the sums if None.
    """

    sums: dict[str, Tensor]
    dtype: torch.dtype | None = None

    def flat(self) -> Tensor:
        """All sums as one vector, in the order of the model's parameters."""
        return torch.cat([tensor.flatten() for tensor in self.sums.values()])


@dataclass(frozen=True)
class ClippedCoordinates(Clipped):
    """Σ over units of the clipped coordinates in a subspace."""

    coordinates: Tensor
