"""Batches, and how they are cut into pieces that hold whole units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.terms import Grouping
from halfmask.words import a_or_an

# A tensor, or dicts, tuples and lists of them, nested as the loss likes them; the first dimension of every tensor counts records.
Batch = Any
LossFn = Callable[[nn.Module, Batch], Tensor]

_DEFAULT_CHUNK = 64


def leaves(batch: Batch, path: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch, each with the way to it; anything else in it is refused."""
    if isinstance(batch, Tensor):
        yield path, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from leaves(value, f"{path}[{key!r}]")
    elif isinstance(batch, (tuple, list)):
        for place, value in enumerate(batch):
            yield from leaves(value, f"{path}[{place}]")
    else:
        raise HalfmaskError(
            f"{path} is {a_or_an(type(batch).__name__)}: expected a tensor, or dicts, tuples and lists of tensors. What is not of one "
            "record alone belongs into the loss function, not into the batch"
        )


def leaves_of(values: Any) -> Iterator[Tensor]:
    """The tensors among any values."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from leaves_of(value)
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from leaves_of(value)


def change_leaves(change: Callable[[Any], Any], batch: Batch) -> Batch:
    """The same batch with every tensor (or whatever else is no dict, tuple or list) changed."""
    if isinstance(batch, Mapping):
        return {key: change_leaves(change, value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        changed = [change_leaves(change, value) for value in batch]
        return type(batch)(*changed) if hasattr(batch, "_fields") else type(batch)(changed)
    return change(batch)


def count_records(batch: Batch) -> int:
    """How many records a batch holds; refused if its tensors do not agree on that."""
    found = {path: len(tensor) if tensor.dim() else -1 for path, tensor in leaves(batch)}
    if not found:
        raise HalfmaskError("the batch holds no tensor: expected at least one, its first dimension the records")
    first, records = next(iter(found.items()))
    odd = next((path for path, length in found.items() if length != records or length < 0), None)
    if odd is not None:
        says = "a single number" if found[odd] < 0 else f"{found[odd]} rows"
        raise HalfmaskError(
            f"{odd} has {says} where {first} has {max(records, 0)}: expected one row per record in each tensor of a batch. "
            "What is not of one record alone belongs into the loss function"
        )
    return records


def some_records(batch: Batch, which: slice | Tensor) -> Batch:
    """The batch of some of the records."""
    return change_leaves(lambda tensor: tensor[which], batch)


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
        return some_records(batch, self.records)


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
