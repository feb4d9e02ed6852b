"""People who are coupled, by a layer or by the loss, are noticed before anything is trained."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.apart import check_records_apart, state_kept
from halfmask.gradients.engine import ClippingEngine
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import learning_statistics
from halfmask.tasks.pose import pose_loss

Batch = dict[str, Tensor]
LossFn = Callable[[nn.Module, Batch], Tensor]
SIZE = (64, 48)


def square_loss(model: nn.Module, batch: Batch) -> Tensor:
    return (model(batch["x"]) - batch["y"]).square().flatten(1).sum(1)


def linear() -> tuple[nn.Module, LossFn, Batch]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))
    return model, square_loss, {"x": torch.randn(7, 7) * torch.logspace(-1, 1, 7)[:, None], "y": torch.randn(7, 3)}


def pose() -> tuple[nn.Module, LossFn, Batch]:
    torch.manual_seed(5)
    batch = {
        "image": torch.randint(0, 256, (4, 3, *SIZE), dtype=torch.uint8),
        "joints": torch.rand(4, 16, 2) * 40,
        "labelled": torch.rand(4, 16) < 0.8,
    }
    return PoseModel("nano", 16, SIZE).eval(), pose_loss, batch


def test_models_that_mix_people_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="mixes people"):
        ClippingEngine(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).train())
    model = PoseModel("nano", 16, SIZE)
    with learning_statistics(model), pytest.raises(HalfmaskError, match="mixes people"):
        ClippingEngine(model)
    ClippingEngine(model.train())


LOSSES: dict[str, LossFn] = {
    "batch mean": lambda m, b: square_loss(m, b) * 0 + square_loss(m, b).mean(),
    "weighed by the batch's mean": lambda m, b: square_loss(m, b) * b["y"].abs().mean(),
    "count of positives": lambda m, b: square_loss(m, b) / (b["y"] > 0).sum().clamp(min=1),
    "contrast": lambda m, b: -(m(b["x"]) @ m(b["x"]).T).log_softmax(1).diagonal(),
    "one number": lambda m, b: square_loss(m, b).mean(),
    "a number per output": lambda m, b: (m(b["x"]) - b["y"]).square(),
}


def test_a_loss_of_its_own_record_passes() -> None:
    check_records_apart(*linear())
    check_records_apart(*pose())


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_couples_people_is_refused(loss: str) -> None:
    model, _, batch = linear()
    with pytest.raises(HalfmaskError, match=r"coupled|one value per record"):
        check_records_apart(model, LOSSES[loss], batch)


def test_a_coupling_that_values_do_not_show_is_refused() -> None:
    """Losses of an untrained network are nearly equal, so that a batch mean looks like each of them; their gradients tell."""

    def hidden(model: nn.Module, batch: Batch) -> Tensor:
        losses = square_loss(model, batch)
        return losses + losses.mean() - losses.mean().detach()

    model, _, batch = linear()
    with pytest.raises(HalfmaskError, match="coupled"):
        check_records_apart(model, hidden, batch)


def test_a_batch_norm_that_sees_the_batch_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = {"x": torch.randn(5, 3), "y": torch.randn(5, 4)}
    check_records_apart(model.eval(), square_loss, batch)

    def in_pairs(model: nn.Module, batch: Batch) -> Tensor:
        """A lone record has no variance; doubled, its statistics are its own."""
        doubled = {key: value.repeat(2, 1) for key, value in batch.items()}
        return square_loss(model, doubled)[: len(batch["x"])]

    with pytest.raises(HalfmaskError, match="coupled"):
        check_records_apart(model.train(), in_pairs, batch)


def test_a_loss_that_is_not_finite_is_refused() -> None:
    """NaN compares false with everything, so it must not pass for agreement."""
    model, _, batch = linear()
    with pytest.raises(HalfmaskError):
        check_records_apart(model, lambda m, b: square_loss(m, b) * math.nan, batch)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4, track_running_stats=False).eval(), nn.InstanceNorm1d(4, track_running_stats=True)])
def test_layers_that_see_others_or_keep_averages_are_refused(layer: nn.Module) -> None:
    with pytest.raises(HalfmaskError, match="mixes people"):
        ClippingEngine(nn.Sequential(layer, nn.Linear(4, 2)))


def test_a_layer_put_back_into_training_mode_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval().double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = ClippingEngine(model)
    model.train()
    with pytest.raises(HalfmaskError, match="mixes people"):
        engine.clipped_sum(square_loss, {"x": torch.randn(5, 4).double(), "y": torch.randn(5, 4).double()}, 1.0)


class Keeps(nn.Module):
    """Keeps something of what it sees, in one of several places."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.layer = how, nn.Linear(3, 4)
        self.register_buffer("mean", torch.full((3,), math.nan if how == "nothing" else 0.0))

    def forward(self, x: Tensor) -> Tensor:
        seen = x.detach().mean(0)
        if self.how == "in place":
            self.mean.add_(seen)
        elif self.how == "anew":
            self.mean = self.mean + seen
        elif self.how == "behind autograd":
            self.mean.data.copy_(seen)
        elif self.how == "a new buffer":
            self.register_buffer("last", seen)
        elif self.how == "in a weight":
            with torch.no_grad():
                self.layer.bias[:3] += seen
        return self.layer(x)


@pytest.mark.parametrize("how", ["in place", "anew", "behind autograd", "a new buffer", "in a weight"])
def test_a_model_that_keeps_something_of_records_is_refused(how: str) -> None:
    model = Keeps(how)
    with pytest.raises(HalfmaskError, match=r"of the model changed while a loss was taken"), state_kept(model):
        model(torch.randn(5, 3))


def test_a_model_that_keeps_nothing_passes() -> None:
    model = Keeps("nothing")
    with state_kept(model):
        model(torch.randn(5, 3)).sum().backward()
