"""Embeddings: a record touches only the rows it looks up, so its gradient is kept as those rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.rules import function_rule, rule
from halfmask.gradients.terms import Direct, Grouping, Term, kept, with_rounding


@rule(nn.Embedding)
def embedding(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Rows looked up, and the gradient of each."""
    assert isinstance(module, nn.Embedding)
    return embedding_function(
        output_gradient,
        records,
        inputs,
        module.weight,
        module.padding_idx,
        module.max_norm,
        scale_grad_by_freq=module.scale_grad_by_freq,
    )


@function_rule("embedding", weights=("weight",))
def embedding_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> dict[str, Term]:
    """As for a layer."""
    refuse_looking_at_others(max_norm, scale_grad_by_freq)
    indices = input.reshape(records, -1)
    gradient = gradient.reshape(records, -1, weight.shape[1])
    if padding_idx is not None:
        gradient = gradient.masked_fill((indices == padding_idx % len(weight))[..., None], 0)
    return {"weight": Rows(indices, gradient, weight.shape)}


@function_rule("embedding_bag", weights=("weight",))
def embedding_bag_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> dict[str, Term]:
    """Bags of equal length: each row of a bag has the bag's gradient, or its share of it."""
    refuse_looking_at_others(max_norm, scale_grad_by_freq)
    if input.dim() != 2 or mode not in ("sum", "mean"):
        raise NotImplementedError
    each = torch.ones(input.shape, dtype=gradient.dtype, device=gradient.device) if per_sample_weights is None else per_sample_weights
    if padding_idx is not None:
        each = each.masked_fill(input == padding_idx % len(weight), 0)
    if mode == "mean":
        each = each / each.sum(1, keepdim=True).clamp(min=1)
    rows = gradient[:, None, :] * each[:, :, None]
    return {"weight": Rows(input.reshape(records, -1), rows.reshape(records, -1, weight.shape[1]), weight.shape)}


def refuse_looking_at_others(max_norm: float | None, scale_grad_by_freq: bool) -> None:
    """Refuse the options of a lookup that make one record's gradient depend on others."""
    if max_norm is not None or scale_grad_by_freq:
        raise HalfmaskError(
            "an embedding with max_norm rewrites its weights from the records it sees, and one with scale_grad_by_freq weighs a record by "
            "how often others look up the same row: neither can be trained privately. Use a plain nn.Embedding"
        )


@dataclass
class Rows(Term):
    """Row numbers (records × tokens) and the gradient that each lookup brings (records × tokens × width)."""

    indices: Tensor
    gradient: Tensor
    shape: torch.Size

    def squared_norms(self) -> Tensor:
        """Lookups of the same row add up before they are squared: Σ over pairs of lookups of the same row of b_s·b_t."""
        wide = self.gradient.double()
        same = self.indices[:, :, None] == self.indices[:, None, :]
        products = wide @ wide.transpose(1, 2)
        exact = products.masked_fill(~same, 0).sum((1, 2)).clamp(min=0)
        return with_rounding(exact, wide.norm(dim=2).sum(1), self.indices.shape[1], self.gradient.dtype)

    def weighted_sum(self, factors: Tensor, keep: Tensor | None = None) -> Tensor:  # noqa: D102
        weighed = kept(self.gradient, keep).double() * factors.double()[:, None, None]
        return weighed.new_zeros(self.shape).index_add_(0, self.indices.flatten(), weighed.flatten(0, 1))

    def direct(self) -> Direct:  # noqa: D102
        records = len(self.indices)
        place = (torch.arange(records, device=self.indices.device)[:, None] * self.shape[0] + self.indices).flatten()
        flat = self.gradient.new_zeros(records * self.shape[0], self.shape[1]).index_add_(0, place, self.gradient.flatten(0, 1))
        return Direct(flat.view(records, *self.shape))

    def joined(self, other: Term) -> Term:  # noqa: D102
        if isinstance(other, Rows):
            return Rows(torch.cat([self.indices, other.indices], 1), torch.cat([self.gradient, other.gradient], 1), self.shape)
        return super().joined(other)

    def by_unit(self, grouping: Grouping) -> Term:
        """Filling up is harmless: what it adds looks row 0 up with a gradient of zero."""
        if not grouping.even:
            return super().by_unit(grouping)
        indices = grouping.side_by_side(self.indices[..., None])[..., 0]
        return Rows(indices, grouping.side_by_side(self.gradient), self.shape)

    def settled(self) -> Term:  # noqa: D102
        return self if self.indices.shape[1] ** 2 < self.shape.numel() else self.direct().settled()
