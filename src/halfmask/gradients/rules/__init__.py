"""How each family of layers yields per-record gradients from what went in and what came back.

A rule takes the module, its input, the gradient at its output and the number of records, and returns a term for each of the module's own
parameters. Leading dimensions are records × anything (windows, heads): a rule folds what is not records into tokens.

The same families have rules for torch functions that are given their weights as arguments, whoever calls them: a layer that nobody knows
may be a linear map inside. Such a rule takes the gradient at the output, the number of records and the function's own arguments, and
returns a term for each weight.

A module of a model may also speak for itself by offering `record_gradients(inputs, output_gradient, records)` and `tap`, the name of the
submodule whose output gradient it needs (empty for its own). That is how bare parameters, such as attention biases, are reached.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from halfmask.gradients.terms import Direct, Term

Rule = Callable[[nn.Module, Tensor, Tensor, int], dict[str, Term]]
_RULES: dict[type[nn.Module], Rule] = {}


def rule(*kinds: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register the rule for modules of these kinds (exactly: a subclass may compute something else)."""

    def register(function: Rule) -> Rule:
        for kind in kinds:
            _RULES[kind] = function
        return function

    return register


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for a module, or None."""
    if type(module) in _RULES:
        return _RULES[type(module)]
    if hasattr(module, "record_gradients"):
        return _own_rule
    return None


Forward = Callable[..., Any]
_FORWARDS: dict[type[nn.Module], Forward] = {}


def written_out(*kinds: type[nn.Module]) -> Callable[[Forward], Forward]:
    """Register what modules of these kinds (exactly) compute, as functions that have rules: it takes the module's place for a pass."""

    def register(function: Forward) -> Forward:
        for kind in kinds:
            _FORWARDS[kind] = function
        return function

    return register


def forward_for(module: nn.Module) -> Forward | None:
    """What a module computes, written out; None if it does so itself."""
    return _FORWARDS.get(type(module))


FunctionRule = Callable[..., dict[str, Term]]


@dataclass(frozen=True)
class _Function:
    rule: FunctionRule
    weights: tuple[str, ...]
    signature: inspect.Signature


_FUNCTIONS: dict[str, _Function] = {}


def function_rule(*names: str, weights: tuple[str, ...] = ("weight", "bias")) -> Callable[[FunctionRule], FunctionRule]:
    """Register the rule for torch functions of these names; `weights` are the arguments it gives terms for."""

    def register(function: FunctionRule) -> FunctionRule:
        for name in names:
            _FUNCTIONS[name] = _Function(function, weights, inspect.signature(function))
        return function

    return register


def function_rule_for(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], watched: list[Tensor]
) -> Callable[[tuple[Any, ...], dict[str, Any], Tensor, int], list[tuple[int, Term]]] | None:
    """The rule for this call, if the watched tensors are among the weights that it covers; its terms come with the ids of those."""
    known = _FUNCTIONS.get(getattr(func, "__name__", ""))
    if known is None:
        return None
    try:
        given = known.signature.bind(None, 0, *args, **kwargs).arguments
    except TypeError:
        return None
    places = {name: id(given[name]) for name in known.weights if any(given.get(name) is t for t in watched)}
    others = [value for name, value in given.items() if name not in known.weights]
    if set(places.values()) != {id(t) for t in watched} or any(value is t for value in others for t in watched):
        return None

    def apply(args: tuple[Any, ...], kwargs: dict[str, Any], gradient: Tensor, records: int) -> list[tuple[int, Term]]:
        terms = known.rule(gradient, records, *args, **kwargs)
        return [(places[name], term) for name, term in terms.items() if name in places]

    return apply


def _own_rule(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    gradients: dict[str, Tensor] = module.record_gradients(inputs, output_gradient, records)  # type: ignore[operator]
    return {name: Direct(tensor) for name, tensor in gradients.items()}


from halfmask.gradients.rules import attention, conv, embedding, linear, norm, recurrent  # noqa: E402, F401  (registration)
