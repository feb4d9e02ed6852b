"""Does a forward pass pick records by a tensor? Then nobody can say by looking at layers whose row is whose.

A network that sorts its sequences, encodes them and sorts them back, or that throws padding away, moves records about by an index that
depends on them. A layer in between sees as many rows as there are records, or a multiple, and takes each for the wrong one. On the few
records that the self-check looks at the order may happen to be right. So every pass is watched for it, and a model that does it is
differentiated one record at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halfmask.gradients.pieces import leaves_of

_ALONG = {
    torch.index_select,
    Tensor.index_select,
    torch.gather,
    Tensor.gather,
    torch.flip,
    Tensor.flip,
    torch.roll,
    Tensor.roll,
    Tensor.scatter,
    torch.scatter,
    Tensor.scatter_,
    Tensor.index_add,
    Tensor.index_add_,
    Tensor.index_copy_,
}
_WHOLE = {torch.masked_select, Tensor.masked_select, torch.take, Tensor.take}
_BY_KEY = {Tensor.__getitem__, Tensor.__setitem__}


class Picking(TorchFunctionMode):
    """Watches one forward pass; `seen` is what picked records, if anything did.

    A tensor carries records if it is of the batch, or made from one that does. Tables of the model's own, and what is made of those alone,
    may be looked up by any index.
    """

    def __init__(self, model: nn.Module, batch: Any, records: int):
        super().__init__()
        self.records, self.seen = records, ""
        self._carrying: dict[int, tuple[weakref.ref[Tensor], bool]] = {}
        for buffer in model.buffers():
            self._note(buffer, False)
        for tensor in leaves_of(batch):
            self._note(tensor, True)

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.seen:
            return func(*args, **kwargs)
        given = [tensor for tensor in _tensors((args, kwargs)) if not isinstance(tensor, nn.Parameter)]
        carried = any(self._carries(tensor) for tensor in given)
        if carried and (func in _BY_KEY or func in _ALONG or func in _WHOLE) and self._picks(func, args, kwargs):
            self.seen = getattr(func, "__name__", str(func)).strip("_")
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self._note(tensor, carried)
        return result

    def _note(self, tensor: Tensor, carried: bool) -> None:
        self._carrying[id(tensor)] = (weakref.ref(tensor), carried)

    def _carries(self, tensor: Tensor) -> bool:
        known = self._carrying.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        # Nobody saw where it came from: it may be anybody's.
        return tensor.requires_grad

    def _picks(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        source = args[0] if args else kwargs.get("input")
        if not isinstance(source, Tensor) or isinstance(source, nn.Parameter) or self.records < 2 or source.dim() == 0:
            return False
        rows = source.shape[0]
        if not self._carries(source) or not rows or rows % self.records:
            return False
        if func in _WHOLE:
            return True
        if func in _BY_KEY:
            key = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
            return isinstance(key, (Tensor, list)) and self._moves(torch.as_tensor(key), rows)
        where = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("dims"))
        if func in (torch.roll, Tensor.roll):
            where = args[2] if len(args) > 2 else kwargs.get("dims")
        along = where if isinstance(where, (tuple, list)) else (where,)
        return any(place in (0, -source.dim(), None) for place in along)

    def _moves(self, key: Tensor, rows: int) -> bool:
        """A single row is no record's own, and each row in its place moves nobody."""
        if key.dim() == 0 and key.dtype != torch.bool:
            return False
        flat = key.flatten()
        return not (key.dtype != torch.bool and len(flat) == rows and bool((flat == torch.arange(rows, device=key.device)).all()))


def _tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, (tuple, list)):
        for part in given:
            yield from _tensors(part)
    elif isinstance(given, dict):
        yield from _tensors(list(given.values()))
