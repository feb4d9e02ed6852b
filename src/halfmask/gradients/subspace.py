"""The few directions in which public gradients live.

From m per-record gradients of public people (the rows of G) the top eigenvectors of GᵀG come by way of the small matrix GGᵀ: with
GGᵀ = UΛUᵀ the basis is V = GᵀU_kΛ_k^(−1/2). No p×p matrix is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.gradients.terms import Term, as_rows

# Eigenvalues below this share of the largest are rounding noise; dividing by their root would make V anything but orthonormal.
_SMALLEST_EIGENVALUE = 1e-6
# Few enough to stay in the processor's cache in double precision.
_COLUMNS_AT_ONCE = 1 << 15
_GRAM_BLOCKS = 4
# Rounding of the norm itself: within the margin that the clip leaves.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Subspace:
    """An orthonormal basis, one direction a row, and the public spectrum it came from.

    Formal guarantees: the largest singular value of `rows` is at most 1 + 1e-6, so that the coordinates of a vector are never longer
    than the vector, and projecting a clipped sum does not raise its sensitivity.
    """

    rows: Tensor
    spectrum: Tensor

    @classmethod
    def from_gradients(cls, gradients: Tensor, dimension: int, dtype: torch.dtype | None = None) -> Subspace:
        """The span of the top `dimension` principal directions of `gradients` (records × p), or fewer if their rank is less.

        Args:
            dtype: what to keep the basis in; by default what the gradients are in.
        """
        return cls.from_columns(lambda columns: gradients[:, columns], gradients.shape[1], gradients.shape[1], dimension, dtype)

    @classmethod
    def from_columns(
        cls, gradients_of: Callable[[slice], Tensor], size: int, at_once: int, dimension: int, dtype: torch.dtype | None = None
    ) -> Subspace:
        """The same from gradients too many to hold: `gradients_of` gives some columns of them at a time, up to `at_once`.

        It is asked twice for all columns but the last ones: once for the spectrum, once for the directions.
        """
        if dimension < 1:
            raise HalfmaskError(f"the subspace dimension is {dimension}: expected at least 1")
        groups = [slice(start, min(start + at_once, size)) for start in range(0, size, at_once)]
        gram: Tensor | None = None
        held = None
        for columns in groups:
            held = None  # so that two groups are never held at once
            held = gradients_of(columns)
            part = gram_matrix(held)
            gram = part if gram is None else gram + part
        assert gram is not None and held is not None
        finite = torch.isfinite(gram.diagonal())
        if not bool(finite.any()):
            raise HalfmaskError("no public record has a finite gradient: training has diverged. Lower optimiser.learning_rate")
        values, vectors = torch.linalg.eigh(gram[finite][:, finite])
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        if values[0] <= 0:
            raise HalfmaskError("every public gradient is zero: there is no subspace to find")
        keep = min(dimension, int((values > _SMALLEST_EIGENVALUE * values[0]).sum()))
        mixing = (vectors[:, :keep] / values[:keep].sqrt()).T
        rows = torch.empty(keep, size, dtype=dtype or held.dtype, device=held.device)
        for columns in reversed(groups):
            if columns is not groups[-1]:
                held = None
                held = gradients_of(columns)
            for start in range(0, held.shape[1], _COLUMNS_AT_ONCE):
                some = held[:, start : start + _COLUMNS_AT_ONCE][finite].double()
                rows[:, columns.start + start : columns.start + start + some.shape[1]] = (mixing @ some).to(rows.dtype)
        return cls(_no_longer_than_one(rows), values / int(finite.sum()))

    @property
    def dimension(self) -> int:
        """k, the number of directions."""
        return len(self.rows)

    def norm(self) -> float:
        """The spectral norm of the basis as stored: by how much projecting could lengthen a vector."""
        return spectral_norm(self.rows)

    def first(self, dimension: int) -> Subspace:
        """The subspace of the `dimension` leading directions."""
        return Subspace(self.rows[:dimension], self.spectrum)

    @property
    def lifted_dtype(self) -> torch.dtype:
        """What lifted vectors are in: single precision for a basis kept in a shorter format."""
        return torch.float32 if self.rows.dtype.itemsize < 4 else self.rows.dtype

    def coordinates(self, vector: Tensor) -> Tensor:
        """Vᵀ·vector: k numbers. The vector keeps its precision: rounding it to the basis's would not keep to its sensitivity."""
        parts = zip(self.rows.split(_COLUMNS_AT_ONCE, 1), vector.split(_COLUMNS_AT_ONCE), strict=True)
        return torch.stack([rows.to(vector.dtype) @ some for rows, some in parts]).sum(0)

    def coordinates_of_each(self, _name: str, term: Term, first_column: int) -> Tensor:
        """What one parameter's gradients (one for each unit), at `first_column` of the long vector, add to the coordinates (units × k)."""
        vectors = as_rows(term.direct().gradients)
        rows = self.rows[:, first_column : first_column + vectors.shape[1]]
        return vectors @ rows.to(vectors.dtype).T

    def lift(self, coordinates: Tensor) -> Tensor:
        """V·coordinates: back to p numbers."""
        return torch.cat([coordinates @ rows.to(coordinates.dtype) for rows in self.rows.split(_COLUMNS_AT_ONCE, 1)])

    def carry(self, new: Subspace, values: Tensor, squares: bool = False) -> Tensor:
        """Values of these coordinates in those of another basis: of a vector, or (uncorrelated) squares of one."""
        turn = torch.stack([a.to(values.dtype) @ b.to(values.dtype).T for a, b in self._stretches(new)]).sum(0)
        return (turn.square() if squares else turn) @ values

    def _stretches(self, new: Subspace) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(new.rows.split(_COLUMNS_AT_ONCE, 1), self.rows.split(_COLUMNS_AT_ONCE, 1), strict=True)

    def diagnostics(self) -> dict[str, float | list[float]]:
        """The public terms of the convergence bound: spectrum, gap below the last direction kept, share of energy captured."""
        following = self.spectrum[self.dimension] if self.dimension < len(self.spectrum) else self.spectrum.new_zeros(())
        return {
            "subspace_dim": self.dimension,
            "spectrum": [float(f"{value:.6g}") for value in self.spectrum.tolist()],
            "eigengap": float(self.spectrum[self.dimension - 1] - following),
            "captured_energy": float(self.spectrum[: self.dimension].sum() / self.spectrum.sum()),
        }


def best_dimension(coordinates: Tensor, noise: float, fewest: int = 1) -> int:
    """How many leading coordinates to keep: as many as make what is lost of the mean, plus the noise added, smallest.

    With few people the square of a mean coordinate holds its own sampling error too, which grows with every coordinate as the noise does;
    it is subtracted.

    Args:
        coordinates: of clipped gradients of *held-out* public units (units × coordinates, leading first). On those that made the
            basis nothing would seem lost.
        noise: the standard deviation of the noise in each coordinate of the mean.
    """
    if len(coordinates) < 2:
        raise HalfmaskError(f"choosing the subspace dimension needs at least 2 held-out public people and there are {len(coordinates)}")
    wide = coordinates.double()
    gained = wide.mean(0).square() - wide.var(0) / len(wide) - noise**2
    return max(min(fewest, len(gained)), int(gained.cumsum(0).argmax()) + 1)


def gram_matrix(rows: Tensor) -> Tensor:
    """Rows · rowsᵀ, accumulated in double precision: a product in single precision, cast, would bury the small eigenvalues."""
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    # The matrix is symmetric: of its blocks those on and below the diagonal are enough.
    starts = range(0, len(rows), max(1, -(-len(rows) // _GRAM_BLOCKS)))
    stripes = [slice(start, start + starts.step) for start in starts]
    for columns in rows.split(_COLUMNS_AT_ONCE, dim=1):
        wide = columns.double()
        for across in stripes:
            gram[across, : across.stop] += wide[across] @ wide[: across.stop].T
    return gram.tril() + gram.tril(-1).T


def spectral_norm(rows: Tensor) -> float:
    """The largest singular value."""
    return float(torch.linalg.eigvalsh(gram_matrix(rows))[-1].clamp(min=0).sqrt())


def _no_longer_than_one(rows: Tensor) -> Tensor:
    """Shrink the rows until their spectral norm, as stored, is at most 1: in a short format dividing once may round back up."""
    for _ in range(20):
        norm = spectral_norm(rows)
        if norm <= 1 + _TOLERANCE:
            return rows
        rows.div_(max(norm, 1 + torch.finfo(rows.dtype).eps))
    raise AssertionError("a basis that shrinks in every round ends below 1")
