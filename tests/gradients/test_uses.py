"""Parameters without a layer of their own, however a model uses them: exact and on the fast path."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from halfmask.gradients.check import check_model
from halfmask.gradients.engine import ClippingEngine

Batch = dict[str, Tensor]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return (torch.tanh(model(batch["x"])) * batch["w"]).flatten(1).sum(1)


def batch_for(model: nn.Module, *shape: int, records: int = 4) -> Batch:
    torch.manual_seed(1)
    x = torch.randn(records, *shape, dtype=torch.float64)
    with torch.no_grad():
        return {"x": x, "w": torch.randn_like(model(x))}


class Uses(nn.Module):
    """One parameter and what is done with it and with tokens (records × 4 × 6)."""

    def __init__(self, shape: tuple[int, ...], use: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.own = nn.Parameter(torch.randn(shape))
        self.before, self.after = nn.Linear(6, 6), nn.LazyLinear(3)
        self.use = use
        self.register_buffer("index", torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [0, 2, 1, 0]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.use(self.own, torch.tanh(self.before(x))))


@functools.cache
def kept_outside() -> Tensor:
    return torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [0, 2, 1, 0]])


@functools.cache
def numbers_kept_outside() -> Tensor:
    return torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 6)


def attention_bias(own: Tensor, x: Tensor) -> Tensor:
    heads = x.view(len(x), 4, 2, 3).transpose(1, 2)
    bias = own[kept_outside().view(-1)].view(4, 4, 2).permute(2, 0, 1).unsqueeze(0)
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias).transpose(1, 2).flatten(2)


def in_place(own: Tensor, x: Tensor) -> Tensor:
    y = x * 1
    y += own
    return y


USES: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "a layer scale": ((6,), lambda p, x: x * p),
    "a scale on the left": ((6,), lambda p, x: p * x),
    "a number": ((), lambda p, x: x * p.exp() + p),
    "log-variances": ((4,), lambda p, x: x.mean(2) * torch.exp(-p) + p),
    "positions": ((1, 4, 6), lambda p, x: x + p),
    "positions without a leading one": ((4, 6), lambda p, x: x + p),
    "positions cut": ((1, 9, 6), lambda p, x: x + p[:, 2:6]),
    "positions resized": (
        (1, 7, 6),
        lambda p, x: x + F.interpolate(p.transpose(1, 2), size=4, mode="linear").transpose(1, 2),
    ),
    "positions written out for each record": ((1, 4, 6), lambda p, x: x + p.expand(len(x), -1, -1).contiguous()),
    "a class token": ((1, 1, 6), lambda p, x: torch.cat([p.expand(len(x), -1, -1), x], 1)),
    "a class token repeated by hand": ((1, 1, 6), lambda p, x: torch.cat([p.repeat(len(x), 1, 1), x], 1)),
    "a flat class token": ((6,), lambda p, x: torch.cat([p.view(1, 1, 6).expand(len(x), 1, 6), x], dim=-2)),
    "tokens with positions": ((1, 2, 6), lambda p, x: torch.cat([p.expand(len(x), -1, -1) + p[:, :1], x], 1)),
    "indexed as if it had one row": ((1, 4, 6), lambda p, x: x + p[0]),
    "as many heads as records": ((1, 1, 6), lambda p, x: x[:, :, None] + p.expand(4, 1, 6).transpose(0, 1)),
    "a table of relative positions": ((3, 2), attention_bias),
    "numbers kept outside the model": ((6,), lambda p, x: x + numbers_kept_outside() * p),
    "in place": ((6,), in_place),
    "a choice": ((6,), lambda p, x: torch.where(x > 0, x, p)),
    "twice": ((6,), lambda p, x: torch.sin(x * p) - p.square()),
    "a matrix": ((6, 5), lambda p, x: x @ p),
    "a map": ((5, 6), lambda p, x: F.linear(x, p, p[:, 0])),
    "a map the other way round": ((6, 5), lambda p, x: torch.addmm(p[0], x.reshape(-1, 6), p).view(len(x), 4, 5)),
    "a normalised map": ((5, 6), lambda p, x: F.linear(x, F.normalize(p, dim=1))),
    "a convolution": ((5, 4, 3), lambda p, x: F.conv1d(x, (p - p.mean((1, 2), keepdim=True)), padding=1)),
    "a normalisation": ((6,), lambda p, x: F.layer_norm(x, (6,), p, p.cos())),
}


@pytest.mark.parametrize("records", [2, 4, 5])
@pytest.mark.parametrize("name", USES)
def test_any_use_is_exact_and_fast(name: str, records: int) -> None:
    torch.manual_seed(0)
    shape, use = USES[name]
    model = Uses(shape, use).double()
    batch = batch_for(model, 4, 6, records=records)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_model(model, loss, batch)
    assert found.agrees and found.path == "fast", found.errors


@pytest.mark.parametrize("name", ["a class token", "tokens with positions", "a table of relative positions", "a normalised map"])
def test_units_of_several_records_are_added_up(name: str) -> None:
    torch.manual_seed(0)
    shape, use = USES[name]
    model = Uses(shape, use).double()
    batch = batch_for(model, 4, 6, records=5)
    engine = ClippingEngine(model)
    units = torch.tensor([3, 1, 3, 0, 1])
    each = engine.per_record_gradients(loss, batch)
    whole = torch.stack([each[units == unit].sum(0) for unit in (0, 1, 3)])
    clip = float(whole.norm(dim=1).median())
    expected = (whole * (clip / whole.norm(dim=1)).clamp(max=1)[:, None]).sum(0)
    found = engine.clipped_sum(loss, batch, clip, units)
    assert float((found.flat() - expected).abs().max()) < 1e-9 * float(expected.abs().max())


def _old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(nn.Linear(6, 6))


def _shared() -> nn.Module:
    model = nn.Sequential(Uses((6,), lambda p, x: x * p), nn.LazyLinear(6), Uses((6,), lambda p, x: x + p))
    model[2].own = model[0].own
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "weight norm, as it was": _old_weight_norm,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(6, 6)),
    "a parameter two modules share": _shared,
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_whose_weights_are_computed_are_exact_and_fast(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(MODELS[name](), nn.Tanh(), nn.LazyLinear(2)).double()
    batch = batch_for(model, 4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_model(model, loss, batch)
    assert found.agrees and found.path == "fast", found.errors


class Crosswise(nn.Module):
    """Time first and records second, as recurrent networks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.norm, self.out = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(torch.tanh(self.map(x.transpose(0, 1))))).mean(0)


@pytest.mark.parametrize("times", [3, 4, 6])
@pytest.mark.parametrize("records", [3, 4, 6])
def test_records_in_the_second_dimension(times: int, records: int) -> None:
    """Even where there are as many of one as of the other: the check has fewer records, and sees which is which."""
    torch.manual_seed(0)
    model = Crosswise().double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_model(model, loss, batch_for(model, times, 6, records=records))
    assert found.agrees and found.path == "fast"
