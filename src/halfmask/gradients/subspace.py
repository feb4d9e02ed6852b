"""The few directions in which public gradients live.

From m per-record gradients of public people (the rows of G) the top eigenvectors of GᵀG come by way of the small matrix GGᵀ: with
GGᵀ = UΛUᵀ the basis is V = GᵀU_kΛ_k^(−1/2). No p×p matrix is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError

# Eigenvalues below this share of the largest are rounding noise; dividing by their root would make V anything but orthonormal.
_SMALLEST_EIGENVALUE = 1e-6
_COLUMNS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Subspace:
    """An orthonormal basis, one direction a row, and the public spectrum it came from.

    Formal guarantees: the largest singular value of `rows` is at most 1 + 1e-6, so that the coordinates of a vector are never longer
    than the vector, and projecting a clipped sum does not raise its sensitivity.
    """

    rows: Tensor
    spectrum: Tensor

    @classmethod
    def from_gradients(cls, gradients: Tensor, dimension: int) -> Subspace:
        """The span of the top `dimension` principal directions of `gradients` (records × p), or fewer if their rank is less."""
        if dimension < 1:
            raise HalfmaskError(f"the subspace dimension is {dimension}: expected at least 1")
        gradients = gradients[torch.isfinite(gradients).all(1)]
        if not len(gradients):
            raise HalfmaskError("no public record has a finite gradient: training has diverged. Lower optimiser.learning_rate")
        gram = torch.zeros(len(gradients), len(gradients), dtype=torch.float64, device=gradients.device)
        for columns in gradients.split(_COLUMNS_AT_ONCE, dim=1):
            wide = columns.double()
            gram += wide @ wide.T
        values, vectors = torch.linalg.eigh(gram)
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        if values[0] <= 0:
            raise HalfmaskError("every public gradient is zero: there is no subspace to find")
        keep = min(dimension, int((values > _SMALLEST_EIGENVALUE * values[0]).sum()))
        mixing = (vectors[:, :keep] / values[:keep].sqrt()).T
        rows = torch.cat([(mixing @ c.double()).to(gradients.dtype) for c in gradients.split(_COLUMNS_AT_ONCE, dim=1)], 1)
        return cls(rows / max(1.0, spectral_norm(rows)), values / len(gradients))

    @property
    def dimension(self) -> int:
        """k, the number of directions."""
        return len(self.rows)

    def coordinates(self, vector: Tensor) -> Tensor:
        """Vᵀ·vector: k numbers."""
        return self.rows @ vector.to(self.rows.dtype)

    def lift(self, coordinates: Tensor) -> Tensor:
        """V·coordinates: back to p numbers."""
        return coordinates.to(self.rows.dtype) @ self.rows

    def diagnostics(self) -> dict[str, float | list[float]]:
        """The public terms of the convergence bound: spectrum, gap below the last direction kept, share of energy captured."""
        following = self.spectrum[self.dimension] if self.dimension < len(self.spectrum) else self.spectrum.new_zeros(())
        return {
            "subspace_dim": self.dimension,
            "spectrum": [float(f"{value:.6g}") for value in self.spectrum.tolist()],
            "eigengap": float(self.spectrum[self.dimension - 1] - following),
            "captured_energy": float(self.spectrum[: self.dimension].sum() / self.spectrum.sum()),
        }


def spectral_norm(rows: Tensor) -> float:
    """The largest singular value, from a Gram matrix accumulated in double precision."""
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for columns in rows.split(_COLUMNS_AT_ONCE, dim=1):
        wide = columns.double()
        gram += wide @ wide.T
    return float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0).sqrt())
