"""Batches, and how they are cut into pieces that hold whole units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.terms import Grouping

Batch = dict[str, Tensor]
LossFn = Callable[[nn.Module, Batch], Tensor]

_DEFAULT_CHUNK = 64


def count_records(batch: Batch) -> int:
    """How many records a batch holds."""
    return len(next(iter(batch.values())))


def losses_of(loss_fn: LossFn, model: nn.Module, batch: Batch) -> Tensor:
    """The loss of each record; refused if there is not one for each."""
    losses, records = loss_fn(model, batch), count_records(batch)
    if losses.shape != (records,):
        raise HalfmaskError(f"the loss has shape {tuple(losses.shape)} for {records} records: it must return one value per record")
    return losses


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


def whole_units(records: int, unit_index: Tensor | None, chunk: int | None) -> Iterator[Piece]:
    """Cut a batch into pieces of about `chunk` records that hold whole units: a unit split in two would be clipped twice."""
    chunk = chunk or _DEFAULT_CHUNK
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
