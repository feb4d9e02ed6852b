"""Garbage in the place of absent tokens: a network to which they are nothing does not notice.

A token that is zeroed and kept is not nothing: it is a key like any other, with the biases it met on its way, and every statistic over
tokens counts it. So large numbers are added to absent tokens wherever a block computes anything of them, behind each of its layers. Which
are absent is worked out here, by counting; not by the network under trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.models.mvit import Block, MViT
from halfmask.models.mvit_attention import Pool

_LOUD = 100.0


@contextmanager
def garbage(model: MViT, tokens: Tensor, absent: bool = True, seed: int = 0) -> Iterator[None]:
    """While this lasts, the network computes with garbage at absent tokens (or, to see that it would be noticed, at present ones).

    Args:
        tokens: N×T×H×W, those that are present in the batch that the network will be given.
    """
    spoil = _Spoiler(absent, seed)
    try:
        spoil.after(tokens, model.conv_proj)
        present = tokens
        for block in model.blocks:
            assert isinstance(block, Block)
            after = _any(present, block.skip_kernel, block.stride)
            attention = block.attn
            spoil.before(block, present)
            spoil.after(present, block.norm1, attention.qkv, block.project)
            for pool in (attention.pool_k, attention.pool_v):
                spoil.pool(pool, _any(present, pool.pool.kernel_size, pool.stride))  # type: ignore[arg-type]
            spoil.pool(attention.pool_q, after)
            spoil.after(after, attention.project, attention, block.norm2, block.mlp)
            present = after
        yield
    finally:
        spoil.stop()


def _any(present: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Whether any token is present in each centred window: how many are."""
    ones = torch.ones(1, 1, *kernel)
    return F.conv3d(present[:, None].float(), ones, None, stride, [size // 2 for size in kernel])[:, 0] > 0.5


class _Spoiler:
    """Adds garbage to what layers give, or are given."""

    def __init__(self, absent: bool, seed: int):
        self.absent, self.generator = absent, torch.Generator().manual_seed(seed)
        self.handles: list[Any] = []

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()

    def before(self, layer: nn.Module, present: Tensor) -> None:
        spoilt = self._spoilt(present)
        self.handles.append(layer.register_forward_pre_hook(lambda _, given: (spoilt(given[0]), *given[1:])))

    def after(self, present: Tensor, *layers: nn.Module | None) -> None:
        spoilt = self._spoilt(present)
        for layer in layers:
            if layer is not None:
                self.handles.append(layer.register_forward_hook(lambda *call: spoilt(call[2])))

    def pool(self, pool: Pool, present: Tensor) -> None:
        self.after(present, pool.pool, pool)

    def _spoilt(self, present: Tensor) -> Callable[[Tensor], Tensor]:
        chosen = ~present if self.absent else present

        def add(value: Tensor) -> Tensor:
            noise = _LOUD * torch.randn(value.shape, generator=self.generator, dtype=value.dtype)
            return value + noise * _laid_out(chosen, value)

        return add


def _laid_out(chosen: Tensor, value: Tensor) -> Tensor:
    """Which numbers of a layer's output belong to the chosen tokens: of N×(1 + tokens)×width, with heads between, or of a grid."""
    if value.dim() == 5:
        return chosen.repeat_interleave(len(value) // len(chosen), 0)[:, None]
    listed = F.pad(chosen.flatten(1), (1, 0), value=False)[..., None]
    return listed if value.dim() == 3 else listed[:, None]
