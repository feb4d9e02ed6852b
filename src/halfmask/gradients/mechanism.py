"""The one step that all methods share:

    update = λ · public gradient (exact) + lift( Σ clip(private gradient of a unit) + noise ) / B̄

A method (`METHODS`) says which of its parts are there. Everything after `Mechanism.release` is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.gradients.engine import ClippedCoordinates, ClippedSum
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.subspace import Subspace
from halfmask.gradients.tape import exact_products
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.noise import RandomStream

_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Method:
    """Which parts of the step a method has.

    Attributes:
        private: how the private part of a record is read: `noised` (clipped and noised), `exact` (no privacy) or `unread`.
        view: whether an exact gradient on public data is added.
        projected: whether the private part is kept to a public subspace.
        rest: whether the noised half is shown only what the view leaves, for which the view has to divide a record in two.
    """

    name: str
    private: str
    view: bool
    projected: bool
    rest: bool = False

    @property
    def adjacencies(self) -> tuple[Adjacency, ...]:
        """The relations that have a meaning for this method.

        Where the public view of a unit stays in the dataset, a dataset without the unit is not a neighbour anyone could promise
        about: its view would be missed.
        """
        if self.view:
            return (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
        return (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)

    def check_adjacency(self, adjacency: Adjacency) -> None:
        """Refuse a relation without meaning, with the reason."""
        if adjacency not in self.adjacencies:
            raise HalfmaskError(
                f"adjacency '{adjacency.value}' has no meaning for method '{self.name}': the public view of a person stays in the dataset "
                "when the person is removed. Use zero-out or replace-one"
            )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("non-private", private="exact", view=False, projected=False),
        Method("public-only", private="unread", view=True, projected=False),
        Method("dpsgd", private="noised", view=False, projected=False),
        Method("projected", private="noised", view=False, projected=True),
        Method("feature", private="noised", view=True, projected=False),
        Method("feature-projective", private="noised", view=True, projected=True),
        Method("masked", private="noised", view=True, projected=False, rest=True),
        Method("masked-projective", private="noised", view=True, projected=True, rest=True),
    )
}


def method_named(name: str) -> Method:
    """Look a method up, suggesting the nearest if there is none of that name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


@dataclass(frozen=True)
class Mechanism:
    """Adds the noise that the accountant was told about, and divides by a constant.

    Attributes:
        expected_batch: B̄. The realised batch size is secret and never divides anything.
    """

    noise_multiplier: float
    clip_norm: float
    expected_batch: float
    noise: RandomStream
    sum_of_four: bool = False

    def release(self, clipped: ClippedSum | ClippedCoordinates, subspace: Subspace | LayeredSubspace | None = None) -> Tensor:
        """The private gradient estimate that may leave: noised, divided by B̄, lifted back if it was projected.

        Formal guarantees: a Gaussian mechanism of standard deviation σC on a sum whose sensitivity `clipped` answers for. With a
        subspace, the noise is drawn in its k coordinates: V(Vᵀs + ξ) has the law of VVᵀ(s + z), because VᵀV = I, and the
        unprojected sum is never released.
        """
        return lifted(self.release_coordinates(clipped, subspace), subspace)

    def release_coordinates(self, clipped: ClippedSum | ClippedCoordinates, subspace: Subspace | LayeredSubspace | None) -> Tensor:
        """The same before it is lifted: k numbers, or p where there is no subspace."""
        if clipped.clip_norm > self.clip_norm:
            raise HalfmaskError(
                f"the sum was clipped to {clipped.clip_norm:g} but noised for {self.clip_norm:g}: the noise would be too small"
            )
        with exact_products(clipped.norms.device):
            return self._release(clipped, subspace)

    @property
    def noise_in_mean(self) -> float:
        """The standard deviation of the noise in each released number."""
        return self.noise_multiplier * self.clip_norm / self.expected_batch

    def _release(self, clipped: ClippedSum | ClippedCoordinates, subspace: Subspace | LayeredSubspace | None) -> Tensor:
        clipped = projected(clipped, subspace)
        if isinstance(clipped, ClippedCoordinates):
            if subspace is None or len(clipped.coordinates) != subspace.dimension:
                raise HalfmaskError("these are coordinates in a subspace: release them with the subspace they were taken in")
            signal, kind = clipped.coordinates, subspace.lifted_dtype
        else:
            signal = clipped.flat()
            kind = clipped.dtype or signal.dtype
        mean = torch.empty(len(signal), dtype=kind, device=signal.device)
        # Some at a time: in double precision, all of a large network's noise at once would be the largest thing in memory.
        for place, part in zip(mean.split(_AT_ONCE), signal.split(_AT_ONCE), strict=True):
            noise = self.noise.gaussian(len(part), self.sum_of_four).to(part.device)
            place.copy_(noise.mul_(self.noise_multiplier * self.clip_norm).add_(part).div_(self.expected_batch))
        return mean


def projected(clipped: ClippedSum | ClippedCoordinates, subspace: Subspace | LayeredSubspace | None) -> ClippedSum | ClippedCoordinates:
    """Of a sum of gradients its coordinates in the subspace, if there is one: all that will be released of it.

    Formal guarantees: answers for the same clip norm, because no vector's coordinates are longer than it is. The coordinates of a sum are
    the sum of coordinates: it does not matter whether parts of it are projected before or after they are added up.
    """
    if subspace is None or isinstance(clipped, ClippedCoordinates):
        return clipped
    if isinstance(subspace, LayeredSubspace) and subspace.scales is not None:
        raise HalfmaskError("whitened coordinates may be longer than the gradient that was clipped: clip them, with project_first")
    with exact_products(clipped.norms.device):
        return ClippedCoordinates(clipped.norms, clipped.clip_norm, clipped.nonfinite, subspace.coordinates(clipped.flat()))


def lifted(released: Tensor, subspace: Subspace | LayeredSubspace | None) -> Tensor:
    """What was released, as a gradient: coordinates are put back in their place."""
    if subspace is None:
        return released
    with exact_products(released.device):
        return subspace.lift(released)


def check_private_ready(method: Method, private_units: int, batch: float) -> None:
    """Refuse a batch that is no sampling at all."""
    if method.private == "unread":
        return
    if batch > private_units:
        raise HalfmaskError(
            f"the batch is {batch:g} but there are {private_units} private units: choose a batch of at most {private_units}, or add data"
        )
    if batch < 1:
        raise HalfmaskError(f"the batch is {batch:g}: expected at least 1")
