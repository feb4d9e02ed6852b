"""The audit of a stranger's loss: it passes what is sound, and each fault it is meant for makes it fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.audit import own as audit
from halfmask.audit.own import audit_loss
from halfmask.data.records import Records, Units
from halfmask.gradients.clipped import ClippedSum
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.tasks.base import Task, register
from halfmask.training import private
from halfmask.training.config import build_config

pytestmark = pytest.mark.usefixtures("quick_accounting")


@register
class Vectors(Task):
    name = "vectors for audits"

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(model(batch["x"])[:, 0], batch["y"], reduction="none")


def audited(model: nn.Module | None = None, kind: type[Task] = Vectors) -> dict[str, Any]:
    config = build_config({"task": Vectors.name, "strategy": "full", "clip_norm": 0.5, "method": "dpsgd"}, {}, [])
    like = Records.of_arrays({"x": np.zeros((3, 40), np.float32)}, {"y": np.zeros(3, np.float32)})
    torch.manual_seed(0)
    return audit_loss(kind(config), model or nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 1)), like, config)


def failed(body: dict[str, Any]) -> set[str]:
    return {check["check"] for check in body["checks"] if not check["passed"]}


def test_a_sound_loss_passes() -> None:
    body = audited()
    assert body["passed"] and not failed(body) and len(body["checks"]) == 10


def no_clip(real: Callable[..., Any]) -> Callable[..., Any]:
    def clipped(self: ClippingEngine, loss: Any, batch: Any, clip_norm: float, *args: Any) -> ClippedSum:
        return replace(real(self, loss, batch, 1e9, *args), clip_norm=clip_norm)

    return clipped


def by_record(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, loss, batch, clip_norm, units, *args: real(self, loss, batch, clip_norm, None, *args)


def test_a_clip_that_is_skipped_or_of_records_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ClippingEngine.clipped_sum
    monkeypatch.setattr(ClippingEngine, "clipped_sum", no_clip(real))
    assert {"step-sensitivity, all clipped", "unit-is-one"} <= failed(audited())
    monkeypatch.setattr(ClippingEngine, "clipped_sum", by_record(real))
    assert "unit-is-one" in failed(audited())


def test_noise_that_is_missing_and_a_divisor_that_follows_the_batch_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Mechanism._release
    monkeypatch.setattr(Mechanism, "_release", lambda self, *args: real(replace(self, noise_multiplier=0.5 * self.noise_multiplier), *args))
    assert {"noise-variance", "constant-divisor"} <= failed(audited())

    def realised(self: Mechanism, clipped: ClippedSum, *args: Any) -> Tensor:
        return real(self, clipped, *args) * self.expected_batch / max(1, len(clipped.norms))

    monkeypatch.setattr(Mechanism, "_release", realised)
    assert "constant-divisor" in failed(audited())


def test_a_network_that_couples_units_is_seen() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(40, 20), nn.Linear(20, 1)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.body(x)
            return self.head(hidden - 0.5 * hidden.mean(0))

    assert "records-apart" in failed(audited(Centred()))


def test_unit_weights_that_are_ignored_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the bound, which holds for any weights: by the mean that the certificate speaks of."""
    config = build_config({"task": Vectors.name, "strategy": "full", "method": "dpsgd", "unit": "record"}, {}, [])
    loss = private.unit_loss(Vectors(config).loss)
    batch = {"x": torch.ones(2, 40), "y": torch.zeros(2)}
    model = nn.Linear(40, 1)
    whole, weighted = loss(model, batch), loss(model, batch | {private.WEIGHT: torch.tensor([0.5, 0.25])})
    assert torch.allclose(weighted, whole * torch.tensor([0.5, 0.25]))


def test_coins_that_are_not_tossed_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmask.privacy.sampling.PoissonSampler.draw", lambda self: torch.arange(self.units // 2))
    assert "poisson-coins" in failed(audited())


def test_a_check_that_was_taken_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "check_records_apart", lambda *args: None)
    assert failed(audited()) == {"coupled-loss-refused"}


def test_nothing_of_the_users_is_touched(fresh_home: Any) -> None:
    units = Units(np.arange(4), 1)
    audited()
    assert not fresh_home.exists() or not list(fresh_home.rglob("*.jsonl"))
    assert len(units) == 4
