"""Embeddings: rows looked up once or often, padded, tied to a linear layer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from halfmask.errors import HalfmaskError

sys.path.insert(0, str(Path(__file__).parent))
from exactness import assert_exact


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 30),
    width=st.integers(1, 6),
    tokens=st.lists(st.integers(1, 4), max_size=2),
    padded=st.booleans(),
    units=st.sampled_from([None, [1, 1, 0, 1]]),
)
def test_any_embedding(rows: int, width: int, tokens: list[int], padded: bool, units: list[int] | None) -> None:
    torch.manual_seed(rows)
    layer = nn.Embedding(rows, width, padding_idx=0 if padded else None, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.normal_()
    assert_exact(layer, torch.randint(0, rows, (4, *tokens)), units)


class Tied(nn.Module):
    """Words in and words out by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 5)
        self.out = nn.Linear(5, 9, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.words(x)))


def test_a_table_tied_to_a_linear_layer() -> None:
    torch.manual_seed(0)
    assert_exact(Tied().double(), torch.randint(0, 9, (4, 6)))


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_embeddings_that_look_at_other_records_are_refused(option: dict) -> None:
    with pytest.raises(HalfmaskError, match="neither can be trained privately"):
        assert_exact(nn.Embedding(5, 2, **option), torch.randint(0, 5, (3, 4)))


@pytest.mark.parametrize("units", [None, [1, 1, 0, 1]])
@pytest.mark.parametrize("padded", [None, 0, -1])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_words(mode: str, padded: int | None, units: list[int] | None) -> None:
    torch.manual_seed(0)
    layer = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padded, dtype=torch.float64)
    assert_exact(layer, torch.randint(0, 7, (4, 5)), units)


class Offsets(nn.Module):
    """Bags one after another."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(7, 3, mode=mode, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(x.flatten(), torch.arange(len(x)) * x.shape[1])


class Lengths(nn.Module):
    """Bags of several lengths, one after another."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(7, 3, mode=mode, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        lengths = x[:, 0] % 3 + 1
        keep = torch.arange(x.shape[1]) < lengths[:, None]
        return self.bag(x[keep], lengths.cumsum(0) - lengths)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_bags_one_after_another_are_exact_by_themselves(mode: str) -> None:
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="embedding_bag of layer.bag.weight: it is differentiated by itself"):
        assert_exact(Offsets(mode), torch.randint(0, 7, (4, 5)), may_be_slow=True)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_bags_of_several_lengths_are_exact_one_record_at_a_time(mode: str) -> None:
    """Words are picked from all records at once: whose is whose cannot be told by looking at the layer."""
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="picks records by a tensor"):
        assert_exact(Lengths(mode), torch.randint(0, 7, (4, 5)), may_be_slow=True)


def test_bags_that_look_at_other_records_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="neither can be trained privately"):
        assert_exact(nn.EmbeddingBag(5, 2, max_norm=1.0), torch.randint(0, 5, (3, 4)))
