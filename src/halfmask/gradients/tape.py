"""One forward and one backward pass, watched: what went into each trainable layer and what came back to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.gradients.rules import Rule, rule_for
from halfmask.gradients.terms import Term


class UnknownLayer(Exception):
    """A trainable layer that no rule covers."""


class Tape:
    """Turns a per-record loss into per-record gradient terms for a model's trainable parameters."""

    def __init__(self, model: nn.Module):
        self._layers: dict[str, tuple[nn.Module, nn.Module, Rule]] = {}
        for name, module in model.named_modules():
            if not any(p.requires_grad for p in module.parameters(recurse=False)):
                continue
            rule = rule_for(module)
            if rule is None:
                raise UnknownLayer(f"{name or 'the model itself'} ({type(module).__name__})")
            watched = module.get_submodule(getattr(module, "tap", "")) if hasattr(module, "record_gradients") else module
            self._layers[name] = (module, watched, rule)
        # A parameter that two modules share is one parameter: terms add up under its first name.
        names = {id(p): name for name, p in model.named_parameters()}
        self._parameter_name = {
            (layer, own): names[id(p)]
            for layer, (module, _, _) in self._layers.items()
            for own, p in module.named_parameters(recurse=False)
            if p.requires_grad
        }

    def terms(self, losses: Any, records: int) -> dict[str, Term]:
        """Per-record gradient terms by parameter name. `losses()` runs the forward pass and returns one loss per record."""
        with self._watching() as calls:
            total = losses().sum()
        outputs = [output for _, _, output in calls]
        gradients = torch.autograd.grad(total, outputs, allow_unused=True)
        terms: dict[str, Term] = {}
        with torch.no_grad():
            for (layer, inputs, _), gradient in zip(calls, gradients, strict=True):
                if gradient is None:
                    continue
                if len(inputs) % records:
                    raise UnknownLayer(f"{layer} (its leading dimension {len(inputs)} is no multiple of {records} records)")
                module, _, rule = self._layers[layer]
                for own, term in rule(module, inputs, gradient, records).items():
                    name = self._parameter_name.get((layer, own))
                    if name is not None:
                        terms[name] = terms[name].joined(term) if name in terms else term
        return terms

    @contextmanager
    def _watching(self) -> Iterator[list[tuple[str, Tensor, Tensor]]]:
        calls: list[tuple[str, Tensor, Tensor]] = []

        def watch(layer: str) -> Any:
            def hook(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                calls.append((layer, inputs[0].detach(), output))

            return hook

        handles = [watched.register_forward_hook(watch(layer)) for layer, (_, watched, _) in self._layers.items()]
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()
