"""Where parameters without a layer of their own meet the records.

Class tokens, layer scales, tables of relative positions, weights that are computed from other weights: a model may use a parameter in any
way. This watches the torch functions of a forward pass and tells two kinds of tensors apart: those that are the same whatever the records
(*free*: parameters, buffers, and all that is computed from them alone) and the rest. Of a free tensor that depends on a trainable
parameter, only its *meeting* with the records matters: the one function in which both appear.

- Where the function goes element by element, every row of its output is given a copy of the free tensor, so that the copy's gradient is
  that of the row's record.
- Where it is a linear map, a convolution, a lookup or a normalisation, its rule applies, as for a layer.
- Anything else is differentiated once for each record (`halfmask.gradients.piecemeal`).

What was computed on the way from the parameters to the meeting is the same for all records; it is differentiated afterwards, for all at
once.

A tensor that comes from neither (a table kept somewhere outside the model) is a stranger. To call one free that carries records is exact as
long as no gradient goes through it, though it may be slow; to call one bound that is free would deal gradients out to the wrong records.
The engine's check of itself sees both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from halfmask.gradients.pieces import change_leaves, leaves_of

_BY_ELEMENT = {
    *("add", "sub", "rsub", "__rsub__", "mul", "multiply", "div", "divide", "true_divide", "__rdiv__", "__rtruediv__", "pow", "__rpow__"),
    *("add_", "sub_", "mul_", "div_", "where", "maximum", "minimum", "lerp", "addcmul", "addcdiv", "expand_as", "logaddexp", "fmod"),
}
_JOINING = {"cat", "concat", "concatenate", "stack"}
# What they return holds nothing of the records, though they look at a tensor that does.
_ONLY_LOOKING = {"type_as", "to"}
# Set on what was computed from records, so that it goes when the tensor goes.
_MARK = "_carries_records"
_KEEPING = {"to", "type_as", "contiguous", "clone", "float", "double"}


class UnknownUse(Exception):
    """A use of these tensors for which there is no way but that of the whole module."""

    def __init__(self, reason: str, tensors: list[Tensor]):
        super().__init__(reason)
        self.tensors = tensors


@dataclass
class Copies:
    """A free tensor with a copy for each row of what it met (or, if it had a row for each already, its own rows)."""

    source: Tensor
    rows: Tensor
    own: bool

    def of_records(self, gradient: Tensor, records: int) -> Tensor:
        """The gradient of the source for each record, from that of the copies."""
        per_record = gradient.reshape(records, -1, *gradient.shape[1:])
        if not self.own:
            return per_record.sum(1).reshape(records, *self.source.shape)
        apart = per_record.new_zeros(records, *per_record.shape)
        apart[torch.arange(records), torch.arange(records)] = per_record
        return apart.view(records, *self.source.shape)


@dataclass(frozen=True)
class Lookup:
    """A free tensor that is rows of a table, which is told apart because the table may be long."""

    table: Tensor
    indices: Tensor
    padding: int | None


# Told of a meeting that is not by element: the function, its arguments, which tensors carry records, which are watched, and the output.
Meeting = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[Tensor], list[Tensor], Any], None]


class Uses(TorchFunctionMode):
    """Watches one forward pass.

    Attributes:
        copies: of the free tensors that met records element by element.
        lookups: by the id of the tensor looked up.
    """

    def __init__(
        self, model: nn.Module, parameters: Iterable[Tensor], batch: Any, records: int, met: Meeting, strangers_are_free: bool = False
    ):
        super().__init__()
        self._batch = {id(t): t for t in leaves_of(batch)}
        self._strangers_are_free = strangers_are_free
        self._records, self._met = records, met
        # Tensors are held so that nothing else can be given their id.
        self._free: dict[int, Tensor] = {id(t): t for t in _constants(model)}
        self._watched = {id(p) for p in parameters}
        self._quiet: dict[int, int] = {}
        self._bases: dict[int, Tensor] = {}
        self.copies: list[Copies] = []
        self.lookups: dict[int, Lookup] = {}

    def is_free(self, values: Any) -> bool:
        """Whether none of the tensors among these values carries records."""
        return not any(self._carries(tensor) for tensor in leaves_of(values))

    def _carries(self, tensor: Tensor) -> bool:
        if id(tensor) in self._batch or hasattr(tensor, _MARK):
            return True
        if id(tensor) in self._free:
            return False
        if tensor.requires_grad:
            return True
        return tensor.is_floating_point() and not self._strangers_are_free

    def hush(self, tensors: Iterable[Tensor]) -> None:
        """Leave these to a layer's rule, until `unhush`."""
        for tensor in tensors:
            self._quiet[id(tensor)] = self._quiet.get(id(tensor), 0) + 1

    def unhush(self, tensors: Iterable[Tensor]) -> None:
        """Watch them again."""
        for tensor in tensors:
            self._quiet[id(tensor)] -= 1

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every torch function of the pass comes by here."""
        kwargs = kwargs or {}
        tensors = list(leaves_of((args, kwargs)))
        bound = [t for t in tensors if self._carries(t)]
        watched = [t for t in tensors if id(t) in self._watched and not self._quiet.get(id(t))]
        name = getattr(func, "__name__", "")
        if bound and (name not in _ONLY_LOOKING or self._carries(args[0])):
            if watched and torch.is_grad_enabled() and name != "__get__":
                result = self._meet(name, func, args, kwargs, bound, watched)
            else:
                result = func(*args, **kwargs)
            if _in_place(name):
                self._free.pop(id(args[0]), None)  # written to, from records
                self._watched.discard(id(args[0]))
                setattr(args[0], _MARK, True)
            for tensor in leaves_of(result):
                setattr(tensor, _MARK, True)
            return result
        result = func(*args, **kwargs)
        for tensor in leaves_of(result):
            self._free[id(tensor)] = tensor
            if watched and tensor.requires_grad:
                self._watched.add(id(tensor))
                self._remember(name, func, args, kwargs, tensor)
        return result

    def _remember(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> None:
        """Note how a free tensor was made, where that saves work: as the same row many times, or as rows of a table."""
        source = args[0] if args else None
        base: Tensor | None = None
        if not isinstance(source, Tensor):
            return
        if name in ("expand", "repeat") and result.dim() and (source.dim() < result.dim() or source.shape[0] == 1):
            sizes = [1, *result.shape[1:]]
            if name == "repeat":
                times = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
                sizes = [1, *times[1:]]
            base = source if source.shape == (1, *result.shape[1:]) else func(source, sizes)
        elif name in _KEEPING and id(source) in self._bases:
            base = func(self._bases[id(source)], *args[1:], **kwargs)
        elif name == "embedding" and source.dtype in (torch.int32, torch.int64):
            table = args[1] if len(args) > 1 else kwargs["weight"]
            self.lookups[id(result)] = Lookup(table, source, args[2] if len(args) > 2 else kwargs.get("padding_idx"))
        if base is not None:
            self._free[id(base)] = self._bases[id(result)] = base
            self._watched.add(id(base))

    def _meet(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], bound: list[Tensor], watched: list[Tensor]
    ) -> Any:
        shape = self._shape_met(name, args, kwargs, bound, watched)
        if shape is not None and len(shape):
            if shape[0] % self._records or (_in_place(name) and any(args[0] is t for t in watched)):
                raise UnknownUse(f"{name} of shape {tuple(shape)}, where {self._records} records were expected to come first", watched)
            copies = {id(t): self._copied(t, shape) for t in watched}

            def swapped(value: Any) -> Any:
                return copies.get(id(value), value) if isinstance(value, Tensor) else value

            return func(*change_leaves(swapped, args), **change_leaves(swapped, kwargs))
        # In place, the inputs would be gone when the gradient arrives.
        if _in_place(name):
            raise UnknownUse(f"{name} in place", watched)
        result = func(*args, **kwargs)
        self._met(func, args, kwargs, bound, watched, result)
        return result

    def _shape_met(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], bound: list[Tensor], watched: list[Tensor]
    ) -> torch.Size | tuple[int, ...] | None:
        """The shape against which free tensors are spread, if the function goes element by element in them."""
        if name in _BY_ELEMENT:
            return torch.broadcast_shapes(*[t.shape for t in (*bound, *leaves_of((args, kwargs)))])
        if name in _JOINING:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
            return watched[0].shape if dim % (watched[0].dim() + (name == "stack")) and watched[0].dim() else None
        if name == "scaled_dot_product_attention":
            query, key = args[:2]
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            return (*query.shape[:-1], key.shape[-2]) if mask is not None and all(t is mask for t in watched) else None
        return None

    def _copied(self, free: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
        source, rows = free, shape[0]
        own = free.dim() == len(shape) and free.shape[0] == rows > 1
        if own and id(free) in self._bases:
            source, own = self._bases[id(free)], False
        spread = source.detach()
        if not own:
            spread = spread.reshape(*[1] * (len(shape) - source.dim()), *source.shape)
            spread = spread.expand(rows, *spread.shape[1:])
        self.copies.append(Copies(source, spread.requires_grad_(), own))
        return spread


def _in_place(name: str) -> bool:
    if name.endswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return name.endswith("_")


def _constants(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and tensors that modules keep as plain attributes."""
    for module in model.modules():
        yield from leaves_of(vars(module))
