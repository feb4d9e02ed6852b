"""One forward and one backward pass, watched: what went into each trainable layer and what came back to it.

The backward pass computes no weight gradient. As it reaches a watched layer, that layer's rule turns what is known there into a term;
where the term needs neither input nor output gradient any more, they are let go at once, so that memory stays near that of ordinary
training. The pass stops at the lowest trainable layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from halfmask.errors import HalfmaskError
from halfmask.gradients.rules import Rule, rule_for
from halfmask.gradients.terms import Direct, Grouping, Term


class UnknownLayer(Exception):
    """A trainable layer that no rule covers."""


@dataclass(frozen=True)
class _Layer:
    name: str
    module: nn.Module
    watched: nn.Module
    rule: Rule


@dataclass
class _Call:
    """One use of a layer in a forward pass.

    Attributes:
        output: where its output stands in the graph. Not the tensor: that may be overwritten in place, and holding it holds memory.
        lowest: nothing below it trains.
    """

    layer: _Layer
    inputs: Tensor | None
    version: int
    output: GradientEdge | None
    lowest: bool
    reached: bool = False
    hook: Any = None

    def forget(self) -> None:
        """Let the graph go: it holds the hook, which holds this, which holds the graph, and no collector sees such a ring."""
        if self.hook is not None:
            self.hook.remove()
        self.hook = self.output = self.inputs = None


class Tape:
    """Turns a per-record loss into per-record gradient terms for a model's trainable parameters."""

    def __init__(self, model: nn.Module):
        self._layers: list[_Layer] = []
        self._bare: list[tuple[nn.Module, str]] = []
        for name, module in model.named_modules():
            own = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
            if not own:
                continue
            rule = rule_for(module)
            if rule is not None:
                if not hasattr(module, "record_gradients") and own.keys() - {"weight", "bias"}:
                    raise UnknownLayer(f"{name} ({type(module).__name__} with parameters {', '.join(own)})")
                watched = module.get_submodule(getattr(module, "tap", "")) if hasattr(module, "record_gradients") else module
                self._layers.append(_Layer(name, module, watched, rule))
            elif all(p.dim() > 1 and p.shape[0] == 1 for p in own.values()):
                self._bare += [(module, key) for key in own]
            else:
                raise UnknownLayer(f"{name or 'the model itself'} ({type(module).__name__})")
        # A parameter that two modules share is one parameter: terms add up under its first name.
        self._names = {id(p): name for name, p in model.named_parameters()}
        if any(id(module._parameters[key]) in self._shared(model) for module, key in self._bare):
            raise UnknownLayer("a parameter outside any layer that is shared between modules")
        # Whether every output must be asked for by name, because some lie on no path to the lowest layers.
        self._ask_for_all = False

    @staticmethod
    def _shared(model: nn.Module) -> set[int]:
        seen: set[int] = set()
        twice: set[int] = set()
        for module in model.modules():
            for p in module.parameters(recurse=False):
                (twice if id(p) in seen else seen).add(id(p))
        return twice

    @property
    def copies_parameters(self) -> bool:
        """Whether some parameters are given to each record as a copy, which not every model can bear."""
        return bool(self._bare)

    def terms(self, losses: Callable[[], Tensor], records: int, grouping: Grouping | None = None) -> dict[str, Term]:
        """Per-record (per-unit, with a grouping) gradient terms by parameter name. `losses()` returns one loss per record."""
        terms: dict[str, Term] = {}

        def arrive(call: _Call, gradient: Tensor) -> None:
            self._add(terms, self._rule_terms(call, gradient, records), grouping)

        with self._copies_of_bare_parameters(records) as copies:
            with self._watching(arrive) as calls:
                loss = losses()
            lowest = [call.output for call in calls if call.lowest]
            wanted: list[Any] = [call.output for call in calls] if self._ask_for_all or not lowest else lowest
            try:
                gradients = torch.autograd.grad(loss.sum(), [*copies.values(), *wanted], allow_unused=True)
            finally:
                for call in calls:
                    call.forget()
        for name, gradient in zip(copies, gradients, strict=False):
            if gradient is not None:
                self._add(terms, {name: Direct(gradient.unsqueeze(1))}, grouping)
        if not self._ask_for_all and not all(call.reached for call in calls):
            self._ask_for_all = True
            return self.terms(losses, records, grouping)
        return terms

    def _rule_terms(self, call: _Call, gradient: Tensor, records: int) -> dict[str, Term]:
        layer, inputs = call.layer, call.inputs
        assert inputs is not None
        call.inputs, call.reached = None, True
        if inputs._version != call.version:
            raise HalfmaskError(f"the input of layer '{layer.name}' was changed in place after it was used: write to a new tensor instead")
        if len(inputs) % records:
            raise UnknownLayer(f"{layer.name} (its leading dimension {len(inputs)} is no multiple of {records} records)")
        own = dict(layer.module.named_parameters(recurse=False))
        precision = next(iter(own.values())).dtype
        inputs = inputs.to(precision) if inputs.is_floating_point() else inputs
        with exact_products(gradient.device):
            terms = layer.rule(layer.module, inputs, gradient.to(precision), records)
        return {self._names[id(own[key])]: term for key, term in terms.items() if own[key].requires_grad}

    @staticmethod
    def _add(terms: dict[str, Term], new: dict[str, Term], grouping: Grouping | None) -> None:
        with exact_products(_device(new)):
            for name, term in new.items():
                whole = term if grouping is None else term.by_unit(grouping)
                terms[name] = (terms[name].joined(whole) if name in terms else whole).settled()

    @contextmanager
    def _watching(self, arrive: Callable[[_Call, Tensor], None]) -> Iterator[list[_Call]]:
        """Watch the uses of all layers."""
        calls: list[_Call] = []
        fed: dict[int, bool] = {}

        def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            fed[id(module)] = any(isinstance(x, Tensor) and x.requires_grad for x in (*inputs, *named.values()))

        def watch(layer: _Layer) -> Callable[..., None]:
            def after(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
                value = next(iter((*inputs, *named.values())))
                if not isinstance(output, Tensor) or not isinstance(value, Tensor):
                    raise UnknownLayer(f"{layer.name} (it does not map one tensor to one tensor)")
                if not output.requires_grad:
                    return
                call = _Call(layer, value.detach(), value._version, get_gradient_edge(output), not fed[id(layer.module)])
                calls.append(call)
                call.hook = output.register_hook(lambda gradient: None if call.reached else arrive(call, gradient))

            return after

        handles = [layer.module.register_forward_pre_hook(before, with_kwargs=True) for layer in self._layers]
        handles += [layer.watched.register_forward_hook(watch(layer), with_kwargs=True) for layer in self._layers]
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def _copies_of_bare_parameters(self, records: int) -> Iterator[dict[str, Tensor]]:
        """Give each record its own copy of a parameter such as a class token, so that the copy's gradient is the record's."""
        copies: dict[str, Tensor] = {}
        originals: list[tuple[nn.Module, str, Any]] = []
        for module, key in self._bare:
            parameter = module._parameters[key]
            assert parameter is not None
            copy = parameter.detach().expand(records, *parameter.shape[1:]).requires_grad_()
            copies[self._names[id(parameter)]] = copy
            originals.append((module, key, parameter))
            module._parameters[key] = copy  # type: ignore[assignment]
        try:
            yield copies
        finally:
            for module, key, parameter in originals:
                module._parameters[key] = parameter


@contextmanager
def exact_products(device: torch.device) -> Iterator[None]:
    """No graph, and no autocast: products in a shorter format would let a norm and the sum it bounds disagree."""
    with (
        torch.no_grad(),
        nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False),
        _no_tensor_float() if device.type == "cuda" else nullcontext(),
    ):
        yield


@contextmanager
def _no_tensor_float() -> Iterator[None]:
    """GPUs may round the factors of a single-precision product to 10 bits, and convolutions do so by default."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def _device(terms: dict[str, Term]) -> torch.device:
    tensors = (value for term in terms.values() for value in vars(term).values() if isinstance(value, Tensor))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))
