"""Multi-head attention, written out: torch's own hands all its weights to one function, and in eval mode to one kernel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import written_out


@written_out(nn.MultiheadAttention)
def multihead_attention(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `nn.MultiheadAttention` computes, as linear maps around an attention."""
    if query.dim() != 3 or query.is_nested:
        return type(module).forward(module, query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
    q, k, v = _projected(module, query, key, value)
    if module.bias_k is not None and module.bias_v is not None:
        k = torch.cat([k, module.bias_k.expand(len(k), -1, -1)], 1)
        v = torch.cat([v, module.bias_v.expand(len(v), -1, -1)], 1)
    if module.add_zero_attn:
        k, v = (torch.cat([x, torch.zeros_like(x[:, :1])], 1) for x in (k, v))
    records, length, width = q.shape
    heads, each = module.num_heads, width // module.num_heads
    q, k, v = (x.view(records, -1, heads, each).transpose(1, 2) for x in (q, k, v))
    mask = _mask(attn_mask, key_padding_mask, records, heads, k.shape[2], q)
    dropout = module.dropout if module.training else 0.0
    weights: Tensor | None = None
    if need_weights:
        scores = (q / math.sqrt(each)) @ k.transpose(2, 3)
        weights = F.dropout(torch.softmax(scores if mask is None else scores + mask, -1), dropout)
        mixed = weights @ v
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    out = F.linear(mixed.transpose(1, 2).reshape(records, length, width), module.out_proj.weight, module.out_proj.bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return out if module.batch_first else out.transpose(0, 1), weights


def _projected(module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, records first."""
    same, shared = query is key and key is value, key is value
    if not module.batch_first:
        query = query.transpose(0, 1)
        key = query if same else key.transpose(0, 1)
        value = key if shared else value.transpose(0, 1)
    weight, bias, width = module.in_proj_weight, module.in_proj_bias, module.embed_dim
    if weight is not None and same:
        q, k, v = F.linear(query, weight, bias).chunk(3, -1)
        return q, k, v
    if weight is not None and shared:
        q = F.linear(query, weight[:width], None if bias is None else bias[:width])
        k, v = F.linear(key, weight[width:], None if bias is None else bias[width:]).chunk(2, -1)
        return q, k, v
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight) if weight is None else weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _mask(attention: Tensor | None, padding: Tensor | None, records: int, heads: int, length: int, like: Tensor) -> Tensor | None:
    """One mask to add to the scores (records × heads × queries × keys, or what spreads to that), from those that may be given."""

    def added(mask: Tensor) -> Tensor:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -math.inf)
        # Keys that the module itself puts at the end are never masked.
        return F.pad(mask.to(like.dtype), (0, length - mask.shape[-1]))

    masks = []
    if attention is not None:
        whole = added(attention)
        masks.append(whole.view(records, heads, *whole.shape[1:]) if whole.dim() == 3 else whole)
    if padding is not None:
        masks.append(added(padding)[:, None, None])
    return masks[0] + masks[1] if len(masks) == 2 else next(iter(masks), None)
