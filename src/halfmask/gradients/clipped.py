"""What clipping yields: sums that each answer for how far one unit can move them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.privacy.adjacency import Adjacency


@dataclass(frozen=True)
class Clipped(ABC):
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

    def plus(self: _Kind, other: _Kind) -> _Kind:
        """The sum over the units of both, added up in this one's own tensors.

        Formal guarantees: as for each of them, if no unit is in both: one that is would have been clipped twice.
        """
        if self.clip_norm != other.clip_norm:
            raise HalfmaskError(f"sums clipped at {self.clip_norm} and at {other.clip_norm} are added up: expected one clip norm for all")
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.add_(theirs)
        return replace(self, norms=torch.cat([self.norms, other.norms]), nonfinite=self.nonfinite + other.nonfinite)

    def besides(self: _Kind, other: _Kind, clip_norm: float) -> _Kind:
        """What the same units add by another loss, clipped apart, added up in this one's own tensors.

        Formal guarantees: the sum answers for `clip_norm`, which must be no less than those of both together: where two losses share a
        weight, a unit's two parts may point the same way.
        """
        if clip_norm < (self.clip_norm + other.clip_norm) * (1 - 1e-12):
            raise HalfmaskError(
                f"the same units clipped at {self.clip_norm} and at {other.clip_norm} move a sum by as much as both: {clip_norm} is less"
            )
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.add_(theirs)
        return replace(self, norms=self.norms + other.norms, clip_norm=clip_norm, nonfinite=self.nonfinite + other.nonfinite)

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """What is summed up."""


_Kind = TypeVar("_Kind", bound=Clipped)


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

    def tensors(self) -> list[Tensor]:  # noqa: D102
        return list(self.sums.values())

    def flat(self) -> Tensor:
        """All sums as one vector, in the order of the model's parameters."""
        return torch.cat([tensor.flatten() for tensor in self.sums.values()])


@dataclass(frozen=True)
class ClippedCoordinates(Clipped):
    """Σ over units of the clipped coordinates in a subspace."""

    coordinates: Tensor

    def tensors(self) -> list[Tensor]:  # noqa: D102
        return [self.coordinates]
