"""A subspace with two small bases for each layer, in place of a few long directions for the whole network.

The gradient of a layer's weight is a matrix, one row an output and one column an input. From person to person its rows and its columns
keep close to a few directions each. A hundred public people are enough to find those; a hundred gradients taken as whole vectors span
little of what the gradients of a hundred others need. With L and R the leading directions of a parameter's rows and columns, its
coordinates are entries of Lᵀ G R. Of all entries of all layers the k that were largest over public people are kept. The basis L ⊗ R is
never formed, and neither is a person's gradient: its coordinates come from what went into a layer and what came back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.gradients.subspace import spectral_norm
from halfmask.gradients.terms import Term, as_rows

Terms = Mapping[str, Term]
# The directions looked at on each side of a parameter: more than the k largest entries reach to.
SIDE = 64
# Orthonormal bases, rounded to single precision, may have a norm this far above 1; each is shrunk by it.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Sides:
    """The directions of one parameter, taken as a matrix of its first axis by all others.

    Attributes:
        left, right: rows × directions and columns × directions, orthonormal.
        entries: which of the entries of Lᵀ G R, counted row by row, are coordinates.
        places: where they stand among all coordinates.
    """

    left: Tensor
    right: Tensor
    entries: Tensor
    places: Tensor

    def coordinates(self, seen: Tensor) -> Tensor:
        """The chosen entries of some Lᵀ G R (… × directions × directions)."""
        return seen.flatten(-2)[..., self.entries]

    def lift(self, coordinates: Tensor) -> Tensor:
        """L · entries · Rᵀ, as a matrix."""
        return self.left.to(coordinates.dtype) @ self.core(coordinates) @ self.right.T.to(coordinates.dtype)

    def core(self, coordinates: Tensor) -> Tensor:
        """Lᵀ G R with nothing but the chosen entries."""
        core = coordinates.new_zeros(self.left.shape[1] * self.right.shape[1])
        core[self.entries] = coordinates
        return core.view(self.left.shape[1], -1)


@dataclass(frozen=True)
class LayeredSubspace:
    """The coordinates of each parameter in bases of its own, all together in order of falling energy.

    Formal guarantees: columns of L ⊗ R are orthonormal up to rounding, by which they are shrunk, so the coordinates of a vector are
    never longer than it is, and projecting a clipped sum does not raise its sensitivity. (With project-then-clip the clip bounds the
    coordinates themselves, whatever the basis.) V(Vᵀs + ξ) has the law of VVᵀ(s + z), as for any orthonormal basis.

    Attributes:
        sides: of each parameter that has coordinates.
        shapes: of every trainable parameter, in the order of the long vector.
        energies: the mean square of each coordinate over public people whose gradients were scaled to length 1.
        scales: what a unit's coordinates are divided by before the clip, and what was released is divided by when it is lifted; see
            `whitened`. Then the coordinates of a vector may be longer than it is: only what was clipped *as coordinates* may be released.
    """

    sides: dict[str, Sides]
    shapes: dict[str, torch.Size]
    energies: Tensor
    scales: Tensor | None = None

    @classmethod
    def from_terms(
        cls, terms_of: Callable[[], Iterable[Terms]], shapes: dict[str, torch.Size], dimension: int, side: int = SIDE
    ) -> LayeredSubspace:
        """Find the directions of public gradients.

        Args:
            terms_of: goes through the gradients of public people, some people at a time. It is called twice: for the directions, then for
                the energy in each pair of them.
            dimension: k, how many coordinates to keep.
        """
        if dimension < 1:
            raise HalfmaskError(f"the subspace dimension is {dimension}: expected at least 1")
        spreads: dict[str, tuple[Tensor, Tensor]] = {}
        for terms in terms_of():
            for name, gradients in _scaled(terms):
                rows, columns = gradients.transpose(0, 1).flatten(1), gradients.permute(2, 0, 1).flatten(1)
                left, right = (rows @ rows.T).double(), (columns @ columns.T).double()
                before = spreads.get(name)
                spreads[name] = (left, right) if before is None else (before[0] + left, before[1] + right)
        bases = {name: (_leading(left, side), _leading(right, side)) for name, (left, right) in spreads.items()}
        totals, people = {name: torch.zeros(()) for name in bases}, 0
        for terms in terms_of():
            scales, usable = _scales(terms)
            people += int(usable.sum())
            for name, term in terms.items():
                seen = term.seen_from(*bases[name])[usable] / scales[usable, None, None].to(bases[name][0].dtype)
                totals[name] = totals[name] + seen.double().square().sum(0).flatten()
        if not people or not any(float(total.sum()) > 0 for total in totals.values()):
            raise HalfmaskError("no public record has a finite gradient other than zero: there is no subspace to find")
        return cls._of_largest(bases, {name: total / people for name, total in totals.items()}, shapes, dimension)

    @classmethod
    def _of_largest(
        cls, bases: dict[str, tuple[Tensor, Tensor]], energies: dict[str, Tensor], shapes: dict[str, torch.Size], dimension: int
    ) -> LayeredSubspace:
        everything = torch.cat(list(energies.values()))
        order = everything.argsort(descending=True)[:dimension]
        order = order[everything[order] > 0]
        sides, start = {}, 0
        for name, energy in energies.items():
            places = torch.nonzero((order >= start) & (order < start + len(energy))).flatten()
            if len(places):
                sides[name] = Sides(*bases[name], entries=order[places] - start, places=places)
            start += len(energy)
        return cls(sides, shapes, everything[order])

    def first(self, dimension: int) -> LayeredSubspace:
        """The subspace of the `dimension` coordinates with most energy."""
        sides = {}
        for name, one in self.sides.items():
            keep = one.places < dimension
            if bool(keep.any()):
                sides[name] = Sides(one.left, one.right, one.entries[keep], one.places[keep])
        return LayeredSubspace(sides, self.shapes, self.energies[:dimension], None if self.scales is None else self.scales[:dimension])

    def whitened(self) -> LayeredSubspace:
        """The same subspace, its coordinates in units of how much they vary from one public person to the next.

        Clipped as they are, coordinates share C as they share the energy: a few directions in which everybody's gradient is long take
        it all, and elsewhere there is nothing but noise. In units of their spread each has the same share, and the noise is as large
        in each beside what is to be heard. Lifting divides by the spread once more. For a model that is as sure as it should be, the
        spread of its gradients is its curvature, so that a step goes the way of a natural gradient: far where the loss is flat.

        The scales come from public people alone, the clip bounds the scaled coordinates, and the lift comes after the noise: ε is what it
        was. They are such that lifting keeps the length of noise on average.
        """
        scales = self.energies.sqrt()
        return replace(self, scales=scales * scales.reciprocal().square().mean().sqrt())

    def norm(self) -> float:
        """At least the spectral norm of the basis as stored: by how much projecting could lengthen a vector."""
        longest = 1.0 if self.scales is None else 1 / float(self.scales.min())
        return longest * max(spectral_norm(one.left.T) * spectral_norm(one.right.T) for one in self.sides.values())

    @property
    def dimension(self) -> int:
        """k, the number of coordinates."""
        return len(self.energies)

    @property
    def lifted_dtype(self) -> torch.dtype:
        """What lifted vectors are in."""
        return next(iter(self.sides.values())).left.dtype

    def coordinates(self, vector: Tensor) -> Tensor:
        """Vᵀ · vector: k numbers."""
        found = vector.new_zeros(self.dimension)
        for name, part in self._parts(vector):
            if name in self.sides:
                one = self.sides[name]
                matrix = part.view(len(one.left), len(one.right))
                found[one.places] = one.coordinates(one.left.T.to(part.dtype) @ matrix @ one.right.to(part.dtype))
        return self._divided(found)

    def coordinates_of_each(self, name: str, term: Term, _column: int = 0) -> Tensor:
        """What one parameter's gradients (one for each unit) add to the coordinates (units × k)."""
        if name not in self.sides:
            return self.energies.new_zeros(1, self.dimension)
        one = self.sides[name]
        seen = one.coordinates(term.seen_from(one.left, one.right)).double()
        if self.scales is not None:
            seen = seen / self.scales[one.places]
        return seen.new_zeros(len(seen), self.dimension).index_copy_(1, one.places, seen)

    def lift(self, coordinates: Tensor) -> Tensor:
        """V · coordinates: back to p numbers."""
        coordinates = self._divided(coordinates)
        parts = []
        for name, shape in self.shapes.items():
            one = self.sides.get(name)
            parts.append(coordinates.new_zeros(shape.numel()) if one is None else one.lift(coordinates[one.places]).flatten())
        return torch.cat(parts)

    def carry(self, new: LayeredSubspace, values: Tensor, squares: bool = False) -> Tensor:
        """Values of these coordinates in those of another basis: of a gradient, or (uncorrelated) squares of one."""
        power = 2 if squares else 1
        if self.scales is not None:
            values = values * self.scales.to(values.dtype) ** power
        carried = values.new_zeros(new.dimension)
        for name in self.sides.keys() & new.sides.keys():
            old, other = self.sides[name], new.sides[name]
            left, right = (a.T.to(values.dtype) @ b.to(values.dtype) for a, b in ((other.left, old.left), (other.right, old.right)))
            if squares:
                left, right = left.square(), right.square()
            carried[other.places] = other.coordinates(left @ old.core(values[old.places]) @ right.T)
        return carried if new.scales is None else carried / new.scales.to(values.dtype) ** power

    def diagnostics(self) -> dict[str, float | list[float]]:
        """Public terms: how many coordinates, and the share of a public gradient's energy in them."""
        return {"subspace_dim": self.dimension, "captured_energy": float(self.energies.sum()), "subspace_parameters": len(self.sides)}

    def _divided(self, coordinates: Tensor) -> Tensor:
        return coordinates if self.scales is None else coordinates / self.scales.to(coordinates.dtype)

    def _parts(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        return zip(self.shapes, vector.split([shape.numel() for shape in self.shapes.values()]), strict=True)


def _scales(terms: Terms) -> tuple[Tensor, Tensor]:
    """The length of each person's whole gradient, and whether it can be scaled to 1."""
    lengths = torch.stack([term.squared_norms() for term in terms.values()]).sum(0).sqrt()
    return lengths, torch.isfinite(lengths) & (lengths > 0)


def _scaled(terms: Terms) -> Iterator[tuple[str, Tensor]]:
    """Each parameter's gradients as matrices, scaled so that every person's whole gradient has length 1, as a clip would."""
    scales, usable = _scales(terms)
    for name, term in terms.items():
        gradients = term.direct().gradients
        rows = as_rows(gradients).view(len(gradients), gradients.shape[1] if gradients.dim() > 1 else 1, -1)
        yield name, rows[usable] / scales[usable, None, None].to(gradients.dtype)


def _leading(spread: Tensor, directions: int) -> Tensor:
    """The leading eigenvectors of a symmetric matrix, a column each, of spectral norm at most 1 as stored."""
    vectors = torch.linalg.eigh(spread).eigenvectors.flip(1)[:, :directions]
    return (vectors / (1 + _ROUNDING)).float()
