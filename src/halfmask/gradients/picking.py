"""Does a forward pass pick records by a tensor? Then nobody can say by looking at layers whose row is whose.

A network that sorts its sequences, encodes them and sorts them back, or that throws padding away, moves records about by an index that
depends on them. A layer in between sees as many rows as there are records, or a multiple, and takes each for the wrong one. On the few
records that the self-check looks at the order may happen to be right. So passes are watched for it, and a model that does it is
differentiated one record at a time.

To watch every function of a pass takes a tenth of the time of a small one. What a pass was built of is cheaper to ask (`graph_of`),
and a pass of the same functions as one that was watched, and that picked nothing, picks nothing.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halfmask.gradients.pieces import leaves_of

# By name, as they are called as functions, as methods and in place: where their dimension stands among their arguments, and their index.
_INDEXING = {
    "index_select": (1, 2),
    "gather": (1, 2),
    "scatter": (1, 2),
    "scatter_add": (1, 2),
    "scatter_reduce": (1, 2),
    "index_add": (1, 2),
    "index_copy": (1, 2),
    "index_reduce": (1, 2),
    "take_along_dim": (2, 1),
    "repeat_interleave": (2, 1),
}
_TURNING = {"flip": 1, "roll": 2}
_SORTING = {"sort": 1, "topk": 2, "msort": 3}
_ANYWHERE = {"masked_select", "masked_scatter", "take", "_pack_padded_sequence", "flipud"}
_BY_KEY = {"__getitem__", "__setitem__", "index_put"}
_PRODUCTS = {"matmul", "__matmul__", "mm"}
_APART = {"unbind", "split", "chunk", "tensor_split", "__iter__"}
_JOINED = {"stack", "cat", "concat", "concatenate", "vstack"}
_CHANCE = {"randperm", "multinomial", "rand", "rand_like", "randint", "bernoulli", "randn"}
_DIM_NAMES, _INDEX_NAMES = ("dim", "dims", "axis"), ("index", "indices", "repeats")


def graph_of(losses: Tensor) -> tuple[Hashable, set[int]]:
    """What a pass was built of, as far as gradients flow: how often it called each function, and the ids of what they flow to."""
    if losses.grad_fn is None:
        return frozenset[Any](), set()
    seen = {losses.grad_fn}
    ahead = [losses.grad_fn]
    while ahead:
        for node, _ in ahead.pop().next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                ahead.append(node)
    kinds = Counter(map(type, seen))
    leaf = next((kind for kind in kinds if kind.__name__ == "AccumulateGrad"), None)
    return frozenset(kinds.items()), {id(cast(Any, node).variable) for node in seen if type(node) is leaf}


class Picking(TorchFunctionMode):
    """Watches one forward pass.

    A tensor carries records if it is of the batch, or made from one that does. Tables of the model's own, and what is made of those alone,
    may be looked up by any index.

    Attributes:
        seen: what picked records, if anything did.
        may: whether something would with other records: an index that depends on them left each in its place this time.
    """

    def __init__(self, model: nn.Module, batch: Any, records: int):
        super().__init__()
        self.records, self.seen, self.may = records, "", False
        self._carrying: dict[int, tuple[weakref.ref[Tensor], bool]] = {}
        # The tensor that a piece was cut from, and its place in it.
        self._cut: dict[int, tuple[weakref.ref[Tensor], int, int]] = {}
        for buffer in model.buffers():
            self._note(buffer, False)
        for tensor in leaves_of(batch):
            self._note(tensor, True)

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Every torch function of the pass comes by here."""
        kwargs = kwargs or {}
        if self.seen or self.records < 2:
            return func(*args, **kwargs)
        called = getattr(func, "__name__", "")
        name = called if called.startswith("_") else called.rstrip("_")
        given = [tensor for tensor in leaves_of((args, kwargs)) if not isinstance(tensor, nn.Parameter)]
        carried = name in _CHANCE or any(self._carries(tensor) for tensor in given)
        if carried and self._picks(name, args, kwargs):
            self.seen = name.strip("_")
        result = func(*args, **kwargs)
        changed = [args[0]] if args and isinstance(args[0], Tensor) and carried and (called == "__setitem__" or called != name) else []
        for tensor in (*leaves_of(result), *leaves_of(kwargs.get("out")), *changed):
            self._note(tensor, carried)
        for tensor in changed:
            # Whatever it is a view of was written to as well.
            if tensor._is_view() and tensor._base is not None:
                self._note(tensor._base, True)
        if carried and (name in _APART or called == "__getitem__"):
            self._remember(name, args, kwargs, result)
        return result

    def _note(self, tensor: Tensor, carried: bool) -> None:
        self._carrying[id(tensor)] = (weakref.ref(tensor), carried)

    def _carries(self, tensor: Any) -> bool:
        if not isinstance(tensor, Tensor) or isinstance(tensor, nn.Parameter):
            return False
        known = self._carrying.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        # Nobody saw where it came from: it may be anybody's.
        return tensor.requires_grad

    def _picks(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        source: Any = args[0] if args else kwargs.get("input", kwargs.get("tensors"))
        if name in _JOINED:
            return self._along(name, source, args, kwargs, 1) == 0 and self._shuffles(source)
        if name == "embedding":
            table: Any = args[1] if len(args) > 1 else kwargs.get("weight")
            return self._rows(table) and self._moves(source, len(table), 0)
        if name in _PRODUCTS:
            # A matrix with a row and a column for each record may put any in the place of any.
            other: Any = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("mat2"))
            flat = all(self._carries(one) and one.dim() == 2 for one in (source, other))
            return flat and self._rows(source) and self._rows(other) and source.shape[1] == len(other)
        # What is written to need carry nothing yet.
        if not isinstance(source, Tensor) or isinstance(source, nn.Parameter) or not source.dim() or not source.numel():
            return False
        if name in _ANYWHERE:
            return not len(source) % self.records or name == "_pack_padded_sequence"
        if name in _BY_KEY:
            if name == "__setitem__" and not self._carries(args[2]):
                return False  # written over in any place, it moves nobody
            return self._picks_by(source, args[1])
        if name in _TURNING:
            along = self._given(args, kwargs, _TURNING[name], _DIM_NAMES)
            places = along if isinstance(along, (tuple, list)) else (along,)
            return self._rows(source) and any(place in (0, -source.dim(), None) for place in places)
        if name in _SORTING:
            along = self._given(args, kwargs, _SORTING[name], _DIM_NAMES)
            along = -1 if along is None and name != "msort" else along or 0
            return self._rows(source) and source.requires_grad and not isinstance(along, bool) and along % source.dim() == 0
        if name in _INDEXING:
            where, which = _INDEXING[name]
            along, index = self._given(args, kwargs, where, _DIM_NAMES), self._given(args, kwargs, which, _INDEX_NAMES)
            place = 0 if along is None else along % source.dim()
            if name == "repeat_interleave":
                return isinstance(index, Tensor) and index.numel() > 1 and place == 0 and self._rows(source)
            return isinstance(index, Tensor) and self._moves(index, source.shape[place], place)
        return False

    def _picks_by(self, source: Tensor, key: Any) -> bool:
        parts = list(key) if isinstance(key, tuple) else [key]
        for place, part in enumerate(parts):
            if isinstance(part, (list, np.ndarray)):
                # Numbers that left torch may have come from records.
                parts[place] = torch.as_tensor(part)
                self._note(parts[place], True)
        taken = [part.dim() if isinstance(part, Tensor) and part.dtype == torch.bool else part is not None for part in parts]
        place, first = 0, True
        for part, dims in zip(parts, taken, strict=True):
            if part is Ellipsis:
                place += source.dim() - (sum(taken) - 1)
                continue
            if isinstance(part, Tensor) and (part.dim() or part.dtype == torch.bool) and place < source.dim():
                # Of several, the first says whose: `x[arange(n), where]` takes one row of each record.
                return first and self._moves(part, source.shape[place], place)
            first = first and not isinstance(part, Tensor)
            place += int(dims)
        return False

    def _moves(self, index: Any, rows: int, place: int) -> bool:
        """Whether an index along a dimension takes somebody out of their place; each record's rows, in any order, move nobody.

        Records come first, but for networks that have them second: what is picked there is records if the index is one for each of them
        and depends on them.
        """
        if not isinstance(index, Tensor) or not rows or rows % self.records or index.device.type == "meta":
            return False
        carried = self._carries(index)
        if place and (not carried or index.dim() != 1 or len(index) % self.records):
            return False
        if index.dtype == torch.bool or not index.dim() or len(index) % self.records:
            return True
        whose = index.detach().reshape(self.records, -1) % rows // (rows // self.records)
        own = torch.arange(self.records, device=index.device).unsqueeze(1)
        if bool((whose == own).all()):
            self.may |= carried
            return False
        return True

    def _rows(self, tensor: Any) -> bool:
        """Whether a tensor carries records and has rows for each."""
        return self._carries(tensor) and tensor.dim() > 0 and len(tensor) > 0 and not len(tensor) % self.records

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any], place: int, names: Iterable[str]) -> Any:
        if len(args) > place:
            return args[place]
        return next((kwargs[name] for name in names if name in kwargs), None)

    def _along(self, name: str, source: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: int) -> int | None:
        tensors = list(leaves_of(source))
        along = 0 if name == "vstack" else self._given(args, kwargs, place, _DIM_NAMES) or 0
        dims = tensors[0].dim() + (name == "stack") if tensors else 0
        return along % dims if dims else None

    def _remember(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note where pieces were cut from along the first dimension."""
        if not args or not self._rows(args[0]):
            return
        if name == "__getitem__":
            key = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
            start = key.start or 0 if isinstance(key, slice) else key
            if isinstance(start, int) and isinstance(result, Tensor):
                self._cut[id(result)] = (weakref.ref(result), id(args[0]), start % len(args[0]))
        elif not (self._given(args, kwargs, 1 if name in ("unbind", "__iter__") else 2, _DIM_NAMES) or 0) % args[0].dim():
            for place, piece in enumerate(leaves_of(list(result))):
                self._cut[id(piece)] = (weakref.ref(piece), id(args[0]), place)

    def _shuffles(self, pieces: Any) -> bool:
        """Whether pieces of one tensor are put together again in another order."""
        cut = [self._cut.get(id(piece)) for piece in leaves_of(pieces)]
        known = [(found[1], found[2]) for found, piece in zip(cut, leaves_of(pieces), strict=True) if found and found[0]() is piece]
        if len(known) < 2 or len({source for source, _ in known}) > 1:
            return False
        self.may = True
        return [place for _, place in known] != sorted(place for _, place in known)
