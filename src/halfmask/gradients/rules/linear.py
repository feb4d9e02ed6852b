"""Linear layers: the gradient is a sum of outer products over tokens."""

from __future__ import annotations

from torch import Tensor, nn

from halfmask.gradients.rules import rule
from halfmask.gradients.terms import Direct, Outer, Term


@rule(nn.Linear)
def linear(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Weight as factors; bias as the sum over tokens."""
    assert isinstance(module, nn.Linear)
    b = output_gradient.reshape(records, -1, module.out_features)
    terms: dict[str, Term] = {}
    if module.weight.requires_grad:
        terms["weight"] = Outer(inputs.reshape(records, -1, module.in_features), b, module.weight.shape)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = Direct(b.sum(1))
    return terms
