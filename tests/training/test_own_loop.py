"""`halfmask.Private`: somebody's own loop gets noised gradients, each paid for before its batch is drawn, and nothing else."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfmask
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import Account
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training.own_loop import Private
from halfmask.training.private import PrivateHalf
from halfmask.training.spending import Payments

pytestmark = pytest.mark.usefixtures("quick_accounting", "fresh_home")


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count: int = 40, seed: int = 0):
        random = torch.Generator().manual_seed(seed)
        self.x, self.y = torch.randn(count, 70, generator=random), torch.randint(2, (count,), generator=random)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def begin(out: Path, model: nn.Module | None = None, **changes: Any) -> Private:
    plan: dict[str, Any] = {"private": Numbers(), "unit": "record", "epsilon": 3.0, "delta": 1e-3, "clip_norm": 0.5, "batch": 10}
    plan |= {"epochs": 1, "settings": {"even_so": True}, "out": out} | changes
    return halfmask.Private(model or nn.Linear(70, 2), plan.pop("loss", loss), **plan)


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    model = nn.Linear(70, 2)
    private = begin(tmp_path / "run", model, test=Numbers(12, seed=1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    for _ in range(private.steps):
        assert private.step() is None, "a step says nothing of its batch"
        optimiser.step()
    certificate = private.finish()
    assert private.steps == 4 == certificate["steps"] and not torch.equal(model.weight, before)
    assert certificate["epsilon"]["zero-out"] == pytest.approx(3.0, abs=0.01) == private.epsilon
    assert any("read private records nowhere else" in line for line in certificate["public_assumptions"])
    assert (tmp_path / "run" / "model.safetensors").is_file() and "loss" in json.loads((tmp_path / "run" / "metrics.json").read_text())[
        "metrics"
    ]
    assert private.finish() is certificate


def every_draw_was_paid(out: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    events: list[str] = []
    pay, draw = Account.pay, PoissonSampler.draw
    monkeypatch.setattr(Account, "pay", lambda self, spend: events.extend(["pay"] * spend.steps) or pay(self, spend))
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: events.append("draw") or draw(self))
    private = begin(out)
    for _ in range(private.steps):
        private.step()
    ahead = itertools.accumulate(1 if event == "pay" else -1 for event in events)
    return min(ahead) >= 0 and events.count("draw") == events.count("pay") == 4


def test_every_step_is_paid_before_its_coins_are_tossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert every_draw_was_paid(tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("fault", ["never", "afterwards", "once"])
def test_steps_that_are_not_paid_for_are_seen(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Payments.ahead
    owed: list[int] = []

    def ahead(self: Payments, steps: int, half: PrivateHalf) -> None:
        owed.append(steps)
        if fault == "afterwards" and len(owed) > 1:
            real(self, owed[-2], half)
        elif fault == "once" and len(owed) == 1:
            real(self, steps, half)

    monkeypatch.setattr(Payments, "ahead", ahead)
    assert not every_draw_was_paid(tmp_path / "run", monkeypatch)


def test_the_gradient_is_the_noised_mean_in_place_of_whatever_was_there(tmp_path: Path) -> None:
    """With the noise of a seed, its length is that of σC/B̄ in every number; what stood in `.grad` is gone."""
    model = nn.Linear(70, 2)
    private = begin(tmp_path / "run", model, insecure_seed=3)
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 1e6)
    private.step()
    noise = private._trainer.noised.mechanism.noise_in_mean
    found = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    assert 0.7 * noise < found.std() < 1.4 * noise
    other = nn.Linear(70, 2)
    other.load_state_dict(model.state_dict())
    again = begin(tmp_path / "again", other, insecure_seed=3)
    again.step()
    assert other.weight.grad is not None and model.weight.grad is not None
    assert torch.equal(other.weight.grad, model.weight.grad), "the same seed, the same release"


def test_no_step_beyond_the_plan_and_none_after_the_certificate(tmp_path: Path) -> None:
    private = begin(tmp_path / "run")
    for _ in range(private.steps):
        private.step()
    with pytest.raises(HalfmaskError, match="all 4 planned steps"):
        private.step()
    private.finish()
    with pytest.raises(HalfmaskError, match="finished and certified"):
        private.step()


def test_fewer_steps_cost_less(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as private:
        private.step()
    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert certificate["steps"] == 1 and certificate["epsilon"]["zero-out"] < 2.5


def test_changed_buffers_are_refused(tmp_path: Path) -> None:
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(70, 2)
            self.register_buffer("mean", torch.zeros(70))

    model = Counting()
    private = begin(tmp_path / "run", model)
    private.step()
    model.mean += 1
    with pytest.raises(HalfmaskError, match="a buffer of the model changed"):
        private.step()


def test_a_coupled_loss_and_a_spent_budget_are_refused_and_leave_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="coupled"):
        begin(tmp_path / "run", loss=lambda model, batch: loss(model, batch) - 0.5 * loss(model, batch).mean())
    private = begin(tmp_path / "other", budget=3.5)
    private.finish()
    for _ in range(2):
        with pytest.raises(HalfmaskError, match="budget"):
            begin(tmp_path / "third", epsilon=3.6)


def test_a_subspace_of_public_records(tmp_path: Path) -> None:
    model = nn.Linear(70, 2)
    private = begin(tmp_path / "run", model, public=Numbers(20, seed=2), settings={"even_so": True, "subspace.dim": 3})
    private.step()
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    basis = private._trainer.noised.subspace
    assert basis is not None and basis.dimension == 3
    assert torch.allclose(basis.lift(basis.coordinates(gradient)), gradient, atol=1e-5), "it lies in the subspace"


def test_a_step_that_fails_half_way_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coins were tossed: the payment serves no other batch."""
    events: list[str] = []
    pay, draw = Account.pay, PoissonSampler.draw
    monkeypatch.setattr(Account, "pay", lambda self, spend: events.extend(["pay"] * spend.steps) or pay(self, spend))
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: events.append("draw") or draw(self))
    fails = [False]

    def failing(model: nn.Module, batch: Any) -> Tensor:
        if fails[0]:
            raise ValueError("out of memory, say")
        return loss(model, batch)

    private = begin(tmp_path / "run", loss=failing, batch=30, epochs=4)
    private.step()
    fails[0] = True
    with pytest.raises(ValueError, match="out of memory"):
        private.step()
    fails[0] = False
    spent = private.epsilon
    for _ in range(private.steps - 2):
        private.step()
    assert private.epsilon > spent and events.count("draw") == private.steps <= events.count("pay")
    with pytest.raises(HalfmaskError, match="planned steps were taken"):
        private.step()


def test_a_step_is_taken_in_evaluation_mode_and_leaves_the_modes_as_they_were(tmp_path: Path) -> None:
    """Dropout draws its masks by the place in the batch: a record's would depend on who else is there."""
    model = nn.Sequential(nn.Linear(70, 8), nn.Dropout(0.5), nn.Sequential(nn.Linear(8, 2)).eval())
    seen: list[bool] = []

    def watched(model: nn.Module, batch: Any) -> Tensor:
        seen.append(any(module.training for module in model.modules()))
        return loss(model, batch)

    private = begin(tmp_path / "run", model.eval(), loss=watched, batch=30)
    model.train()
    model[2].eval()
    modes = [module.training for module in model.modules()]
    seen.clear()
    private.step()
    assert seen and not any(seen) and [module.training for module in model.modules()] == modes == [True, True, True, False, False]


def test_gradients_have_the_type_of_their_weights(tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(70, 4).double(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x.double()).float())

    model = Mixed()
    private = begin(tmp_path / "run", model)
    private.step()
    found = [weight.grad.dtype for weight in model.parameters() if weight.grad is not None]
    assert found == [torch.float64, torch.float64, torch.float32, torch.float32]
    torch.optim.SGD(model.parameters(), lr=0.1).step()


@pytest.mark.parametrize("steps", [0, 1])
def test_weights_that_are_loaded_after_the_run_was_prepared_carry_their_cost(tmp_path: Path, steps: int) -> None:
    first = nn.Linear(70, 2)
    with begin(tmp_path / "first", first) as private:
        private.step()
        torch.optim.SGD(first.parameters(), lr=0.1).step()
    model = nn.Linear(70, 2)
    second = begin(tmp_path / "second", model)
    model.load_state_dict(first.state_dict())
    for _ in range(steps):
        second.step()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    certificate = second.finish()
    assert certificate["epsilon"]["zero-out"] > private.epsilon * 0.99
    assert certificate["own_epsilon"]["zero-out"] < certificate["epsilon"]["zero-out"]


def test_a_buffer_that_changed_after_the_last_step_is_not_released(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(70, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    private = begin(tmp_path / "run", model)
    private.step()
    before = model[1].running_mean.clone()
    model[1].running_mean += 1
    with pytest.raises(HalfmaskError, match="a buffer of the model changed since the run began"):
        private.finish()
    assert not (tmp_path / "run" / "model.safetensors").exists()
    model[1].running_mean.copy_(before)
    private.finish()
