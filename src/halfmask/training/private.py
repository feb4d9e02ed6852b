"""The half of a step that reads private records: drawn by secret coins, clipped, noised, divided by a constant.

Nothing leaves it but what `Mechanism.release` returns. What a run changes on its way (the subspace, the clip norm, how sure the loss takes
the model to be) comes from public people, and gives a new half: see `halfmask.training.refresh`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from halfmask.data.records import PRIVATE, VIEW, Records, Units
from halfmask.gradients.apart import state_kept
from halfmask.gradients.engine import Batch, Clipped, ClippedCoordinates, ClippedSum, ClippingEngine, LossFn
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.mechanism import Mechanism, lifted, projected
from halfmask.gradients.pieces import whole_units
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.noise import fresh_key, open_stream
from halfmask.privacy.sampling import PoissonSampler, PublicSampler
from halfmask.training.config import RunConfig
from halfmask.training.distributed import Group
from halfmask.training.influence import Influence
from halfmask.training.optimise import CoordinateOptimiser
from halfmask.training.outputs import RunFolder
from halfmask.training.setup import Setup
from halfmask.training.showing import Showing

# The weight of a record in its unit's gradient, in a batch; no field of a dataset is called so.
WEIGHT = "weight in the unit"


@dataclass(frozen=True)
class Released:
    """What a step may use of private people.

    Attributes:
        gradient: an estimate of their mean gradient, to go through the optimiser of the recipe.
        move: or by how much the weights go down past it, where the half has an optimiser of its own.
    """

    gradient: Tensor | None = None
    move: Tensor | None = None


@dataclass(frozen=True)
class PrivateHalf:
    """The noised half of the steps of a run.

    Attributes:
        records: the private people, or in an audit others in their place.
        coordinates: the optimiser of the half itself, where it has one.
        clip_norms: every clip norm of the run: one, unless it follows public people.
        sharpness: what the private loss multiplies the model's logits by.
        apart: losses that are clipped each by itself, where the task says so; `loss` is then what they add up to.
        publish: told the records that each step draws. Only the published mistake, one batch for both halves, listens.
        unsafe: told private losses and norms, for debugging; a run that has it has no guarantee.
    """

    config: RunConfig
    loss: LossFn
    engine: ClippingEngine
    records: Records
    units: Units
    showing: Showing
    poisson: PoissonSampler
    mechanism: Mechanism
    coordinates: CoordinateOptimiser
    influence: Influence
    group: Group
    clip_norms: tuple[float, ...]
    subspace: Subspace | LayeredSubspace | None = None
    sharpness: float = 1.0
    apart: tuple[LossFn, ...] = ()
    publish: Callable[[np.ndarray], None] | None = None
    unsafe: Callable[[int, Batch, ClippedSum | ClippedCoordinates], None] | None = None

    @classmethod
    def of(cls, setup: Setup, engine: ClippingEngine, showing: Showing, influence: Influence) -> PrivateHalf:
        """The half of a run that begins."""
        config = setup.config
        poisson, mechanism = _streams(setup, config.clip_norm, 0)
        return cls(
            config,
            unit_loss(setup.task.loss),
            engine,
            setup.private,
            setup.units,
            showing,
            poisson,
            mechanism,
            CoordinateOptimiser(config.private.optimiser, config.private.momentum),
            influence,
            setup.group,
            (config.clip_norm,),
            apart=tuple(unit_loss(loss) for loss in setup.task.losses(setup.model).values()),
        )

    def resumed(self, setup: Setup, paid: int, clip_norms: tuple[float, ...]) -> PrivateHalf:
        """The half of a run that goes on: with coins and noise that were never used, and the clip norm it had."""
        poisson, mechanism = _streams(setup, clip_norms[-1], paid)
        return replace(self, poisson=poisson, mechanism=mechanism, clip_norms=clip_norms)

    def release(self, step: int) -> Released:
        """Coins → units → records → clipped sum → noise → ÷ B̄ → lift.

        Of several processes each tosses all the coins and works on its share of the units; root adds up the sums, and noise to them, once.
        What it released, and nothing else, comes back: k numbers where there is a subspace, which each process lifts for itself.

        Formal guarantees: the subsampled Gaussian mechanism that the plan was accounted for; see `Mechanism.release`.
        """
        drawn = self.poisson.draw()
        rows, unit_index, weight = self.units.records_of(self.group.share(drawn, self.units.owners))
        if self.publish is not None:
            self.publish(rows)
        with state_kept(self.engine.model):
            clipped = self.summed(self.pieces(self.records, rows, unit_index, weight, step))
        clipped = self.group.sum(projected(clipped, self.subspace), drawn)
        released = self.group.from_root(lambda: self.mechanism.release_coordinates(clipped, self.subspace), hurried=True)
        if self.own_coordinates:
            found = Released(move=self._move(released))
        else:
            released = lifted(released, self.subspace)
            found = Released(gradient=self.config.private.weight * released)
        # A lifted vector is as long as its coordinates.
        numbers = len(released) if self.subspace is None else self.subspace.dimension
        self.influence.released(released, self.mechanism.noise_in_mean, numbers)
        if self.unsafe is not None:
            self.unsafe(step, self.shown(self.records, rows, unit_index, weight, step)[0], clipped)
        return found

    def summed(self, pieces: Iterable[tuple[Batch, Tensor]]) -> ClippedSum | ClippedCoordinates:
        """The clipped sum of units that are shown piece by piece. No unit may be in two pieces."""
        return reduce(Clipped.plus, (self.clipped(*piece) for piece in pieces))

    def clipped(self, batch: Batch, unit_index: Tensor) -> ClippedSum | ClippedCoordinates:
        """What of some units' gradients goes into the sum: the clip norm at most of each, projected first where the recipe says so."""
        clip_norm = self.mechanism.clip_norm
        if self.apart:
            return self._clipped_apart(batch, unit_index)
        if self.subspace is not None and self.config.subspace.project_first:
            return self.engine.clipped_coordinates(self.loss, batch, clip_norm, self.subspace, unit_index, self.config.chunk)
        return self.engine.clipped_sum(self.loss, batch, clip_norm, unit_index, self.config.chunk)

    def _clipped_apart(self, batch: Batch, unit_index: Tensor) -> ClippedSum:
        """Each loss's gradient clipped to its share of C: on weights that losses share they add up, to C at most."""
        clip_norm = self.mechanism.clip_norm
        parts = [self.engine.clipped_sum(loss, batch, clip_norm / len(self.apart), unit_index, self.config.chunk) for loss in self.apart]
        found = parts[0]
        for number, part in enumerate(parts[1:], start=2):
            found = found.besides(part, clip_norm * number / len(parts))
        return replace(found, clip_norm=clip_norm)

    def shown(self, people: Records, rows: np.ndarray, unit_index: Tensor, weight: Tensor, step: int) -> tuple[Batch, Tensor]:
        """The records, and the unit of each: several showings of each, where asked; for residuals, each one's view, with the opposite sign.

        A unit's gradient is the weighted sum over all that belongs to it, and the clip bounds that: whatever is shown of a unit,
        and however often, it adds at most C.
        """
        residual, times = self.config.private.residual, self.config.augment.times
        sources = (people.shown, VIEW) if residual else (people.shown,)
        shown = self.showing.show(people, rows, *sources, use="private", step=step, times=times)
        repeats, device = max(1, times), self.showing.device
        weight = (weight / repeats).repeat_interleave(repeats).to(device)
        batch = self.weighted(shown[0], weight)
        if not residual:
            return batch, self._units_shown(unit_index)
        views = batch | shown[1] | {WEIGHT: -weight}
        return {name: torch.cat([tensor, views[name]]) for name, tensor in batch.items()}, self._units_shown(unit_index)

    def pieces(self, people: Records, rows: np.ndarray, unit_index: Tensor, weight: Tensor, step: int) -> Iterator[tuple[Batch, Tensor]]:
        """As `shown`, some whole units at a time: of a large batch no more is fetched than is being worked on.

        It is cut where the engine would cut the batch, so that the sum over the pieces is the sum over the batch, bit for bit.
        """
        if not len(rows):
            yield self.shown(people, rows, unit_index, weight, step)
        index = self._units_shown(unit_index)
        for piece in whole_units(len(index), index, self.config.chunk):
            some = torch.isin(unit_index, index[piece.records])
            yield self.shown(people, rows[some.numpy()], unit_index[some], weight[some], step)

    def _units_shown(self, unit_index: Tensor) -> Tensor:
        """The unit of each record as it is shown."""
        index = unit_index.repeat_interleave(max(1, self.config.augment.times))
        return torch.cat([index, index]) if self.config.private.residual else index

    def weighted(self, batch: Batch, weight: Tensor) -> Batch:
        """A batch with what the private loss asks for besides the records."""
        batch = batch | {WEIGHT: weight}
        return batch | {"sharpness": torch.full_like(weight, self.sharpness)} if self.config.private.calibrate else batch

    def public_units(self, people: Records, step: int) -> tuple[Batch, Tensor]:
        """Public people as private ones are shown."""
        everyone = torch.arange(len(people))
        return self.shown(people, everyone.numpy(), everyone, torch.ones(len(people)), step)

    def public_pieces(self, people: Records, step: int) -> Iterator[tuple[Batch, Tensor]]:
        """The same, some at a time."""
        everyone = torch.arange(len(people))
        return self.pieces(people, everyone.numpy(), everyone, torch.ones(len(people)), step)

    @property
    def own_coordinates(self) -> bool:
        """Whether the half has an optimiser of its own, in the coordinates of the subspace."""
        return self.subspace is not None and self.config.private.optimiser != "shared"

    def _move(self, coordinates: Tensor) -> Tensor:
        assert self.subspace is not None
        way = self.coordinates.direction(coordinates, self.mechanism.noise_in_mean)
        private = self.config.private
        scale = private.learning_rate / (self.mechanism.clip_norm if private.optimiser == "sgd" else 1.0)
        return self.subspace.lift(scale * way)


class OpenHalf:
    """Private records read without clip or noise: method `non-private`, which every table shows and which promises nothing."""

    def __init__(self, setup: Setup, engine: ClippingEngine, showing: Showing):
        self.loss, self.engine, self.showing, self.records = setup.task.loss, engine, showing, setup.private
        self.group = setup.group
        self.sampler = PublicSampler(len(setup.private), setup.config.batch, setup.config.seed + 3)

    def release(self, step: int) -> Released:
        """The mean gradient of a shuffled batch."""
        rows = self.group.share(self.sampler.draw().numpy(), self.records.owners)
        gradient = torch.zeros(self.engine.size, device=self.showing.device)
        if len(rows):
            batch = self.showing.show(self.records, rows, PRIVATE, use="private", step=step)[0]
            gradient = self.engine.mean_gradient(self.loss, batch)[0]
        return Released(gradient=self.group.mean(gradient, None, len(rows))[0])


def diagnostics(setup: Setup, folder: RunFolder) -> Callable[[int, Batch, ClippedSum | ClippedCoordinates], None]:
    """Writes private losses and norms down. Whoever asks for that has no guarantee, and their certificate says so."""
    loss = unit_loss(setup.task.loss)

    def write(step: int, batch: Batch, clipped: ClippedSum | ClippedCoordinates) -> None:
        with torch.no_grad():
            losses = loss(setup.model, batch) if len(batch[WEIGHT]) else torch.zeros(0)
        folder.log_unsafe(
            step=step,
            private_losses=losses.tolist(),
            gradient_norms=clipped.norms.tolist(),
            clipped_fraction=clipped.clipped_fraction,
            nonfinite=clipped.nonfinite,
            batch=len(clipped.norms),
        )

    return write


def unit_loss(loss: LossFn) -> LossFn:
    """The loss with each record's weight in its unit's gradient, where a batch has weights."""

    def weighted(model: torch.nn.Module, batch: Batch) -> Tensor:
        losses = loss(model, {name: tensor for name, tensor in batch.items() if name != WEIGHT})
        return losses * batch[WEIGHT] if WEIGHT in batch else losses

    return weighted


def _streams(setup: Setup, clip_norm: float, paid: int) -> tuple[PoissonSampler, Mechanism]:
    config, group = setup.config, setup.group
    # All toss the same coins; the noise is drawn once, by root.
    coins = open_stream("coins", config.insecure_seed, paid, group.from_root(fresh_key))
    noise = group.at_root(lambda: open_stream("noise", config.insecure_seed, paid), "the noise")
    poisson = PoissonSampler(len(setup.units), setup.sampling_rate, coins)
    return poisson, Mechanism(setup.noise_multiplier, clip_norm, poisson.expected_batch, noise, config.noise_sum_of_four)
