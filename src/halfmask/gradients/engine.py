"""Per-unit clipped sums of gradients.

`ClippingEngine.clipped_sum` is the only place where a private gradient is touched before noise. It promises that no unit adds more
than the clip norm to the sum, whatever its records hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.slow import slow_terms
from halfmask.gradients.subspace import Subspace
from halfmask.gradients.tape import Tape, UnknownLayer, exact_products
from halfmask.gradients.terms import Direct, Grouping, Term
from halfmask.privacy.adjacency import Adjacency

Batch = dict[str, Tensor]
LossFn = Callable[[nn.Module, Batch], Tensor]

# The clip factor is shrunk by this much, so that rounding in the working precision never carries a unit past the clip norm.
CLIP_MARGIN = {torch.float64: 1e-12, torch.float32: 1e-5}
_DEFAULT_CHUNK = 64
# The first batch is partly differentiated record by record too. The tolerance is for gross errors: exactness has tests of its own.
_VERIFIED_RECORDS, _VERIFIED_TOLERANCE = 3, 1e-2


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
    """Σ over units of the clipped gradient, by parameter."""

    sums: dict[str, Tensor]

    def flat(self) -> Tensor:
        """All sums as one vector, in the order of the model's parameters."""
        return torch.cat([tensor.flatten() for tensor in self.sums.values()])


@dataclass(frozen=True)
class ClippedCoordinates(Clipped):
    """Σ over units of the clipped coordinates in a subspace."""

    coordinates: Tensor


class ClippingEngine:
    """Gradients of a model's trainable parameters: clipped per unit, one per record, or the plain mean.

    `loss_fn(model, batch)` returns one loss per record, each depending on its own record alone.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self._check_layers()
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise HalfmaskError("the model has no trainable parameters: choose another training strategy")
        short = [name for name, p in self.parameters.items() if p.dtype not in (torch.float32, torch.float64)]
        if short:
            raise HalfmaskError(
                f"the parameter '{short[0]}' is in {self.parameters[short[0]].dtype}: sums of clipped gradients would round past the "
                "clip norm. Keep parameters in float32 and run the network under torch.autocast"
            )
        self._tape: Tape | None = None
        self._unverified = set(self.parameters)
        self._calls = 0
        try:
            self._tape = Tape(model)
        except UnknownLayer as layer:
            self._say_slow(str(layer))

    def _check_layers(self) -> None:
        mixing = mixes_records(self.model)
        if mixing:
            raise HalfmaskError(
                f"the layer '{mixing[0]}' normalises by statistics of the batch, which mixes people: freeze it to public statistics "
                "(PublicBatchNorm2d) or use GroupNorm"
            )

    @property
    def size(self) -> int:
        """The number of trainable numbers, p."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def path(self) -> str:
        """`fast` if every trainable layer has a rule, else `slow`."""
        return "slow" if self._tape is None else "fast"

    def clipped_sum(
        self,
        loss_fn: LossFn,
        batch: Batch,
        clip_norm: float,
        unit_index: Tensor | None = None,
        chunk: int | None = None,
    ) -> ClippedSum:
        """Clip each unit's gradient to `clip_norm` and add the results up.

        Args:
            unit_index: the unit that each record belongs to (any integers); by default each record is a unit.
            chunk: how many records to hold at once. A unit is never split, and the result does not depend on it.

        Formal guarantees: the sum of any one unit's contribution, over all parameters together, has Euclidean norm at most
        `clip_norm`. A unit whose gradient is not finite, or too long for the working precision, contributes nothing.
        """
        self._check_call(clip_norm)
        pieces = _pieces(batch, unit_index, chunk)
        clipped, nonfinite = self._sum_up(loss_fn, batch, pieces, clip_norm, mask=False)
        # The one question a step asks of the device. Masking every step for the rare unit that is not finite would cost more.
        count = int(nonfinite) if nonfinite.device.type != "meta" else 0
        if count:
            clipped, _ = self._sum_up(loss_fn, batch, pieces, clip_norm, mask=True)
        return replace(clipped, nonfinite=count)

    def _check_call(self, clip_norm: float) -> None:
        if not (math.isfinite(clip_norm) and clip_norm > 0):
            raise HalfmaskError(f"the clip norm is {clip_norm}: expected a number greater than 0")
        self._check_layers()  # someone may have called train() since

    def _sum_up(self, loss_fn: LossFn, batch: Batch, pieces: list[Piece], clip_norm: float, mask: bool) -> tuple[ClippedSum, Tensor]:
        """The clipped sum and the number of units that cannot be clipped; they leave the sum only with `mask`."""
        sums = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        first = next(iter(sums.values()))
        norms, nonfinite = [first.new_zeros(0, dtype=torch.float64)], first.new_zeros((), dtype=torch.long)
        for piece in pieces:
            terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
            with exact_products(first.device):
                norm, factor, usable = _clip_factors(terms, piece.units, clip_norm, self._coarsest)
                nonfinite = nonfinite + (~usable).sum()
                norms.append(norm)
                while terms:
                    name, term = terms.popitem()
                    sums[name] += term.weighted_sum(factor, usable if mask else None)
        return ClippedSum(torch.cat(norms), clip_norm, 0, sums), nonfinite

    def clipped_coordinates(
        self,
        loss_fn: LossFn,
        batch: Batch,
        clip_norm: float,
        subspace: Subspace | LayeredSubspace,
        unit_index: Tensor | None = None,
        chunk: int | None = None,
    ) -> ClippedCoordinates:
        """Project each unit's gradient first, clip its coordinates to `clip_norm`, and add them up.

        What of a gradient lies outside the subspace no longer uses up the clip norm. With a `Subspace` it forms every gradient, so it
        costs more than `clipped_sum`; with a `LayeredSubspace` it costs less than an ordinary step.

        Formal guarantees: as for `clipped_sum`, of the k coordinates. It holds whatever the basis is.
        """
        self._check_call(clip_norm)
        total = torch.zeros(subspace.dimension, dtype=torch.float64, device=self._device)
        norms, nonfinite = [total.new_zeros(0)], 0
        for piece in _pieces(batch, unit_index, chunk):
            each = self._coordinates(loss_fn, batch, piece, subspace)
            norm, factor, usable = _clip_factors({"": Direct(each)}, piece.units, clip_norm, torch.float64)
            norms.append(norm)
            nonfinite += int((~usable).sum())
            total += Direct(each).weighted_sum(factor, usable)
        return ClippedCoordinates(torch.cat(norms), clip_norm, nonfinite, total)

    def coordinates(
        self,
        loss_fn: LossFn,
        batch: Batch,
        subspace: Subspace | LayeredSubspace,
        unit_index: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        """The coordinates of each unit's gradient (units × k). For public records: nothing is clipped."""
        return torch.cat([self._coordinates(loss_fn, batch, piece, subspace) for piece in _pieces(batch, unit_index, chunk)])

    def _coordinates(self, loss_fn: LossFn, batch: Batch, piece: Piece, subspace: Subspace | LayeredSubspace) -> Tensor:
        terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
        each = torch.zeros(piece.units, subspace.dimension, dtype=torch.float64, device=self._device)
        with exact_products(self._device):
            column = 0
            for name, parameter in self.parameters.items():
                if name in terms:
                    each += subspace.coordinates_of_each(name, terms.pop(name), column)
                column += parameter.numel()
        return each

    def per_record_gradients(
        self,
        loss_fn: LossFn,
        batch: Batch,
        chunk: int | None = None,
        dtype: torch.dtype | None = None,
        columns: slice | None = None,
        unit_index: Tensor | None = None,
    ) -> Tensor:
        """One gradient per unit (by default per record) as the rows of a matrix. For public records: nothing is clipped.

        Args:
            dtype: what to keep them in.
            columns: which of the p columns to keep; by default all.
        """
        first, last, _ = (columns or slice(None)).indices(self.size)
        kind = dtype or next(iter(self.parameters.values())).dtype
        pieces = _pieces(batch, unit_index, chunk)
        rows = torch.zeros(sum(piece.units for piece in pieces), last - first, dtype=kind, device=self._device)
        done = 0
        for piece in pieces:
            terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
            start = 0
            for name, parameter in self.parameters.items():
                end = start + parameter.numel()
                low, high = max(start, first), min(end, last)
                if name in terms and low < high:
                    gradients = terms.pop(name).direct().gradients.flatten(1)
                    rows[done : done + piece.units, low - first : high - first] = gradients[:, low - start : high - start]
                start = end
            done += piece.units
        return rows

    def subspace(
        self,
        loss_fn: LossFn,
        batch: Batch,
        dimension: int,
        chunk: int | None = None,
        memory: int = 5 << 30,
        unit_index: Tensor | None = None,
    ) -> Subspace:
        """The directions in which the gradients of these public records lie, found in about `memory` bytes.

        The gradients are held in single precision where that takes little of it, in bfloat16 where they would not fit otherwise, and
        some columns at a time, at the price of further passes, where even those do not.
        """
        records = _length(batch) if unit_index is None else len(unit_index.unique())
        kind = next(iter(self.parameters.values())).dtype
        dtype = kind if records * self.size * kind.itemsize <= memory // 3 else torch.bfloat16
        # The basis itself and its making take room too.
        room = max(memory - 2 * min(dimension, records) * self.size * dtype.itemsize, memory // 4)
        at_once = max(1, min(self.size, room // (records * dtype.itemsize)))
        return Subspace.from_columns(
            lambda columns: self.per_record_gradients(loss_fn, batch, chunk, dtype, columns, unit_index), self.size, at_once, dimension
        )

    def layered_subspace(
        self, loss_fn: LossFn, batch: Batch, dimension: int, chunk: int | None = None, unit_index: Tensor | None = None
    ) -> LayeredSubspace:
        """The directions, layer by layer, in which the gradients of these public records lie; see `halfmask.gradients.layered`."""
        pieces = _pieces(batch, unit_index, chunk)

        def terms_of() -> Iterator[dict[str, Term]]:
            for piece in pieces:
                terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
                with exact_products(self._device):
                    yield terms

        return LayeredSubspace.from_terms(terms_of, {name: p.shape for name, p in self.parameters.items()}, dimension)

    @property
    def _coarsest(self) -> torch.dtype:
        return max((p.dtype for p in self.parameters.values()), key=CLIP_MARGIN.__getitem__)

    @property
    def _device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    def mean_gradient(self, loss_fn: LossFn, batch: Batch) -> tuple[Tensor, float]:
        """The exact mean gradient as one vector, and the mean loss. For public records (or training without privacy)."""
        loss = loss_fn(self.model, batch).mean()
        gradients = torch.autograd.grad(loss, list(self.parameters.values()), materialize_grads=True)
        return torch.cat([g.flatten() for g in gradients]), float(loss.detach())

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Cut one long vector into the shapes of the parameters."""
        pieces = vector.split([p.numel() for p in self.parameters.values()])
        return {name: piece.view_as(p) for (name, p), piece in zip(self.parameters.items(), pieces, strict=True)}

    def _terms(self, loss_fn: LossFn, batch: Batch, grouping: Grouping | None) -> dict[str, Term]:
        """Gradient terms of each unit. A unit's records lie next to each other."""
        if self._tape is not None:
            try:
                self._verify(loss_fn, batch)
                return self._tape.terms(lambda: _one_loss_each(loss_fn(self.model, batch), _length(batch)), _length(batch), grouping)
            except UnknownLayer as layer:
                self._tape = None
                self._say_slow(str(layer))
            except (RuntimeError, HalfmaskError):
                # Not every model can bear a copy of a parameter for each record. If that is not why, the slow path will say so too.
                if not self._tape.copies_parameters:
                    raise
                self._tape = None
                self._say_slow("parameters outside layers, as this model uses them")
        terms = slow_terms(self.model, self.parameters, loss_fn, batch)
        return terms if grouping is None else {name: term.by_unit(grouping) for name, term in terms.items()}

    def _verify(self, loss_fn: LossFn, batch: Batch) -> None:
        """Check on a few records that the rules give what differentiating each record's loss alone gives.

        A rule sees a layer's input and output, not what a model does around it: a weight used behind its layer's back, or a class token
        indexed as if it had one row, would give one person's gradient to another, and no clip would hold. A parameter is done with once
        it had a gradient to compare; until then it is looked at again in steps 1, 2, 4, 8, … (in every step, if it is one that is copied).
        """
        assert self._tape is not None
        few = {key: value[:_VERIFIED_RECORDS] for key, value in batch.items()}
        if not self._unverified or _length(few) < 2 or self._device.type == "meta":
            return
        self._calls += 1
        if self._calls & (self._calls - 1) and not self._tape.copies_parameters:
            return
        parameters = list(self.parameters.values())

        def losses() -> Tensor:
            torch.manual_seed(0)  # so that dropout, if there is any, draws the same twice
            return _one_loss_each(loss_fn(self.model, few), _length(few))

        with torch.random.fork_rng(devices=_cuda_devices(parameters)):
            terms = self._tape.terms(losses, _length(few))
            apart = [torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True) for loss in losses()]
        with torch.no_grad():
            # Some gradients are zero but for rounding, such as that of the bias of attention keys: they are seen beside the whole.
            whole = torch.stack([torch.stack([g.double().square().sum() for g in row]).sum().sqrt() for row in apart])
            for name, alone in zip(self.parameters, zip(*apart, strict=True), strict=True):
                expected = torch.stack(alone).double().flatten(1)
                found = terms[name].direct().gradients.double().flatten(1) if name in terms else torch.zeros_like(expected)
                lengths = expected.norm(dim=1)
                gaps = (found - expected).norm(dim=1)
                sound = torch.isfinite(lengths) & torch.isfinite(whole)
                if bool((sound & ~(gaps <= _VERIFIED_TOLERANCE * lengths + 1e-4 * whole + 1e-12)).any()):
                    raise UnknownLayer(f"the way this model uses '{name}' (gradients by layer and by loss do not add up)")
                if int((sound & (lengths > 0) & (gaps <= _VERIFIED_TOLERANCE * lengths)).sum()) >= 2:
                    self._unverified.discard(name)

    @staticmethod
    def _say_slow(layer: str) -> None:
        warnings.warn(
            f"no fast gradient rule for {layer}: this model uses the slow path (exact, several times dearer)",
            stacklevel=3,
        )


def mixes_records(model: nn.Module) -> list[str]:
    """Names of layers whose output for one record depends on others in the batch; none in a model fit for private training."""
    return [name for name, module in model.named_modules() if _mixes(module)]


def _mixes(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        # Without running statistics it takes those of the batch even when not training.
        return module.training or module.running_mean is None
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        # Its statistics are each record's own, but it would keep an average of them, without noise, among the weights.
        return module.training and module.track_running_stats
    return bool(getattr(module, "sees_batches", False))


def check_records_apart(model: nn.Module, loss_fn: LossFn, batch: Batch, tolerance: float = 1e-4) -> None:
    """Refuse a loss of one record that changes with the others in its batch: clipping could not bound it.

    Run it on public or random records only.
    """
    count = _length(batch)
    parameters = [p for p in model.parameters() if p.requires_grad]
    together = loss_fn(model, batch)
    if together.shape != (count,):
        raise HalfmaskError(f"the loss has shape {tuple(together.shape)} for {count} records: it must return one value per record")
    for i in range(count):
        alone = loss_fn(model, {key: value[i : i + 1] for key, value in batch.items()}).sum()
        moved = abs(float((together[i] - alone).detach())) / max(1.0, abs(float(alone.detach())))
        # Losses of an untrained network are nearly equal, so that a mean over the batch looks like each of them: its gradient does not.
        if parameters and together.requires_grad:
            with_others = torch.autograd.grad(together[i], parameters, retain_graph=True, materialize_grads=True)
            by_itself = torch.autograd.grad(alone, parameters, materialize_grads=True)
            length = math.sqrt(sum(float(g.double().square().sum()) for g in by_itself))
            apart = math.sqrt(sum(float((a - b).double().square().sum()) for a, b in zip(with_others, by_itself, strict=True)))
            moved = max(moved, 0.1 * apart / max(length, 1e-12)) if apart == apart else math.nan
        if not moved <= tolerance:  # so that NaN, which compares false with everything, does not pass for agreement
            raise HalfmaskError(
                f"the loss of a record changes by {moved:.3g} with the other records in its batch: people are coupled and no clip bounds "
                "one of them. Make every term of the loss, and every layer, depend on its own record alone"
            )


def _clip_factors(terms: dict[str, Term], units: int, clip_norm: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Norm of each unit's whole gradient, what to multiply it by, and whether that can be done at all.

    A gradient that is not finite cannot be clipped, nor one so long that its factor has no precision left in the working type.
    """
    squares = [term.squared_norms() for term in terms.values()]
    norm = torch.stack(squares).sum(0).sqrt() if squares else torch.zeros(units, dtype=torch.float64)
    allowed = clip_norm * (1 - CLIP_MARGIN[dtype])
    factor = allowed / torch.clamp(norm, min=allowed)
    usable = torch.isfinite(norm) & (factor > 100 * torch.finfo(dtype).tiny)
    return norm, torch.where(usable, factor, torch.zeros_like(factor)), usable


def _length(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _one_loss_each(losses: Tensor, records: int) -> Tensor:
    if losses.shape != (records,):
        raise HalfmaskError(f"the loss has shape {tuple(losses.shape)} for {records} records: it must return one value per record")
    return losses


def _cuda_devices(tensors: list[nn.Parameter]) -> list[torch.device]:
    return sorted({t.device for t in tensors if t.device.type == "cuda"}, key=str)


@dataclass(frozen=True)
class Piece:
    """Some whole units of a batch.

    Attributes:
        records: where their records lie in the batch.
        grouping: which of the records belong together; None if each is a unit.
    """

    records: slice | Tensor
    units: int
    grouping: Grouping | None

    def of(self, batch: Batch) -> Batch:
        """The records themselves."""
        return {key: value[self.records] for key, value in batch.items()}


def _pieces(batch: Batch, unit_index: Tensor | None, chunk: int | None) -> list[Piece]:
    return list(_whole_units(_length(batch), unit_index, chunk or _DEFAULT_CHUNK))


def _whole_units(records: int, unit_index: Tensor | None, chunk: int) -> Iterator[Piece]:
    """Cut a batch into pieces of about `chunk` records that hold whole units."""
    if unit_index is None:
        for start in range(0, records, chunk):
            yield Piece(slice(start, min(start + chunk, records)), min(chunk, records - start), None)
        return
    if len(unit_index) != records:
        raise HalfmaskError(f"{len(unit_index)} unit numbers for {records} records: expected one for each record")
    if not records:
        return
    order = torch.argsort(unit_index, stable=True)
    _, sizes = torch.unique_consecutive(unit_index[order], return_counts=True)
    ends = sizes.cumsum(0).tolist()
    start_unit, start = 0, 0
    for unit, end in enumerate(ends):
        if unit + 1 == len(ends) or ends[unit + 1] - start > chunk:
            units = unit + 1 - start_unit
            local = torch.repeat_interleave(torch.arange(units), sizes[start_unit : unit + 1])
            yield Piece(order[start:end], units, Grouping.of(local, units) if units < len(local) else None)
            start_unit, start = unit + 1, end
