"""Normalisations of one record, or by fixed statistics, and PReLU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
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


@settings(max_examples=15, deadline=None)
@given(shape=st.lists(st.integers(2, 5), min_size=1, max_size=2), tokens=st.lists(st.integers(1, 4), max_size=2))
def test_any_rms_norm(shape: list[int], tokens: list[int]) -> None:
    torch.manual_seed(len(tokens))
    assert_exact(nn.RMSNorm(shape, dtype=torch.float64), torch.randn(4, *tokens, *shape, dtype=torch.float64), [1, 0, 0, 2])


INSTANCE = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
BATCH = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


@pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kept", [False, True])
def test_any_instance_norm(axes: int, units: list[int] | None, kept: bool) -> None:
    torch.manual_seed(axes)
    layer = INSTANCE[axes](3, affine=True, track_running_stats=kept).double().eval()
    if kept:
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    assert_exact(layer, torch.randn(4, 3, *[4] * axes, dtype=torch.float64), units)


@pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
@pytest.mark.parametrize("axes", [0, 1, 2, 3])
def test_any_batch_norm_with_fixed_statistics(axes: int, units: list[int] | None) -> None:
    torch.manual_seed(axes)
    layer = BATCH[max(axes, 1)](3).double().eval()
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    assert_exact(layer, torch.randn(4, 3, *[3] * axes, dtype=torch.float64), units)


@pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
@pytest.mark.parametrize("slopes", [1, 3])
@pytest.mark.parametrize("axes", [0, 1, 2])
def test_any_prelu(slopes: int, axes: int, units: list[int] | None) -> None:
    torch.manual_seed(axes)
    assert_exact(nn.PReLU(slopes).double(), torch.randn(4, 3, *[3] * axes, dtype=torch.float64), units)


class ChannelsFirst(nn.LayerNorm):
    """A subclass that normalises the second dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Groups(nn.GroupNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(1, 2)) + self.bias


@pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
def test_subclasses_with_another_layout(units: list[int] | None) -> None:
    torch.manual_seed(0)
    assert_exact(ChannelsFirst(5).double(), torch.randn(4, 5, 3, 2, dtype=torch.float64), units)
    assert_exact(Groups(2, 6).double(), torch.randn(4, 6, 6, dtype=torch.float64), units)
