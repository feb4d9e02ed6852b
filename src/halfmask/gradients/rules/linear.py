"""Linear layers: the gradient is a sum of outer products over tokens."""

from __future__ import annotations

from torch import Tensor, nn

from halfmask.gradients.rules import function_rule, rule
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


@function_rule("linear")
def linear_function(gradient: Tensor, records: int, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> dict[str, Term]:
    """As for a layer."""
    b = gradient.reshape(records, -1, weight.shape[0])
    terms: dict[str, Term] = {"weight": Outer(input.reshape(records, -1, weight.shape[1]), b, weight.shape)}
    return terms if bias is None else terms | {"bias": Direct(b.sum(1))}


@function_rule("addmm", weights=("input", "mat2"))
def addmm_function(gradient: Tensor, records: int, input: Tensor, mat1: Tensor, mat2: Tensor, **_scales: float) -> dict[str, Term]:
    """A linear map whose weight lies the other way round, as some language models have it."""
    if any(scale != 1 for scale in _scales.values()) or (input.dim() > 1 and len(input) > 1):
        raise NotImplementedError
    b = gradient.reshape(records, -1, mat2.shape[1])
    shift = b.sum(1) if input.dim() == 1 else b.sum(1, keepdim=True)
    return {"mat2": Outer(b, mat1.reshape(records, -1, mat2.shape[0]), mat2.shape), "input": Direct(shift)}


@function_rule("matmul", "__matmul__", "mm", weights=("other",))
def matmul_function(gradient: Tensor, records: int, input: Tensor, other: Tensor) -> dict[str, Term]:
    """Tokens times a matrix."""
    if other.dim() != 2 or input.dim() < 2:
        raise NotImplementedError
    a, b = input.reshape(records, -1, other.shape[0]), gradient.reshape(records, -1, other.shape[1])
    return {"other": Outer(b, a, other.shape)}
