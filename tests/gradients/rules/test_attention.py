"""Multi-head attention and the transformer layers made of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.rules.attention import multihead_attention

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact

UNITS = pytest.mark.parametrize("units", [None, [1, 0, 0, 2]])
FIRST = pytest.mark.parametrize("batch_first", [True, False])


class Attends(nn.Module):
    """Tokens (records × 5 × 8) that look at each other, or at a longer or narrower copy of themselves."""

    def __init__(self, looks: str, **options: Any) -> None:
        super().__init__()
        self.looks = looks
        if looks == "narrow":
            options |= {"kdim": 4, "vdim": 6}
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x: Tensor) -> Tensor:
        if not self.attention.batch_first:
            x = x.transpose(0, 1)
        if self.looks == "self":
            given = (x, x, x)
        elif self.looks == "memory":
            memory = torch.cat([x, x.sin()], 1 if self.attention.batch_first else 0)
            given = (x, memory, memory)
        elif self.looks == "apart":
            given = (x, x.sin(), x.cos())
        else:
            given = (x, x[..., :4], x[..., :6])
        out, weights = self.attention(*given)
        out = out if self.attention.batch_first else out.transpose(0, 1)
        return torch.cat([out.flatten(1), weights.flatten(1)], 1)


@UNITS
@FIRST
@pytest.mark.parametrize("looks", ["self", "memory", "apart", "narrow"])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_any_attention(looks: str, options: dict[str, Any], batch_first: bool, units: list[int] | None) -> None:
    torch.manual_seed(0)
    layer = Attends(looks, batch_first=batch_first, **options).double().eval()
    assert_exact(layer, torch.randn(4, 5, 8, dtype=torch.float64), units)


@FIRST
@pytest.mark.parametrize(
    "kind, padding",
    [("none", "none"), ("none", "bool"), ("none", "float"), ("bool", "none"), ("bool", "bool"), ("float", "float"), ("each head", "float")],
)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
def test_what_is_written_out_is_what_torch_computes(
    batch_first: bool, kind: str, padding: str, need_weights: bool, more: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first, **more).double()
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    x = x if batch_first else x.transpose(0, 1)
    late = torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {"none": None, "bool": late, "float": torch.randn(5, 5).double(), "each head": torch.randn(6, 5, 5).double()}
    absent = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)
    paddings = {"none": None, "bool": absent, "float": absent.double() * -3}
    given = {"key_padding_mask": paddings[padding], "attn_mask": masks[kind], "need_weights": need_weights}
    for average in (True, False):
        expected = module(x, x, x, average_attn_weights=average, **given)
        found = multihead_attention(module, x, x, x, average_attn_weights=average, **given)
        assert torch.allclose(found[0], expected[0], atol=1e-12)
        assert (found[1] is None) == (expected[1] is None) == (not need_weights)
        if need_weights:
            assert torch.allclose(found[1], expected[1], atol=1e-12)


@UNITS
@FIRST
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_any_transformer_layer(batch_first: bool, norm_first: bool, training: bool, units: list[int] | None) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=batch_first, norm_first=norm_first)
            self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.encoder(x) if batch_first else self.encoder(x.transpose(0, 1)).transpose(0, 1)

    torch.manual_seed(0)
    assert_exact(Turned().double().train(training), torch.randn(4, 4, 8, dtype=torch.float64), units)


@UNITS
def test_a_decoder_layer(units: list[int] | None) -> None:
    class Decodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, x.sin(), tgt_mask=nn.Transformer.generate_square_subsequent_mask(5).double(), tgt_is_causal=True)

    torch.manual_seed(0)
    assert_exact(Decodes().double(), torch.randn(4, 5, 8, dtype=torch.float64), units)


def test_the_module_and_the_switch_are_as_they_were() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).eval()
    switch = torch.backends.mha.get_fastpath_enabled()
    ClippingEngine(model).clipped_sum(lambda m, b: m(b).flatten(1).sum(1), torch.randn(3, 5, 8), 1.0)
    assert "forward" not in vars(model.self_attn) and torch.backends.mha.get_fastpath_enabled() == switch
