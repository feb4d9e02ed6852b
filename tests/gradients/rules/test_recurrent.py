"""Recurrent layers: any number of layers, either way, records first or second."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfmask.gradients.rules.recurrent import recurrent

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact

KINDS: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "rnn": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, {}),
    "projected lstm": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
}


def made(name: str, **options: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    kind, more = KINDS[name]
    return kind(4, 5, **more, **options).double()


class Runs(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1))
        last = last if isinstance(last, Tensor) else torch.cat(last, 2)
        return torch.cat([(out if self.layer.batch_first else out.transpose(0, 1)).flatten(1), last.transpose(0, 1).flatten(1)], 1)


@pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_any_recurrent_layer(name: str, options: dict[str, Any], batch_first: bool, units: list[int] | None) -> None:
    layer = made(name, batch_first=batch_first, **options)
    torch.manual_seed(1)
    assert_exact(Runs(layer), torch.randn(4, 3, 4, dtype=torch.float64), units)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_out_is_what_torch_computes(name: str, batch_first: bool) -> None:
    layer = made(name, batch_first=batch_first, num_layers=2, bidirectional=True)
    x = torch.randn(3, 3, 4, dtype=torch.float64)
    (_, last) = layer(x)
    for states in (None, last):
        expected, found = layer(x, states), recurrent(layer, x, states)
        for a, b in zip((found[0], *found[1:]), (expected[0], *expected[1:]), strict=True):
            both = [(a, b)] if isinstance(a, Tensor) else list(zip(a, b, strict=True))
            assert all(torch.allclose(one, other, atol=1e-12) for one, other in both)
