"""MViTv2 (Li et al., CVPR 2022): a multiscale transformer for video, that can be shown a part of a clip's tokens alone.

Tokens are overlapping patches in space and time. Every block pools queries, keys and values by small depthwise convolutions, attends with
relative positions, and from stage to stage there are fewer tokens of more channels. Parameter names and shapes are those of the public
Kinetics checkpoints, which load as they are.

**Subsets of tokens.** Where `tokens` says which are present, an absent token is nothing, not a zero that a bias has touched: it is left
out of every maximum, zero where a (bias-free) pooling convolution would read it, masked as a key, and never read as a query. Normalisation
is by token, so no statistic sees it either. A token of a block's output is present if any that its skip connection pools is, a pooled key
if any that its convolution reads is. A full set is exactly the ordinary network. The class token is always there.

Nothing in the forward pass depends on another record of the batch: there is no batch normalisation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.models.mvit_attention import EPSILON, Attention, Grid, Triple, centred, pooled_presence, with_class

# The overlapping patch of a token: frames, rows, columns.
PATCH: Triple = (3, 7, 7)
PATCH_STRIDE: Triple = (2, 4, 4)
# How many of the last blocks are trained in part: their normalisations, with the head.
LAST_BLOCKS = 2


@dataclass(frozen=True)
class MViTShape:
    """The sizes that make one MViT differ from another.

    Attributes:
        frames, side: what a clip is: so many square frames.
        widths, heads, depths: of each stage. The first block of every stage but the first takes the step to it.
        first_key_stride: by how much keys are pooled in space in the first stage; half as much in each that follows.
    """

    frames: int
    side: int
    widths: tuple[int, ...]
    heads: tuple[int, ...]
    depths: tuple[int, ...]
    first_key_stride: int


SHAPES: dict[str, MViTShape] = {
    # `nano` is ours, sized for a processor.
    "nano": MViTShape(8, 96, (24, 48, 96, 192), (1, 2, 4, 8), (1, 2, 3, 2), 8),
    "s": MViTShape(16, 224, (96, 192, 384, 768), (1, 2, 4, 8), (1, 2, 11, 2), 8),
}


class ClassToken(nn.Module):
    """Puts the class token before the others."""

    def __init__(self, width: int):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(width))

    def forward(self, tokens: Tensor) -> Tensor:  # noqa: D102
        return torch.cat([self.class_token.expand(tokens.shape[0], 1, -1), tokens], 1)

    def record_gradients(self, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Tensor]:
        """That of the first token of each record."""
        return {"class_token": output_gradient[:, 0]}


class Block(nn.Module):
    """Attention and a feed-forward network, each beside a shortcut; the step to the next stage where widths differ."""

    def __init__(self, inputs: int, outputs: int, heads: int, grid: Grid, known: Grid, query_stride: Triple, key_stride: Triple):
        super().__init__()
        self.grid, self.stride = grid, query_stride
        self.skip_kernel: Triple = tuple(step + 1 if step > 1 else step for step in query_stride)  # type: ignore[assignment]
        self.norm1 = nn.LayerNorm(inputs, eps=EPSILON)
        self.norm2 = nn.LayerNorm(outputs, eps=EPSILON)
        self.attn = Attention(inputs, outputs, heads, grid, known, query_stride, key_stride)
        # Counted as in public checkpoints, where the second and the last are a GELU and dropouts.
        self.mlp = nn.Sequential(nn.Linear(outputs, 4 * outputs), nn.GELU(), nn.Identity(), nn.Linear(4 * outputs, outputs))
        self.project = nn.Linear(inputs, outputs) if inputs != outputs else None

    def forward(self, x: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor | None]:  # noqa: D102
        after = present
        if present is not None and self.stride != (1, 1, 1):
            after = pooled_presence(present, self.skip_kernel, self.stride)
        normed = self.norm1(x)
        attended = self.attn(normed, present, after)
        x = self._skip(x if self.project is None else self.project(normed), present, after) + attended
        x = x + self.mlp(self.norm2(x))
        return (x if after is None else x * with_class(after)), after

    def of_class(self, x: Tensor, present: Tensor | None) -> Tensor:
        """The class token alone after a block that takes no step: N×outputs."""
        token = x[:, :1] + self.attn.of_class(self.norm1(x), present)
        found: Tensor = (token + self.mlp(self.norm2(token)))[:, 0]
        return found

    def _skip(self, x: Tensor, present: Tensor | None, after: Tensor | None) -> Tensor:
        if self.stride == (1, 1, 1):
            return x
        token, rest = x[:, :1], x[:, 1:].transpose(1, 2).reshape(x.shape[0], x.shape[2], *self.grid)
        if present is not None:
            rest = rest.masked_fill(~present[:, None], -torch.inf)
        rest = F.max_pool3d(rest, self.skip_kernel, self.stride, centred(self.skip_kernel))
        if after is not None:
            rest = rest.masked_fill(~after[:, None], 0.0)
        return torch.cat([token, rest.flatten(2).transpose(1, 2)], 1)


class MViT(nn.Module):
    """Clips in, one score for each class out.

    Args:
        size: one of `SHAPES`.
        classes: how many.
        frames, side: of a clip, where they are not those of the size: its tables of relative positions are stretched to these.
        joints: how many joints each token before the last blocks is asked about, in pre-training alone: how likely it is that a joint lies
            where the token does, and where in it. How people move is learnt from that much sooner than from the names of actions.
    """

    def __init__(self, size: str = "nano", classes: int = 400, frames: int | None = None, side: int | None = None, joints: int = 0):
        super().__init__()
        if size not in SHAPES:
            raise unknown_name("MViT size", size, SHAPES)
        shape = SHAPES[size]
        self.shape, self.frames, self.side = shape, frames or shape.frames, side or shape.side
        if self.frames < 1 or self.side < 32:
            raise HalfmaskError(f"clips of {self.frames} frames of {self.side}×{self.side}: expected at least 1 frame of 32×32")
        self.conv_proj = nn.Conv3d(3, shape.widths[0], PATCH, PATCH_STRIDE, centred(PATCH))
        self.pos_encoding = ClassToken(shape.widths[0])
        self.grid = Grid(self.frames, self.side, self.side).pooled(PATCH_STRIDE)
        grid, known = self.grid, Grid(shape.frames, shape.side, shape.side).pooled(PATCH_STRIDE)
        width, key_stride = shape.widths[0], shape.first_key_stride
        widths: list[int] = []
        blocks: list[nn.Module] = []
        for stage, (outputs, heads, depth) in enumerate(zip(shape.widths, shape.heads, shape.depths, strict=True)):
            if stage:
                key_stride = max(1, key_stride // 2)
            for number in range(depth):
                step = 2 if stage and not number else 1
                widths.append(width)
                blocks.append(Block(width, outputs, heads, grid, known, (1, step, step), (1, key_stride, key_stride)))
                grid, known, width = grid.pooled((1, step, step)), known.pooled((1, step, step)), outputs
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Sequential(nn.Identity(), nn.Linear(width, classes))
        self.joints = nn.Linear(widths[-LAST_BLOCKS], PATCH_STRIDE[0] * joints * 3) if joints else None
        self.apply(_begin)
        for block in self.blocks:
            assert isinstance(block, Block)
            for table in (block.attn.rel_pos_h, block.attn.rel_pos_w, block.attn.rel_pos_t):
                nn.init.trunc_normal_(table, std=0.02)
        nn.init.trunc_normal_(self.pos_encoding.class_token, std=0.02)

    def forward(self, clips: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Scores of N×3×T×H×W clips; of the tokens that are present alone (N×t×h×w), where they are given."""
        return self.upper(self.lower(clips, tokens))

    def lower(self, clips: Tensor, tokens: Tensor | None = None) -> Tensor:
        """All but the last blocks: N×(1 + tokens)×(width + 1), the last number of each telling whether the token is present."""
        x, present = self.embed(clips), tokens
        if present is not None:
            x = x * with_class(present)
        for block in self.blocks[:-LAST_BLOCKS]:
            x, present = block(x, present)
        there = x.new_ones(*x.shape[:2], 1) if present is None else with_class(present).to(x.dtype)
        return torch.cat([x, there], -1)

    def upper(self, features: Tensor) -> Tensor:
        """The last blocks and the head, of what `lower` gives."""
        scores: Tensor = self.head(self.vector(features))
        return scores

    def vector(self, features: Tensor) -> Tensor:
        """What the head is given: the normalised class token."""
        x, there = features[..., :-1], features[:, 1:, -1]
        last = self.blocks[-LAST_BLOCKS]
        assert isinstance(last, Block)
        present = there.reshape(x.shape[0], *last.grid) > 0.5
        *others, final = self.blocks[-LAST_BLOCKS:]
        for block in others:
            x, present = block(x, present)
        assert isinstance(final, Block)
        # The head looks at the class token alone. What the others would become is computed only where weights that make it are trained: it
        # has no gradient either, but a weight that is trained has to be seen.
        token = final(x, present)[0][:, 0] if final.attn.qkv.weight.requires_grad else final.of_class(x, present)
        normed: Tensor = self.norm(token)
        return normed

    def embed(self, clips: Tensor) -> Tensor:
        """Tokens of all patches, the class token first."""
        if clips.shape[1:] != (3, self.frames, self.side, self.side):
            raise HalfmaskError(
                f"a batch of clips is {tuple(clips.shape)}: expected N×3×{self.frames}×{self.side}×{self.side}, colours first"
            )
        embedded: Tensor = self.pos_encoding(self.conv_proj(clips).flatten(2).transpose(1, 2))
        return embedded


def last_normalisations(model: MViT) -> list[nn.Parameter]:
    """The normalisation layers of the last two blocks, the last one of all, and the head: about 50,000 numbers of `s`."""
    norms = [module for block in model.blocks[-LAST_BLOCKS:] for module in block.modules() if isinstance(module, nn.LayerNorm)]
    return [parameter for module in (*norms, model.norm, model.head) for parameter in module.parameters()]


def _begin(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
