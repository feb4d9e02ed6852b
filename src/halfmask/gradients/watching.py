"""Hooks for one forward pass: on layers that have rules, and on modules that are differentiated by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from halfmask.errors import HalfmaskError
from halfmask.gradients.pieces import change_leaves, leaves_of
from halfmask.gradients.rules import Rule
from halfmask.gradients.uses import Uses


class UnknownLayer(Exception):
    """What the tape is wrong about, or cannot do, and the parameters concerned."""

    def __init__(self, reason: str, parameters: Iterable[str] = ()):
        super().__init__(reason)
        self.parameters = set(parameters)


class PicksRecords(Exception):
    """A pass that moves records about by a tensor: nothing that looks at layers can follow it."""


@dataclass(frozen=True)
class Layer:
    """A module with a rule; `watched` is the one whose output gradient the rule needs."""

    name: str
    module: nn.Module
    watched: nn.Module
    rule: Rule
    names: tuple[str, ...]

    @property
    def own(self) -> list[nn.Parameter]:
        """The module's own parameters, not those of modules in it."""
        return list(self.module.parameters(recurse=False))


@dataclass
class Call:
    """One use of a layer, or of a function with parameters among its arguments, in a forward pass.

    Attributes:
        work: turns the gradient at the output into terms.
        output: where its output stands in the graph. Not the tensor: that may be overwritten in place, and holding it holds memory.
        lowest: nothing below it trains.
    """

    work: Callable[[Tensor], None] | None
    output: GradientEdge | None
    lowest: bool
    reached: bool = False
    hook: Any = None

    def arrive(self, gradient: Tensor) -> None:
        """The gradient at the output is there."""
        if not self.reached and self.work is not None:
            work, self.work, self.reached = self.work, None, True
            work(gradient)

    def forget(self) -> None:
        """Let the graph go: it holds the hook, which holds this, which holds the graph, and no collector sees such a ring."""
        if self.hook is not None:
            self.hook.remove()
        self.hook = self.output = self.work = None


@dataclass
class Visit:
    """One use of a module that is differentiated by itself, record by record."""

    name: str
    module: nn.Module
    parameters: list[nn.Parameter]
    inputs: tuple[Any, Any]
    bound: set[int]
    gradients: list[Tensor | None]


@contextmanager
def watching(layers: list[Layer], calls: list[Call], arrive: Callable[[Layer, Tensor, Tensor], None], uses: Uses | None) -> Iterator[None]:
    """Add a call for every use of a layer; `arrive` is told of its input and of the gradient at its output when that is there."""
    # Whether what a layer was given trains, or None if it carries no records.
    fed: dict[int, bool | None] = {}

    def before(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        fed[id(module)] = any(isinstance(x, Tensor) and x.requires_grad for x in (*inputs, *named.values()))
        if uses is not None:
            if uses.is_free((inputs, named)):
                fed[id(module)] = None
            else:
                uses.hush(module.parameters(recurse=False))

    def after(module: nn.Module, *_rest: Any) -> None:
        if uses is not None and fed[id(module)] is not None:
            uses.unhush(module.parameters(recurse=False))

    def watch(layer: Layer) -> Callable[..., None]:
        def on_output(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            if fed[id(layer.module)] is None:
                return
            value = next(iter((*inputs, *named.values())))
            if not isinstance(output, Tensor) or not isinstance(value, Tensor):
                raise UnknownLayer(f"{layer.name} (it does not map one tensor to one tensor)", layer.names)
            if not output.requires_grad:
                return
            held = value.detach()
            work = partial(_unchanged, layer, held, held._version, arrive)
            calls.append(Call(work, get_gradient_edge(output), lowest=not fed[id(layer.module)]))
            calls[-1].hook = output.register_hook(calls[-1].arrive)

        return on_output

    handles = [layer.module.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
    handles += [layer.watched.register_forward_hook(watch(layer), with_kwargs=True) for layer in layers]
    if uses is not None:
        handles += [layer.module.register_forward_hook(after) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unchanged(layer: Layer, inputs: Tensor, version: int, arrive: Callable[[Layer, Tensor, Tensor], None], gradient: Tensor) -> None:
    if inputs._version != version:
        raise HalfmaskError(f"the input of layer '{layer.name}' was changed in place after it was used: write to a new tensor instead")
    arrive(layer, inputs, gradient)


@contextmanager
def visiting(
    modules: list[tuple[str, nn.Module, list[nn.Parameter]]], visits: list[Visit], edges: list[GradientEdge], uses: Uses
) -> Iterator[None]:
    """Note what goes into modules that are differentiated by themselves, and what comes back to them."""
    handles = []
    for name, module, parameters in modules:
        begun: list[Visit] = []

        def before(
            module: nn.Module,
            args: Any,
            kwargs: Any,
            name: str = name,
            parameters: list[nn.Parameter] = parameters,
            begun: list[Visit] = begun,
        ) -> None:
            uses.hush(parameters)
            bound: set[int] = set()

            def held(value: Any) -> Any:
                if not isinstance(value, Tensor):
                    return value
                copy = value.detach()
                if not uses.is_free(value):
                    bound.add(id(copy))
                return copy

            begun.append(Visit(name, module, parameters, change_leaves(held, (args, kwargs)), bound, []))

        def after(_module: nn.Module, _args: Any, _kwargs: Any, output: Any, begun: list[Visit] = begun) -> None:
            visit = begun.pop()
            uses.unhush(visit.parameters)
            for place, tensor in enumerate(leaves_of(output)):
                visit.gradients.append(None)
                if tensor.requires_grad:
                    edges.append(get_gradient_edge(tensor))
                    tensor.register_hook(partial(_keep, visit.gradients, place))
            visits.append(visit)

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _keep(gradients: list[Tensor | None], place: int, gradient: Tensor) -> None:
    gradients[place] = gradient


@contextmanager
def rewritten(modules: list[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Let modules that hide what they do in one function compute it in several, and none in a kernel for inference."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    for module, forward in modules:
        module.forward = partial(forward, module)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, _ in modules:
            del module.forward
