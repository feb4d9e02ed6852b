"""Convolutions of any dimension, groups, stride, dilation and padding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.rules.convolved import Convolved

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_convolution(data: st.DataObject) -> None:
    axes = data.draw(st.sampled_from([1, 2, 3]))
    groups = data.draw(st.sampled_from([1, 2, 3]))
    inputs, outputs = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, stride, dilation = data.draw(each), data.draw(each), data.draw(each)
    mode = data.draw(st.sampled_from(["zeros", "reflect", "circular", "replicate"]))
    padding = data.draw(st.one_of(st.just("same"), st.just("valid"), st.lists(st.integers(0, 2), min_size=axes, max_size=axes).map(tuple)))
    if padding == "same":
        stride = [1] * axes
    size = [d * (k - 1) + 1 + extra for d, k, extra in zip(dilation, kernel, data.draw(each), strict=True)]
    size = [max(s, 5) for s in size]
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    layer = KINDS[axes](inputs, outputs, kernel, stride, padding, dilation, groups, data.draw(st.booleans()), mode, dtype=dtype)
    assert_exact(layer, torch.randn(4, inputs, *size, dtype=dtype), data.draw(st.sampled_from([None, [2, 0, 2, 1]])))


TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_transposed_convolution(data: st.DataObject) -> None:
    axes = data.draw(st.sampled_from([1, 2, 3]))
    groups = data.draw(st.sampled_from([1, 2, 3]))
    inputs, outputs = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    each = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, stride, dilation = data.draw(each), data.draw(each), data.draw(each)
    padding = data.draw(st.lists(st.integers(0, 1), min_size=axes, max_size=axes))
    more = [data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    torch.manual_seed(data.draw(st.integers(0, 99)))
    layer = TRANSPOSED[axes](inputs, outputs, kernel, stride, padding, more, groups, data.draw(st.booleans()), dilation).double()
    size = [data.draw(st.integers(3, 5)) for _ in range(axes)]
    assert_exact(layer, torch.randn(4, inputs, *size, dtype=torch.float64), data.draw(st.sampled_from([None, [2, 0, 2, 1]])))


class Standardised(nn.Conv2d):
    """A subclass that computes something else with the weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight / weight.std((1, 2, 3), keepdim=True), self.bias)


class Turned(nn.ConvTranspose1d):
    """A subclass with the channels last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.conv_transpose1d(x.transpose(1, 2), self.weight, self.bias, self.stride, self.padding)
        return y.transpose(1, 2)


@pytest.mark.parametrize("units", [None, [1, 0, 1, 1]])
def test_subclasses_that_compute_something_else(units: list[int] | None) -> None:
    torch.manual_seed(0)
    layer = Standardised(4, 6, 3, padding="same", groups=2).double()
    assert_exact(layer, torch.randn(4, 4, 5, 6, dtype=torch.float64), units)
    assert_exact(Turned(3, 2, 3, 2, 1).double(), torch.randn(4, 5, 3, dtype=torch.float64), units)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_wide_layers_on_few_pixels_wait_as_factors(axes: int) -> None:
    torch.manual_seed(axes)
    layer = KINDS[axes](24, 40, 3, padding=1, dtype=torch.float64)
    x = torch.randn(3, 24, *[2] * axes, dtype=torch.float64)
    assert Convolved(x, layer(x), layer, (1,) * axes).ghost
    assert_exact(layer, x)


def test_a_frozen_weight_under_a_trained_bias() -> None:
    layer = nn.Conv2d(2, 3, 3)
    layer.weight.requires_grad = False
    assert_exact(layer, torch.randn(4, 2, 6, 5))


class Windows(nn.Module):
    """Folds windows of a record into the batch, as windowed attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        windows = x.unfold(2, 4, 4).permute(0, 2, 1, 4, 3).reshape(-1, 2, 4, x.shape[3])
        return self.conv(windows).view(len(x), -1)


def test_windows_folded_into_the_batch() -> None:
    assert_exact(Windows(), torch.randn(3, 2, 8, 5))


class Folded(nn.Module):
    """Two pictures a record: folded into the batch, or one after the other through the same layer."""

    def __init__(self, layer: nn.Conv2d, folded: bool):
        super().__init__()
        self.conv, self.folded = layer, folded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.folded:
            y = self.conv(x.flatten(0, 1)).unflatten(0, (-1, 2))
            return y[:, 0].cos() + 2 * y[:, 1].sin()
        return self.conv(x[:, 0]).cos() + 2 * self.conv(x[:, 1]).sin()


# What waits as factors, what is formed from patches, what as groups of one convolution, and patches of a few channels only.
FORMS = {"factors": (24, 40, 4, 3, False), "patches": (3, 4, 10, 3, False), "groups": (5, 4, 32, 3, False)}
FORMS |= {"large kernel": (3, 4, 32, 5, False), "colours last": (3, 4, 32, 3, True)}


@pytest.mark.parametrize("units", [None, [2, 0, 2, 1], [0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_several_pictures_of_a_record_in_every_form(form: str, folded: bool, units: list[int] | None) -> None:
    torch.manual_seed(0)
    inputs, outputs, side, kernel, last = FORMS[form]
    layer = nn.Conv2d(inputs, outputs, kernel, 2, 1, dtype=torch.float64)
    x = torch.randn(len(units or [0] * 4), 2, inputs, side, side, dtype=torch.float64)
    if last:
        layer = layer.to(memory_format=torch.channels_last)
        x = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, (-1, 2))
    assert_exact(Folded(layer, folded), x, units)


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_that_is_not_finite_leaves_with_its_record(form: str) -> None:
    torch.manual_seed(0)
    inputs, outputs, side, kernel, _ = FORMS[form]
    model = Folded(nn.Conv2d(inputs, outputs, kernel, 2, 1, dtype=torch.float64), True)
    x = torch.randn(4, 2, inputs, side, side, dtype=torch.float64)
    x[1, 0, 0, 0, 0] = torch.nan

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).flatten(1).square().sum(1)

    whole = ClippingEngine(model).clipped_sum(loss, x, 1.0)
    others = ClippingEngine(model).clipped_sum(loss, x[[0, 2, 3]], 1.0)
    assert whole.nonfinite == 1 and torch.allclose(whole.flat(), others.flat(), rtol=1e-9, atol=1e-12)
