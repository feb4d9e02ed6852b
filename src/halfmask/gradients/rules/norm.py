"""Normalisations within one record: scale and shift of what was normalised."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import rule
from halfmask.gradients.terms import Direct, Term


@rule(nn.LayerNorm)
def layer_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over the last dimensions."""
    assert isinstance(module, nn.LayerNorm)
    shape = module.normalized_shape
    terms: dict[str, Term] = {}
    if module.weight is not None and module.weight.requires_grad:
        product = F.layer_norm(inputs, shape, None, None, module.eps).mul_(output_gradient)
        terms["weight"] = Direct(product.reshape(records, -1, *shape).sum(1))
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = Direct(output_gradient.reshape(records, -1, *shape).sum(1))
    return terms


@rule(nn.GroupNorm)
def group_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over groups of channels of each record."""
    assert isinstance(module, nn.GroupNorm)

    def per_channel(x: Tensor) -> Direct:
        return Direct(x.reshape(*x.shape[:2], -1).sum(2).view(records, -1, module.num_channels).sum(1))

    terms: dict[str, Term] = {}
    if module.weight is not None and module.weight.requires_grad:
        terms["weight"] = per_channel(F.group_norm(inputs, module.num_groups, None, None, module.eps).mul_(output_gradient))
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = per_channel(output_gradient)
    return terms
