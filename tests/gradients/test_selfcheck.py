"""The engine doubts itself: a model that its rules are wrong about is noticed on the first batch that shows it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from halfmask.gradients.check import check_model
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.selfcheck import SelfCheck
from halfmask.models.pose import choose_parameters
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import pose_loss

Batch = dict[str, Tensor]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch["x"]) * batch["w"]).flatten(1).sum(1)


def batch_for(model: nn.Module, *shape: int, records: int = 4, dtype: torch.dtype = torch.float64) -> Batch:
    torch.manual_seed(1)
    x = torch.randn(records, *shape, dtype=dtype)
    with torch.no_grad():
        return {"x": x, "w": torch.randn_like(model(x))}


class Secret(torch.autograd.Function):
    """A product that says nothing of the functions in it."""

    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).flatten(0, -2).sum(0)


class Hidden(nn.Module):
    """A scale in a function of the user's own: nobody sees how it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return Secret.apply(x, self.scale)


def hidden() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 6), Hidden(), nn.Tanh(), nn.Linear(6, 6))


def test_a_parameter_whose_use_nobody_sees_is_noticed_and_its_module_taken_by_itself() -> None:
    """Otherwise its gradient would be missing, and the clip norm with it."""
    model = hidden().double()
    with pytest.warns(UserWarning, match=r"no fast gradient rule for 1 \(Hidden\): it is differentiated by itself"):
        found = check_model(model, loss, batch_for(model, 3, 6))
    assert found.agrees and found.path == "mixed"


class Everything(nn.Module):
    """The same in the model itself, which has no smaller part to be differentiated by itself, with its output turned."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6))
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return Secret.apply(self.inner(x), self.scale).transpose(0, 1)


def turned_loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch["x"]).transpose(0, 1) * batch["w"]).flatten(1).sum(1)


def test_where_nothing_else_is_left_the_whole_model_is_slow() -> None:
    model = Everything().double()
    torch.manual_seed(0)
    data = {"x": torch.randn(4, 5, 6, dtype=torch.float64), "w": torch.randn(4, 5, 6, dtype=torch.float64)}
    with pytest.warns(UserWarning, match="this model uses the slow path"):
        found = check_model(model, turned_loss, data)
    assert found.agrees and found.path == "slow"


def test_a_parameter_without_a_gradient_at_first_is_looked_at_again() -> None:
    """With a head of zeros nothing below it has a gradient in the first step, and a check then would pass anything."""
    model = nn.Sequential(Rare(), nn.Linear(4, 4)).double()
    nn.init.zeros_(model[1].weight)
    engine = ClippingEngine(model)
    data = rare_records(0, 1, 2)
    engine.clipped_sum(loss, data, 1.0)
    assert engine.path == "fast"
    nn.init.normal_(model[1].weight)
    with pytest.warns(UserWarning, match="no fast gradient rule"):
        engine.clipped_sum(loss, data, 1.0)
    assert engine.path == "slow"


def test_a_parameter_that_the_loss_depends_on_and_that_no_layer_used_is_noticed_without_a_gradient() -> None:
    """No comparison could tell while the head is zero; that the loss leads to it does."""
    model = hidden().double()
    nn.init.zeros_(model[3].weight)
    engine = ClippingEngine(model)
    with pytest.warns(UserWarning, match="differentiated by itself"):
        engine.clipped_sum(loss, batch_for(model, 3, 6), 1.0)
    assert engine.path == "mixed"


class Behind(nn.Module):
    """Uses a layer's weight behind the layer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.tanh(x @ self.linear.weight))


def test_a_weight_used_behind_its_layers_back_is_noticed() -> None:
    """Layers alone are watched at first; once they do not add up, functions are."""
    model = Behind().double()
    engine = ClippingEngine(model)
    assert engine._tape is not None and not engine._tape.traces
    engine.clipped_sum(loss, batch_for(model, 3), 1.0)
    assert engine._tape.traces
    found = check_model(model, loss, batch_for(model, 3))
    assert found.agrees and found.path == "fast"


def test_dropout_does_not_look_like_a_fault() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2)).double()
    engine = ClippingEngine(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.clipped_sum(loss, batch_for(model, 6), 1.0)
    assert engine.path == "fast"


@pytest.mark.parametrize("strategy", ["top", "finetune", "full"])
def test_rounding_under_autocast_is_not_taken_for_an_error(strategy: str) -> None:
    """The check is made in full precision; the pose model stays on the fast path, and nobody passes the clip norm."""
    torch.manual_seed(0)
    model = PoseModel("nano", input_size=(64, 48)).eval()
    choose_parameters(model, strategy)
    batch = {
        "image": torch.randint(0, 256, (4, 3, 64, 48), dtype=torch.uint8),
        "joints": torch.rand(4, 16, 2) * 40,
        "labelled": torch.ones(4, 16, dtype=torch.bool),
    }
    exact = ClippingEngine(model).clipped_sum(pose_loss, batch, 0.5).flat()
    engine = ClippingEngine(model)
    with torch.autocast("cpu", torch.bfloat16):
        rough = engine.clipped_sum(pose_loss, batch, 0.5).flat()
        alone = engine.clipped_sum(pose_loss, {name: tensor[:1] for name, tensor in batch.items()}, 0.5).flat()
    assert engine.path == "fast"
    assert (rough - exact).norm() < 0.2 * exact.norm()
    assert alone.norm() <= 0.5


def test_all_is_looked_at_again_when_the_tape_goes_about_it_in_another_way() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    engine = ClippingEngine(model)
    engine.clipped_sum(loss, batch_for(model, 6), 1.0)
    assert not engine._check._unverified
    engine._check.again()
    assert engine._check._unverified == set(engine.parameters)


class Rare(nn.Module):
    """A way that some records go and others do not; on it a layer's weight is used once more, where nobody sees it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.usual, self.rare = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        marked = (x[:, :1] > 9).to(x.dtype)
        return self.usual(x) + marked * Secret.apply(self.rare(x), self.rare.weight[0])


def rare_records(*marked: int, count: int = 8) -> Batch:
    torch.manual_seed(1)
    x = torch.randn(count, 4, dtype=torch.float64)
    x[list(marked), 0] = 10.0
    return {"x": x, "w": torch.ones(count, 4, dtype=torch.float64)}


def test_a_parameter_is_looked_at_before_it_has_a_part_in_any_sum() -> None:
    """Whichever step that is, and whichever records they are: not only in some steps, and not only the first three."""
    model = Rare().double()
    engine = ClippingEngine(model)
    for _ in range(4):
        engine.clipped_sum(loss, rare_records(), 1.0)
    assert engine.path == "fast" and engine._check._unverified == {"rare.weight", "rare.bias"}
    with pytest.warns(UserWarning, match="no fast gradient rule"):
        found = engine.per_record_gradients(loss, rare_records(5, 6, 7))
    for i in range(8):
        alone = loss(model, {name: value[i : i + 1] for name, value in rare_records(5, 6, 7).items()}).sum()
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(alone, list(model.parameters()))])
        assert torch.allclose(found[i], expected), i


def test_of_units_those_are_looked_at_who_have_a_part() -> None:
    model = Rare().double()
    engine = ClippingEngine(model)
    engine.clipped_sum(loss, rare_records(), 1.0)
    with pytest.warns(UserWarning, match="no fast gradient rule"):
        engine.clipped_sum(loss, rare_records(6, 7), 1.0, unit_index=torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    assert engine.path != "fast"


class Keys(nn.Module):
    """The bias of the keys of attention has no gradient but what rounding leaves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1) @ self.value(x)


def test_rounding_is_not_looked_at_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = SelfCheck._compare
    monkeypatch.setattr(SelfCheck, "_compare", lambda self, *args: looks.append(1) or real(self, *args))
    engine = ClippingEngine(Keys())
    for _ in range(6):
        engine.clipped_sum(loss, batch_for(engine.model, 5, 6, dtype=torch.float32), 1.0)
    assert engine._check._unverified <= {"key.bias"} and len(looks) <= 2


def test_a_batch_of_one_record_is_checked_too() -> None:
    """A missing part of its gradient would let it past the clip norm; and it counts for no batch of several."""
    model = Behind().double()
    engine = ClippingEngine(model)
    one = {name: 10 * value[:1] for name, value in batch_for(model, 3).items()}
    assert engine.clipped_sum(loss, one, 1.0).flat().norm() <= 1
    assert engine._tape is not None and engine._tape.traces
    assert engine._check._unverified and not engine._check._unverified_alone
