"""The attention of MViTv2: queries, keys and values pooled by small depthwise convolutions, with relative positions.

Where only some tokens are present, an absent one is nothing: zero where a pooling convolution would read it, and no key. See
`halfmask.models.mvit`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.models.depthwise import DepthwiseConv3d

Triple = tuple[int, int, int]

_POOL: Triple = (3, 3, 3)
EPSILON = 1e-6


class Grid(NamedTuple):
    """How many tokens there are in time and in space."""

    frames: int
    rows: int
    columns: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.frames * self.rows * self.columns

    def pooled(self, stride: Triple) -> Grid:
        """After a pooling with a window that is centred."""
        return Grid(*(-(-size // step) for size, step in zip(self, stride, strict=True)))


def pooled_presence(present: Tensor, kernel: Triple, stride: Triple) -> Tensor:
    """Whether any token is present in each centred window; N×T×H×W."""
    return F.max_pool3d(present.float()[:, None], kernel, stride, centred(kernel))[:, 0] > 0


def centred(kernel: Triple) -> Triple:
    """The padding with which a window is centred."""
    return kernel[0] // 2, kernel[1] // 2, kernel[2] // 2


class Pool(nn.Module):
    """A depthwise convolution over the tokens of each head, then a normalisation; the class token is normalised alone."""

    def __init__(self, width: int, stride: Triple):
        super().__init__()
        self.stride = stride
        self.pool = DepthwiseConv3d(width, _POOL, stride)
        self.norm_act = nn.Sequential(nn.LayerNorm(width, eps=EPSILON))

    def forward(self, x: Tensor, grid: Grid, present: Tensor | None) -> Tensor:
        """Pool N×heads×(1 + tokens)×width."""
        records, heads, _, width = x.shape
        token, rest = x[:, :, :1], x[:, :, 1:]
        if present is not None:
            rest = rest * present.reshape(records, 1, -1, 1)
        rest = self.pool(rest.transpose(2, 3).reshape(records * heads, width, *grid))
        rest = rest.reshape(records, heads, width, -1).transpose(2, 3)
        pooled: Tensor = self.norm_act(torch.cat([token, rest], 2))
        return pooled


class Offsets(nn.Module):
    """Scores of each query with the relative position of each key along each axis: N×heads×T×H×W×(T' + H' + W').

    A module of its own so that per-record gradients of the tables can be read off where they meet the queries.
    """

    def forward(self, queries: Tensor, by_frame: Tensor, by_row: Tensor, by_column: Tensor) -> Tensor:  # noqa: D102
        return torch.cat(
            [
                torch.einsum("nathwc,tkc->nathwk", queries, by_frame),
                torch.einsum("nathwc,hkc->nathwk", queries, by_row),
                torch.einsum("nathwc,wkc->nathwk", queries, by_column),
            ],
            -1,
        )


class Distances(nn.Module):
    """Which row of a table of relative positions each pair of a query and a key looks up, along one axis.

    A table of another length than the axis asks for is stretched to it linearly.
    """

    index: Tensor
    stretch: Tensor | None

    def __init__(self, queries: int, keys: int, length: int):
        super().__init__()
        needed = 2 * max(queries, keys) - 1
        to_query, to_key = max(keys / queries, 1.0), max(queries / keys, 1.0)
        apart = torch.arange(queries)[:, None] * to_query - (torch.arange(keys)[None] + 1.0 - keys) * to_key
        self.register_buffer("index", apart.long(), persistent=False)
        stretch = None
        if needed != length:
            stretch = F.interpolate(torch.eye(length)[None], size=needed, mode="linear")[0].T.contiguous()
        self.register_buffer("stretch", stretch, persistent=False)

    def rows(self, table: Tensor) -> Tensor:
        """Queries × keys × width."""
        return (table if self.stretch is None else self.stretch.to(table.dtype) @ table)[self.index]

    def gradients(self, looked_up: Tensor, table: Tensor) -> Tensor:
        """From those of the rows, one set for each record, to those of the table."""
        records, width = len(looked_up), table.shape[1]
        length = len(table) if self.stretch is None else len(self.stretch)
        summed = looked_up.new_zeros(records, length, width).index_add_(1, self.index.flatten(), looked_up.reshape(records, -1, width))
        return summed if self.stretch is None else torch.einsum("nlc,lm->nmc", summed, self.stretch.to(summed.dtype))


class Attention(nn.Module):
    """Attention between pooled queries, keys and values, with relative positions and a shortcut of the queries."""

    tap = "offsets"

    def __init__(self, inputs: int, outputs: int, heads: int, grid: Grid, known: Grid, query_stride: Triple, key_stride: Triple):
        super().__init__()
        self.heads, self.width = heads, outputs // heads
        self.grid, self.query_grid, self.key_grid = grid, grid.pooled(query_stride), grid.pooled(key_stride)
        self.qkv = nn.Linear(inputs, 3 * outputs)
        self.project = nn.Sequential(nn.Linear(outputs, outputs))
        self.pool_q = Pool(self.width, query_stride)
        self.pool_k = Pool(self.width, key_stride)
        self.pool_v = Pool(self.width, key_stride)
        space = 2 * max(known.pooled(query_stride).rows, known.pooled(key_stride).rows) - 1
        self.rel_pos_h = nn.Parameter(torch.zeros(space, self.width))
        self.rel_pos_w = nn.Parameter(torch.zeros(space, self.width))
        self.rel_pos_t = nn.Parameter(torch.zeros(2 * known.frames - 1, self.width))
        tables = (self.rel_pos_t, self.rel_pos_h, self.rel_pos_w)
        self.distances = nn.ModuleList(
            Distances(q, k, len(table)) for q, k, table in zip(self.query_grid, self.key_grid, tables, strict=True)
        )
        self.offsets = Offsets()

    def forward(self, x: Tensor, present: Tensor | None, present_after: Tensor | None) -> Tensor:
        """Map N×(1 + tokens)×inputs to N×(1 + fewer)×outputs."""
        records, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(records, tokens, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        q, k, v = (pool(part, self.grid, present) for pool, part in ((self.pool_q, q), (self.pool_k, k), (self.pool_v, v)))
        scores = (q * self.width**-0.5) @ k.transpose(-2, -1)
        scores = scores + F.pad(self._relative(q), (1, 0, 1, 0))
        if present is not None:
            scores = scores.masked_fill(~self._keys(present)[:, None, None], -torch.inf)
        mixed = scores.softmax(-1) @ v
        mixed = mixed + F.pad(q[:, :, 1:], (0, 0, 1, 0))
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(records, -1, self.heads * self.width))
        return out if present_after is None else out * with_class(present_after)

    def of_class(self, x: Tensor, present: Tensor | None) -> Tensor:
        """The class token's output alone, N×1×outputs: exactly the first of `forward`, which has no position and is not pooled."""
        records = x.shape[0]
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        q, k, v = (
            F.linear(part, weight, bias).view(records, -1, self.heads, self.width).transpose(1, 2)
            for part, weight, bias in zip((x[:, :1], x, x), weights, biases, strict=True)
        )
        q = self.pool_q.norm_act(q)
        k, v = (pool(part, self.grid, present) for pool, part in ((self.pool_k, k), (self.pool_v, v)))
        scores = (q * self.width**-0.5) @ k.transpose(-2, -1)
        if present is not None:
            scores = scores.masked_fill(~self._keys(present)[:, None, None], -torch.inf)
        out: Tensor = self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(records, 1, self.heads * self.width))
        return out

    def _keys(self, present: Tensor) -> Tensor:
        """Which pooled keys are there, the class token first."""
        return F.pad(pooled_presence(present, _POOL, self.pool_k.stride).flatten(1), (1, 0), value=True)

    def _relative(self, q: Tensor) -> Tensor:
        grid = self.query_grid
        queries = q[:, :, 1:].reshape(q.shape[0], self.heads, *grid, self.width)
        tables = (self.rel_pos_t, self.rel_pos_h, self.rel_pos_w)
        frames, rows, columns = (distance.rows(table) for distance, table in zip(self._distances(), tables, strict=True))
        by_frame, by_row, by_column = self.offsets(queries, frames, rows, columns).split(list(self.key_grid), -1)
        scores = by_frame[..., :, None, None] + by_row[..., None, :, None] + by_column[..., None, None, :]
        return scores.reshape(q.shape[0], self.heads, grid.total, self.key_grid.total)

    def _distances(self) -> list[Distances]:
        return [module for module in self.distances if isinstance(module, Distances)]

    def record_gradients(self, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Tensor]:
        """Gradients of the tables for each record: those of the rows that queries looked up, added up by distance."""
        frames, rows, columns = output_gradient.split(list(self.key_grid), -1)
        looked_up = {
            "rel_pos_t": torch.einsum("nathwk,nathwc->ntkc", frames, inputs),
            "rel_pos_h": torch.einsum("nathwk,nathwc->nhkc", rows, inputs),
            "rel_pos_w": torch.einsum("nathwk,nathwc->nwkc", columns, inputs),
        }
        return {
            name: distance.gradients(gradient, getattr(self, name))
            for (name, gradient), distance in zip(looked_up.items(), self._distances(), strict=True)
        }


def with_class(present: Tensor) -> Tensor:
    """1 for each token that is there, the class token before them, and 0 for others: N×(1 + tokens)×1."""
    return F.pad(present.flatten(1), (1, 0), value=True)[..., None]
