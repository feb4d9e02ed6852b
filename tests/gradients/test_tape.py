"""What the engine does with models that are not rows of well-known layers."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.check import check_model
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.tape import exact_products

Batch = dict[str, Tensor]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch["x"]) * batch["w"]).flatten(1).sum(1)


def batch_for(model: nn.Module, *shape: int, records: int = 4, dtype: torch.dtype = torch.float64) -> Batch:
    torch.manual_seed(1)
    x = torch.randn(records, *shape, dtype=dtype)
    with torch.no_grad():
        return {"x": x, "w": torch.randn_like(model(x))}


class Transformer(nn.Module):
    """A class token and positions: parameters outside any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.positions = nn.Parameter(torch.randn(1, 4, 6))
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.linear(torch.tanh(x + self.positions))


def test_tokens_and_positions_take_the_fast_path() -> None:
    model = Transformer().double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_model(model, loss, batch_for(model, 3, 6))
    assert found.agrees and found.path == "fast" and set(found.errors) == {"token", "positions", "linear.weight", "linear.bias"}


def test_parameters_in_a_short_format_are_refused() -> None:
    with pytest.raises(HalfmaskError, match=r"under torch.autocast"):
        ClippingEngine(nn.Linear(3, 2).bfloat16())


@pytest.mark.parametrize("scale, weights", [(1e9, [1 / 3, 1 / 3, -2 / 3]), (3e38, [1.0, -1.0, 0.0]), (1e3, [1.0, -1.0, 0.0])])
def test_records_that_cancel_stay_within_the_clip_norm(scale: float, weights: list[float]) -> None:
    """Their exact sum is short or nothing, and its rounding, in single precision, is not."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    x = torch.randn(1, 64).expand(3, 64) * scale * torch.tensor([1.0, 1.0, 1.0 + 1e-7])[:, None]
    data = {"x": x, "w": torch.randn(1, 64).expand(3, 64) * torch.tensor(weights)[:, None]}
    clipped = ClippingEngine(model).clipped_sum(loss, data, 1e-3, torch.zeros(3, dtype=torch.long))
    assert float(clipped.flat().double().norm()) <= 1e-3


class Distances(nn.Module):
    """A layer that no rule knows, made of a function that none knows either."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.centres)


def test_a_slow_layer_is_announced_once_and_slows_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Distances(), nn.Linear(5, 3)).double()
    engine = ClippingEngine(model)
    with pytest.warns(UserWarning, match=r"no fast gradient rule for cdist of 1.centres: it is differentiated by itself"):
        engine.clipped_sum(loss, batch_for(model, 4), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            engine.clipped_sum(loss, batch_for(model, 4), 1.0)
    assert engine.path == "mixed" and list(engine.slow_seconds) == ["cdist of 1.centres"] and engine.slow_seconds["cdist of 1.centres"] > 0


def test_in_place_activations_are_no_trouble() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 3)).double()
    found = check_model(model, loss, batch_for(model, 2, 5, 5))
    assert found.agrees and found.path == "fast"


class Overwrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        out = self.second(hidden.detach())
        with torch.no_grad():
            hidden.mul_(2)
        return out + self.first(x)


def test_an_input_overwritten_after_use_is_refused() -> None:
    model = Overwrites().double()
    with pytest.raises(HalfmaskError, match="'second' was changed in place"):
        ClippingEngine(model).clipped_sum(loss, batch_for(model, 3), 1.0)


class Aside(nn.Module):
    """A trained branch that does not lie on the way to the lowest layer, and a layer that is not used at all."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.aside, self.idle = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        constant = self.low(x).detach().requires_grad_()
        return self.high(self.low(x)) + self.aside(constant)


def test_branches_cut_off_from_the_lowest_layer_count() -> None:
    model = Aside().double()
    found = check_model(model, loss, batch_for(model, 3))
    assert found.agrees and found.path == "fast" and found.errors["aside.weight"] < 1e-9


class Probe(torch.autograd.Function):
    """Tells when a backward pass comes by."""

    reached = 0

    @staticmethod
    def forward(_ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: object, gradient: Tensor) -> Tensor:
        Probe.reached += 1
        return gradient


@pytest.mark.parametrize("frozen", [True, False])
def test_nothing_below_the_lowest_trainable_layer_is_differentiated(frozen: bool) -> None:
    class Probed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.high(Probe.apply(self.low(x)))

    model = Probed()
    model.low.requires_grad_(not frozen)
    Probe.reached = 0
    data = batch_for(model, 4, dtype=torch.float32)
    ClippingEngine(model).clipped_sum(loss, data, 1.0)
    assert (Probe.reached == 0) == frozen


def test_bfloat16_autocast_keeps_the_promise() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    data = batch_for(model, 3, 8, 8, dtype=torch.float32)
    exact = ClippingEngine(model).clipped_sum(loss, data, 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        engine = ClippingEngine(model)
        rough = engine.clipped_sum(loss, data, 1.0)
        assert engine.path == "fast"
        for i in range(4):
            one = engine.clipped_sum(loss, {key: value[i : i + 1] for key, value in data.items()}, 0.5)
            assert float(one.flat().double().norm()) <= 0.5
    assert all(total.dtype == torch.float64 for total in rough.sums.values()) and rough.dtype == torch.float32
    assert float((rough.flat() - exact.flat()).norm() / exact.flat().norm()) < 0.05


def test_shapes_can_be_worked_out_without_data() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 5)).to("meta")
    data = {"x": torch.empty(4, 3, 8, 8, device="meta"), "w": torch.empty(4, 5, device="meta")}
    clipped = ClippingEngine(model).clipped_sum(loss, data, 1.0)
    assert clipped.flat().shape == (sum(p.numel() for p in model.parameters()),) and clipped.norms.device.type == "meta"


def test_the_loss_must_be_one_value_per_record() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(HalfmaskError, match="one value per record"):
        ClippingEngine(model).clipped_sum(lambda m, b: m(b["x"]).sum(), {"x": torch.randn(4, 3)}, 1.0)


def test_nothing_of_a_pass_stays_in_memory() -> None:
    """A graph that holds a hook that holds the graph is never collected, and with it stay the gradients of everyone in the batch."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    engine = ClippingEngine(model)
    data = batch_for(model, 6)
    assert engine._tape is not None
    terms = engine._tape.terms(lambda: loss(model, data), data)
    watched = [weakref.ref(value) for term in terms.values() for value in vars(term).values() if isinstance(value, Tensor)]
    assert watched and all(ref() is not None for ref in watched)
    del terms
    gc.collect()
    assert not any(ref() is not None for ref in watched)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("graph", [False, True])
def test_products_are_exact_whatever_surrounds_them(autocast: bool, graph: bool) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), torch.set_grad_enabled(graph):
        with exact_products(torch.device("cpu")):
            assert not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        assert torch.is_grad_enabled() == graph and torch.is_autocast_enabled("cpu") == autocast
