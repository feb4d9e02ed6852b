"""Per-unit clipped sums of gradients.

`ClippingEngine.clipped_sum` is the only place where a private gradient is touched before noise. It promises that no unit adds more
than the clip norm to the sum, whatever its records hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.apart import check_records_apart, mixes_records, refuse_mixing
from halfmask.gradients.clipped import Clipped, ClippedCoordinates, ClippedSum
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.pieces import Batch, LossFn, Piece, count_records, losses_of, whole_units
from halfmask.gradients.selfcheck import SelfCheck
from halfmask.gradients.slow import looped_terms, slow_terms
from halfmask.gradients.subspace import Subspace
from halfmask.gradients.tape import PicksRecords, Tape, UnknownLayer, exact_products
from halfmask.gradients.terms import Direct, Grouping, Term, as_rows

__all__ = [
    "CLIP_MARGIN",
    "Batch",
    "Clipped",
    "ClippedCoordinates",
    "ClippedSum",
    "ClippingEngine",
    "LossFn",
    "check_records_apart",
    "mixes_records",
]

# The clip factor is shrunk by this much, so that rounding in the working precision never carries a unit past the clip norm.
CLIP_MARGIN = {torch.float64: 1e-12, torch.float32: 1e-5}


class ClippingEngine:
    """Gradients of a model's trainable parameters: clipped per unit, one per record, or the plain mean.

    `loss_fn(model, batch)` returns one loss per record, each depending on its own record alone.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        refuse_mixing(self.model)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise HalfmaskError("the model has no trainable parameters: choose another training strategy")
        short = [name for name, p in self.parameters.items() if p.dtype not in (torch.float32, torch.float64)]
        if short:
            raise HalfmaskError(
                f"the parameter '{short[0]}' is in {self.parameters[short[0]].dtype}: sums of clipped gradients would round past the "
                "clip norm. Keep parameters in float32 and run the network under torch.autocast"
            )
        self._tape: Tape | None = Tape(model)
        self._one_by_one = False
        self._check = SelfCheck(model, self.parameters)
        # What has no fast rule, and what is done about it.
        self.slow: dict[str, str] = {}

    @property
    def size(self) -> int:
        """The number of trainable numbers, p."""
        return sum(p.numel() for p in self.parameters.values())

    @property
    def path(self) -> str:
        """`fast` if rules cover the model, `mixed` if some of its functions or modules are differentiated by themselves, else `slow`."""
        if self._tape is None:
            return "slow"
        return "mixed" if self.slow else "fast"

    @property
    def slow_seconds(self) -> dict[str, float]:
        """What was differentiated one record at a time in the last pass, and for how long; empty if that was all of it, or none."""
        return {} if self._tape is None else dict(self._tape.slow)

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
        pieces = list(whole_units(count_records(batch), unit_index, chunk))
        clipped, nonfinite = self._sum_up(loss_fn, batch, pieces, clip_norm, mask=False)
        # The one question a step asks of the device. Masking every step for the rare unit that is not finite would cost more.
        count = int(nonfinite) if nonfinite.device.type != "meta" else 0
        if count:
            clipped, _ = self._sum_up(loss_fn, batch, pieces, clip_norm, mask=True)
        return replace(clipped, nonfinite=count)

    def _check_call(self, clip_norm: float) -> None:
        if not (math.isfinite(clip_norm) and clip_norm > 0):
            raise HalfmaskError(f"the clip norm is {clip_norm}: expected a number greater than 0")
        refuse_mixing(self.model)  # someone may have called train() since

    def _sum_up(self, loss_fn: LossFn, batch: Batch, pieces: list[Piece], clip_norm: float, mask: bool) -> tuple[ClippedSum, Tensor]:
        """The clipped sum and the number of units that cannot be clipped; they leave the sum only with `mask`."""
        sums: dict[str, Tensor] = {}
        norms = [torch.zeros(0, dtype=torch.float64, device=self._device)]
        nonfinite = torch.zeros((), dtype=torch.long, device=self._device)
        for piece in pieces:
            terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
            with exact_products(self._device):
                norm, factor, usable = _clip_factors(terms, piece.units, clip_norm, self._coarsest)
                nonfinite = nonfinite + (~usable).sum()
                norms.append(norm)
                while terms:
                    name, term = terms.popitem()
                    total = term.weighted_sum(factor, usable if mask else None)
                    sums[name] = sums[name].add_(total) if name in sums else total
        whole = {n: sums[n] if n in sums else torch.zeros_like(p, dtype=torch.float64) for n, p in self.parameters.items()}
        return ClippedSum(torch.cat(norms), clip_norm, 0, whole, self._coarsest), nonfinite

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
        for piece in whole_units(count_records(batch), unit_index, chunk):
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
        pieces = whole_units(count_records(batch), unit_index, chunk)
        return torch.cat([self._coordinates(loss_fn, batch, piece, subspace) for piece in pieces])

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
        pieces = list(whole_units(count_records(batch), unit_index, chunk))
        rows = torch.zeros(sum(piece.units for piece in pieces), last - first, dtype=kind, device=self._device)
        done = 0
        for piece in pieces:
            terms = self._terms(loss_fn, piece.of(batch), piece.grouping)
            start = 0
            for name, parameter in self.parameters.items():
                end = start + parameter.numel()
                low, high = max(start, first), min(end, last)
                if name in terms and low < high:
                    gradients = as_rows(terms.pop(name).direct().gradients)
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
        records = count_records(batch) if unit_index is None else len(unit_index.unique())
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
        pieces = list(whole_units(count_records(batch), unit_index, chunk))

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
        while self._tape is not None:
            try:
                terms = self._tape.terms(lambda: losses_of(loss_fn, self.model, batch), batch, grouping)
                self._check.run(self._tape, loss_fn, batch, terms, grouping)
            except PicksRecords as picks:
                self._give_up(str(picks))
            except UnknownLayer as layer:
                if self._tape.retreat(layer):
                    self._check.again()
                else:
                    self._give_up(str(layer))
            except RuntimeError as error:
                # Not every model can bear to be watched so closely. If that is not why, the slow path will say so too.
                if not self._tape.traces:
                    raise
                self._give_up(f"this model, as it uses parameters outside layers ({str(error).splitlines()[0][:200]})")
            else:
                self._say_what_is_slow(self._tape)
                return terms
        terms = self._slow_terms(loss_fn, batch)
        return terms if grouping is None else {name: term.by_unit(grouping) for name, term in terms.items()}

    def _slow_terms(self, loss_fn: LossFn, batch: Batch) -> dict[str, Term]:
        if not self._one_by_one:
            try:
                return slow_terms(self.model, self.parameters, loss_fn, batch)
            except Exception:  # whatever in a stranger's network `vmap` stumbles over, a loop does not
                self._one_by_one = True
        return looped_terms(self.model, self.parameters, loss_fn, batch)

    def _give_up(self, reason: str) -> None:
        self._tape = None
        self.slow = {reason: "the whole model is differentiated one record at a time"}
        warnings.warn(f"no fast gradient rule for {reason}: this model uses the slow path (exact, several times dearer)", stacklevel=4)

    def _say_what_is_slow(self, tape: Tape) -> None:
        for what in tape.slow.keys() - self.slow.keys():
            self.slow[what] = "differentiated by itself, one record at a time"
            warnings.warn(f"no fast gradient rule for {what}: it is differentiated by itself, one record at a time (exact)", stacklevel=4)


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
