"""How each family of layers yields per-record gradients from what went in and what came back.

A rule takes the module, its input, the gradient at its output and the number of records, and returns a term for each of the module's own
parameters. Leading dimensions are records × anything (windows, heads): a rule folds what is not records into tokens.

A module of a model may also speak for itself by offering `record_gradients(inputs, output_gradient, records)` and `tap`, the name of the
submodule whose output gradient it needs (empty for its own). That is how bare parameters, such as attention biases, are reached.
"""

from __future__ import annotations

from collections.abc import Callable

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


def _own_rule(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    gradients: dict[str, Tensor] = module.record_gradients(inputs, output_gradient, records)  # type: ignore[operator]
    return {name: Direct(tensor) for name, tensor in gradients.items()}


from halfmask.gradients.rules import conv, embedding, linear, norm  # noqa: E402, F401  (registration)
