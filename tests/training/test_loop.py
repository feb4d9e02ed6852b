"""One loop for all methods: a step is noise and at most one share of each unit, whatever is in it, and public things are told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS
from halfmask.tasks.base import PostProcessing
from halfmask.tasks.pose import PoseTask, pose_loss
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import WEIGHT
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
Build = Callable[..., RunConfig]


NOISED = [name for name in PoseTask.methods if METHODS[name].private == "noised"]


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def trainer_for(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> Trainer:
    return kind(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


@pytest.mark.parametrize("strategy", ["top", "finetune", "full", "scratch"])
def test_only_what_a_strategy_trains_changes(strategy: str, tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(strategy=strategy)
    trainer = trainer_for(config, tmp_path / "run")
    before = {name: tensor.clone() for name, tensor in trainer.setup.model.state_dict().items()}
    trainer.train()
    changed = {name for name, t in trainer.setup.model.state_dict().items() if not torch.equal(t, before[name])}
    assert changed == set(trainer.engine.parameters), "frozen weights and statistics stay; noise moves all the others"


def test_a_loss_that_couples_people_is_refused_before_anything_is_spent(
    tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_home: Path
) -> None:
    class Coupled(PoseTask):
        def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return super().loss(model, batch) * batch["labelled"].sum()

    config = tiny_config()
    trainer = Trainer(prepare(config, Progress(), task=Coupled(config)), RunFolder.create(tmp_path / "run", config), Progress())
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: pytest.fail("a private batch was drawn"))
    with pytest.raises(HalfmaskError, match="coupled"):
        trainer.train()
    assert trainer.setup.account.ledger.spends() == []


def test_the_public_loss_is_that_of_watched_public_people(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config(), tmp_path / "run")
    trainer.train()
    watched = trainer.setup.watched
    assert watched is not None
    with torch.no_grad():
        expected = float(pose_loss(trainer.setup.model, watched.batch(np.arange(len(watched)))).mean())
    (line,) = [line for line in log_lines(tmp_path / "run") if line["event"] == "epoch"]
    assert line["public_loss"] == pytest.approx(expected, rel=1e-5)


# ---- a step --------------------------------------------------------------------------------------------------------------


def update_of(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    seen: list[Tensor] = []
    monkeypatch.setattr(trainer, "_apply", lambda update, move=None: seen.append(update))
    if trainer.setup.method.projected and trainer.noised.subspace is None:
        trainer.refresh()
    trainer.take_step()
    return seen[0]


def draws(monkeypatch: pytest.MonkeyPatch, trainer: Trainer, units: list[int]) -> None:
    monkeypatch.setattr(trainer.noised.poisson, "draw", lambda: torch.tensor(units, dtype=torch.long))


def empty_steps_are_noise(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """p ≈ 10⁵ coordinates: the spread is right to 2 %."""
    trainer = trainer_for(config, folder, kind)
    draws(monkeypatch, trainer, [])
    update = update_of(trainer, monkeypatch)
    expected = trainer.setup.noise_multiplier * config.clip_norm / 8
    dimensions = trainer.noised.subspace.dimension if trainer.noised.subspace is not None else len(update)
    energy = float(update.double().square().sum()) / dimensions
    wide = 0.02 if trainer.noised.subspace is None else 0.95
    return abs(energy**0.5 / expected - 1) < wide


class SkipsEmptyBatches(Trainer):
    def take_step(self) -> None:
        if not len(self.noised.poisson.draw()):
            self._apply(torch.zeros(self.engine.size))
            return
        super().take_step()


class DividesByTheRealisedBatch(Trainer):
    def take_step(self) -> None:
        realised = max(1, len(self.noised.poisson.draw()))
        self.noised = replace(self.noised, mechanism=replace(self.noised.mechanism, expected_batch=realised))
        super().take_step()


class TakesNoNoise(Trainer):
    def take_step(self) -> None:
        self.noised = replace(self.noised, mechanism=replace(self.noised.mechanism, noise_multiplier=0.0))
        super().take_step()


@pytest.mark.parametrize("method", ["dpsgd", "projected"])
def test_an_empty_batch_is_a_step_of_noise(method: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert empty_steps_are_noise(Trainer, tiny_config(method=method), tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("fault", [SkipsEmptyBatches, DividesByTheRealisedBatch, TakesNoNoise])
def test_the_check_of_empty_steps_sees_planted_faults(
    fault: type[Trainer], tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not empty_steps_are_noise(fault, tiny_config(), tmp_path / "run", monkeypatch)


def a_unit_moves_a_step_by_its_share(kind: type[Trainer], config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Two steps with equal noise, with and without one unit, differ by at most C/B̄; and by something."""
    updates = []
    for number, units in enumerate(([0, 1, 2], [0, 2])):
        trainer = trainer_for(config, folder / str(number), kind)
        draws(monkeypatch, trainer, units)
        updates.append(update_of(trainer, monkeypatch).double())
    moved = float((updates[0] - updates[1]).norm())
    return 0 < moved <= config.clip_norm / config.batch * (1 + 1e-4)


class DoesNotClip(Trainer):
    def take_step(self) -> None:
        real = self.engine.clipped_sum
        clip_norm = self.noised.mechanism.clip_norm
        self.engine.clipped_sum = lambda *a: replace(real(*a[:2], 1e9, *a[3:]), clip_norm=clip_norm)  # type: ignore[method-assign]
        super().take_step()


class ClipsRecordsApart(Trainer):
    def take_step(self) -> None:
        real = self.engine.clipped_sum
        self.engine.clipped_sum = lambda loss, batch, clip, units, chunk: real(  # type: ignore[method-assign]
            loss, batch | {WEIGHT: torch.ones(len(units))}, clip, None, chunk
        )
        super().take_step()


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
@pytest.mark.parametrize("method", NOISED)
def test_a_unit_moves_a_step_by_no_more_than_its_share(
    unit: str, method: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("clip_norm=0.01", unit=unit, method=method, batch=4)
    assert a_unit_moves_a_step_by_its_share(Trainer, config, tmp_path, monkeypatch)


@pytest.mark.parametrize("fault", [DoesNotClip, DividesByTheRealisedBatch, ClipsRecordsApart])
def test_the_check_of_shares_sees_planted_faults(
    fault: type[Trainer], tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("clip_norm=0.01", unit="subject", batch=4)
    assert not a_unit_moves_a_step_by_its_share(fault, config, tmp_path, monkeypatch)


def test_the_public_half_is_exact_and_weighed(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = []
    for weight in (0.0, 1.0, 3.0):
        trainer = trainer_for(tiny_config(f"public.weight={weight}", method="feature"), tmp_path / str(weight))
        updates.append(update_of(trainer, monkeypatch))
    again = trainer_for(tiny_config(method="feature"), tmp_path / "again")
    gradient, _ = again.engine.mean_gradient(pose_loss, again.exact.batch())
    assert torch.allclose(updates[1] - updates[0], gradient, atol=1e-6)
    assert torch.allclose(updates[2] - updates[0], 3 * gradient, atol=1e-5)


def test_post_processing_follows_each_step_and_sees_released_weights(tiny_config: Build, tmp_path: Path) -> None:
    """A task's own step comes after the update of the same number, and nothing else moves the weights between."""
    calls: list[tuple[int, float]] = []

    class Follow(PostProcessing):
        def __init__(self, model: nn.Module):
            self.model = model

        def step(self, number: int) -> None:
            calls.append((number, float(self.model.head.conv.weight.detach().double().sum())))  # type: ignore[union-attr, operator]

    class Follows(PoseTask):
        def post_processing(self, setup: Setup) -> PostProcessing:
            return Follow(setup.model)

    config = tiny_config()
    setup = prepare(config, Progress(), task=Follows(config))
    after: list[float] = []

    class Watch(Progress):
        def step(self, *_: object) -> None:
            after.append(float(setup.model.head.conv.weight.detach().double().sum()))  # type: ignore[union-attr, operator]

    Trainer(setup, RunFolder.create(tmp_path / "run", config), Watch()).train()
    assert [step for step, _ in calls] == [0, 1] and [weight for _, weight in calls] == after and after[0] != after[1]
