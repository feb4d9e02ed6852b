"""Normalisations within one record: scale and shift of what was normalised."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import rule
from halfmask.gradients.terms import Direct, Term


@rule(nn.LayerNorm)
def layer_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over the last dimensions."""
    assert isinstance(module, nn.LayerNorm)
    shape = module.normalized_shape
    normalised = F.layer_norm(inputs, shape, None, None, module.eps)
    product = (normalised * output_gradient).reshape(records, -1, *shape)
    terms: dict[str, Term] = {"weight": Direct(product.sum(1))}
    if module.bias is not None:
        terms["bias"] = Direct(output_gradient.reshape(records, -1, *shape).sum(1))
    return terms


@rule(nn.GroupNorm)
def group_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over groups of channels of each record."""
    assert isinstance(module, nn.GroupNorm)
    normalised = F.group_norm(inputs, module.num_groups, None, None, module.eps)

    def per_channel(x: Tensor) -> Tensor:
        return torch.flatten(x.reshape(records, -1, module.num_channels, *x.shape[2:]), 3).sum((1, 3))

    return {
        "weight": Direct(per_channel(normalised * output_gradient)),
        "bias": Direct(per_channel(output_gradient)),
    }
