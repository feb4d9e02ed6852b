"""How values cross from one process of a run to the others: without their tensors, which cross by themselves; refusals as they stand."""

from __future__ import annotations

import io
import pickle
from typing import Any

from torch import Tensor

from halfmask.errors import HalfmaskError


def packed(value: Any) -> tuple[bytes, list[Tensor]]:
    """A value without its tensors, and those."""
    body, tensors = io.BytesIO(), list[Tensor]()
    _Sender(body, tensors).dump(value)
    return body.getvalue(), tensors


def unpacked(body: bytes, tensors: list[Tensor]) -> Any:
    """Both put together again."""
    return _Receiver(io.BytesIO(body), tensors).load()


class _Sender(pickle.Pickler):
    """Packs a value without its tensors, which cross by themselves."""

    def __init__(self, body: io.BytesIO, tensors: list[Tensor]):
        super().__init__(body)
        self._tensors = tensors

    def persistent_id(self, value: Any) -> int | None:
        """The place of a tensor among those that cross."""
        if type(value) is not Tensor:
            return None
        self._tensors.append(value)
        return len(self._tensors) - 1


class _Receiver(pickle.Unpickler):
    """Puts a value and its tensors together again."""

    def __init__(self, body: io.BytesIO, tensors: list[Tensor]):
        super().__init__(body)
        self._tensors = tensors

    def persistent_load(self, place: Any) -> Tensor:
        """The tensor at a place."""
        return self._tensors[place]


def packed_error(error: HalfmaskError) -> tuple[type[HalfmaskError], tuple[Any, ...], dict[str, Any]]:
    """A refusal, whatever its kind takes to be made."""
    return type(error), error.args, dict(error.__dict__)


def told_elsewhere(packed: tuple[type[HalfmaskError], tuple[Any, ...], dict[str, Any]]) -> HalfmaskError:
    """What root refused, as it stands; root says it."""
    kind, words, more = packed
    error = kind.__new__(kind, *words)
    error.args = words
    error.__dict__.update(more)
    error.told = True
    return error
