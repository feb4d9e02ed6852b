"""Linear layers, with any number of tokens, reused, tied and folded."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact


@settings(max_examples=50, deadline=None)
@given(
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 40),
    tokens=st.lists(st.integers(1, 5), max_size=2),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    units=st.sampled_from([None, [5, 5, 3, 5], [0, 1, 1, 0]]),
)
def test_any_linear(inputs: int, outputs: int, tokens: list[int], bias: bool, dtype: torch.dtype, units: list[int] | None) -> None:
    torch.manual_seed(inputs + outputs)
    assert_exact(nn.Linear(inputs, outputs, bias, dtype=dtype), torch.randn(4, *tokens, inputs, dtype=dtype), units)


class Reused(nn.Module):
    """One layer used three times, with different numbers of tokens, and its weight tied to another layer's."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.tied = nn.Linear(width, width)
        self.tied.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        long = torch.tanh(self.layer(x))
        short = self.layer(long.mean(1))
        return self.tied(torch.tanh(short)) + self.layer(short)


@settings(max_examples=12, deadline=None)
@given(width=st.integers(2, 40), tokens=st.integers(1, 4))
def test_reused_and_tied_layers(width: int, tokens: int) -> None:
    torch.manual_seed(width)
    assert_exact(Reused(width).double(), torch.randn(4, tokens, width, dtype=torch.float64))
