"""LayerNorm and GroupNorm."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact


@settings(max_examples=30, deadline=None)
@given(shape=st.lists(st.integers(2, 5), min_size=1, max_size=2), tokens=st.lists(st.integers(1, 4), max_size=2), bias=st.booleans())
def test_any_layer_norm(shape: list[int], tokens: list[int], bias: bool) -> None:
    torch.manual_seed(len(tokens))
    assert_exact(nn.LayerNorm(shape, bias=bias, dtype=torch.float64), torch.randn(3, *tokens, *shape, dtype=torch.float64), None)


@settings(max_examples=30, deadline=None)
@given(groups=st.integers(1, 3), each=st.integers(2, 3), pixels=st.lists(st.integers(1, 4), max_size=3))
def test_any_group_norm(groups: int, each: int, pixels: list[int]) -> None:
    torch.manual_seed(each)
    layer = nn.GroupNorm(groups, groups * each, dtype=torch.float64)
    assert_exact(layer, torch.randn(4, groups * each, *pixels, dtype=torch.float64), [1, 0, 0, 2])
