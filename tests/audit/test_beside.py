"""The audit of a generator's run passes the real code, and fails each planted fault by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import halfmask.audit.own as audit
from halfmask.audit.own import audit_loss
from halfmask.data.pictures import PictureRecords, picture_records
from halfmask.data.records import PRIVATE
from halfmask.errors import HalfmaskError
from halfmask.gradients.clipped import ClippedSum
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.models.posegan import PoseGAN
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.tasks.generate import GenerateTask
from halfmask.tasks.generate_halves import FakeHalf, GeneratorSteps, fake_loss
from halfmask.training.config import build_config
from halfmask.training.loop import Trainer
from halfmask.training.private import PrivateHalf, unit_loss

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "tiny_posegan")
Patch = pytest.MonkeyPatch
SIDE = 16
RELEASE, PAID, COINS, NOISE, DIVISOR = "nothing-but-the-release", "paid-ahead", "poisson-coins", "noise-variance", "constant-divisor"
UNITS, LOUD, ONE = "units-apart", "step-sensitivity, all clipped", "unit-is-one"


def people() -> PictureRecords:
    rng = np.random.default_rng(0)
    joints = np.concatenate([SIDE * rng.random((6, 16, 2)), np.ones((6, 16, 1))], -1)
    images = rng.integers(0, 256, (6, 3, SIDE, SIDE), dtype=np.uint8)
    return picture_records(images, joints, np.zeros(6), np.arange(6), np.arange(6) // 2, "some people")


def audited(*settings: str) -> dict[str, Any]:
    # So wide that the gradients of noise are not all clipped: the loud checks see to those.
    body = {"task": "generate", "strategy": "full", "method": "dpsgd", "clip_norm": 0.5, "unit": "image"}
    sides = [f"data.height={SIDE}", f"data.width={SIDE}"]
    config = build_config(body, {}, ["model.size=tiny", "model.bound=none", *sides, *settings])
    torch.manual_seed(0)
    model = PoseGAN("tiny", 16, SIDE, SIDE, conditional=config.model.conditional)
    task = GenerateTask(config)
    task.trainable(model, "full")
    return audit_loss(task, model, people(), config)


def failed(*settings: str) -> set[str]:
    return {check["check"] for check in audited(*settings)["checks"] if not check["passed"]}


WAYS = [
    ("model.clip=real",),
    ("model.clip=pair", "model.bound=weights"),
    ("model.clip=real", "model.conditional=true", "model.bound=spectral", "model.average=0.5"),
    ("model.clip=real", "model.bound=penalty", "model.anchor=1"),
]


@pytest.mark.parametrize("settings", WAYS, ids=["real", "pair", "conditional", "penalty"])
def test_the_real_code_passes(settings: tuple[str, ...]) -> None:
    body = audited(*settings)
    names = [check["check"] for check in body["checks"]]
    assert body["passed"], [check for check in body["checks"] if not check["passed"]]
    assert len(names) == 12 and {RELEASE, PAID} <= set(names)
    assert body["trained_numbers"] == sum(
        weight.numel() for weight in PoseGAN("tiny", 16, SIDE, SIDE, "true" in str(settings)).critic.parameters()
    )


def test_means_have_no_loss_to_audit() -> None:
    with pytest.raises(HalfmaskError, match="--method dpsgd"):
        audited("model.critic=means")


# ---- what stands beside the noised half ----------------------------------------------------------------------------------


def rows_are_remembered(patch: Patch) -> list[np.ndarray]:
    """Whom the last private batch held."""
    drawn = [np.zeros(0, np.int64)]
    real = PrivateHalf.pieces

    def pieces(self: PrivateHalf, people: Any, rows: np.ndarray, *rest: Any) -> Any:
        drawn[0] = rows
        return real(self, people, rows, *rest)

    patch.setattr(PrivateHalf, "pieces", pieces)
    return drawn


def poses_of_the_batch(patch: Patch) -> None:
    """Generated pictures in the poses of whoever is in the private batch, as the paper's are."""
    drawn, real = rows_are_remembered(patch), FakeHalf._fakes

    def fakes(self: FakeHalf, number: int) -> Any:
        everyone, rows = self.poses.joints, drawn[0]
        self.poses.joints = everyone[rows] if len(rows) else everyone
        try:
            return real(self, number)
        finally:
            self.poses.joints = everyone

    patch.setattr(FakeHalf, "_fakes", fakes)


def as_many_as_the_batch(patch: Patch) -> None:
    """As many generated pictures as there are real ones."""
    drawn, real = rows_are_remembered(patch), FakeHalf._fakes

    def fakes(self: FakeHalf, number: int) -> Any:
        usual, self.size = self.size, max(1, len(drawn[0]))
        try:
            return real(self, number)
        finally:
            self.size = usual

    patch.setattr(FakeHalf, "_fakes", fakes)


def generator_sees_somebody(patch: Patch) -> None:
    """The generator is also told how far its pictures are from a real one."""
    real = GeneratorSteps.lost

    def lost(self: GeneratorSteps, drawn: Tensor, maps: Tensor, joints: Tensor) -> Tensor:
        somebody = torch.from_numpy(self.setup.private.part(PRIVATE).rows(np.array([0]))["image"]).float() / 127.5 - 1
        return real(self, drawn, maps, joints) + (drawn - somebody).abs().mean()

    patch.setattr(GeneratorSteps, "lost", lost)


def fake_of_the_pair_beside(patch: Patch) -> None:
    """Of the pair the real picture alone is clipped and noised; the generated ones of the very batch are exact, beside it."""
    drawn, real = rows_are_remembered(patch), FakeHalf.gradient

    def gradient(self: FakeHalf) -> Tensor:
        fakes = self._fakes(int(drawn[0].sum()))
        return real(self) + self.engine.mean_gradient(fake_loss, fakes)[0]

    patch.setattr(FakeHalf, "gradient", gradient)


def fake_of_the_pair_unclipped(patch: Patch) -> None:
    """Both are noised, but the clip is of the real one."""

    def clipped(self: PrivateHalf, batch: dict[str, Tensor], unit_index: Tensor) -> ClippedSum:
        fakes_alone = unit_loss(lambda model, shown: self.loss(model, shown | {"image": torch.full_like(shown["image"], 128)}))
        clip = self.mechanism.clip_norm
        real = self.engine.clipped_sum(self.loss, batch, clip, unit_index)
        beside = self.engine.clipped_sum(fakes_alone, batch, 1e9, unit_index)
        return replace(real.besides(replace(beside, clip_norm=clip), 2 * clip), clip_norm=clip)

    patch.setattr(PrivateHalf, "clipped", clipped)


# ---- the mechanism -------------------------------------------------------------------------------------------------------


def slots(patch: Patch) -> None:
    """As many slots as the batch has, each filled with somebody, with replacement."""
    coins = torch.Generator().manual_seed(0)

    def draw(self: PoissonSampler) -> Tensor:
        return torch.randint(self.units, (round(self.expected_batch),), generator=coins).unique()

    patch.setattr(PoissonSampler, "draw", draw)


def slots_of_the_right_number(patch: Patch) -> None:
    """With replacement as well; but there are as many slots as coins would have fallen, so that the size of a batch shows nothing."""
    coins = torch.Generator().manual_seed(0)

    def draw(self: PoissonSampler) -> Tensor:
        count = int((torch.rand(self.units, generator=coins) < self.rate).sum())
        return torch.randint(self.units, (count,), generator=coins).sort().values

    patch.setattr(PoissonSampler, "draw", draw)


def coins_that_favour_some(patch: Patch) -> None:
    """Half of the people enter more often than others, and as many do as should."""
    coins = torch.Generator().manual_seed(0)

    def draw(self: PoissonSampler) -> Tensor:
        rates = self.rate * (1 + 0.2 * (-1.0) ** torch.arange(self.units))
        return torch.nonzero(torch.rand(self.units, generator=coins) < rates).flatten()

    patch.setattr(PoissonSampler, "draw", draw)


def noise_off(patch: Patch) -> None:
    real = RandomStream.gaussian
    patch.setattr(RandomStream, "gaussian", lambda self, *rest: 0.0 * real(self, *rest))


def noise_of_the_paper(patch: Patch) -> None:
    """Its formula lacks the division by ε: at ε = 1 that is no matter, at ε = 0.5 it is half of what is needed."""
    real = Mechanism._release
    patch.setattr(Mechanism, "_release", lambda self, *rest: real(replace(self, noise_multiplier=0.5 * self.noise_multiplier), *rest))


def no_clip(patch: Patch) -> None:
    real = ClippingEngine.clipped_sum

    def clipped(self: ClippingEngine, loss: Any, batch: Any, clip_norm: float, *rest: Any, **named: Any) -> ClippedSum:
        return replace(real(self, loss, batch, 1e9, *rest, **named), clip_norm=clip_norm)

    patch.setattr(ClippingEngine, "clipped_sum", clipped)


def clip_of_each_image(patch: Patch) -> None:
    """Each image of a person is clipped, and not the person."""
    real = ClippingEngine.clipped_sum

    def clipped(self: ClippingEngine, loss: Any, batch: Any, clip_norm: float, units: Any = None, *rest: Any, **named: Any) -> ClippedSum:
        return real(self, loss, batch, clip_norm, None, *rest, **named)

    patch.setattr(ClippingEngine, "clipped_sum", clipped)


def coupled(patch: Patch) -> None:
    """The critic's value of a picture is counted from the mean of the batch: its gradient is then the others' too."""
    real = GenerateTask.loss

    def loss(self: GenerateTask, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        losses = real(self, model, batch)
        return losses - 0.5 * losses.mean()

    patch.setattr(GenerateTask, "loss", loss)


def budget_after_the_step(patch: Patch) -> None:
    """As printed: the step is taken, then what was spent is looked at."""

    class Late(Trainer):
        def take_step(self) -> None:
            super().take_step()
            self.payments.ahead(1, self.noised)

        def make_ready(self, stop_at: int) -> None:
            pay, self.payments.ahead = self.payments.ahead, lambda steps, half: None  # type: ignore[method-assign]
            super().make_ready(stop_at)
            self.payments.ahead = pay  # type: ignore[method-assign]

    patch.setattr(audit, "Trainer", Late)


FAULTS: list[tuple[Callable[[Patch], None], tuple[str, ...], set[str]]] = [
    (poses_of_the_batch, WAYS[0], {RELEASE}),
    (as_many_as_the_batch, WAYS[0], {RELEASE}),
    (generator_sees_somebody, WAYS[0], {RELEASE}),
    (generator_sees_somebody, WAYS[1], {RELEASE}),
    (fake_of_the_pair_beside, WAYS[1], {RELEASE}),
    (fake_of_the_pair_unclipped, WAYS[1], {UNITS, LOUD, ONE}),
    (budget_after_the_step, WAYS[0], {PAID}),
    (slots, WAYS[0], {COINS}),
    (slots_of_the_right_number, WAYS[0], {COINS}),
    (coins_that_favour_some, WAYS[0], {COINS}),
    (noise_off, WAYS[0], {NOISE, DIVISOR}),
    (noise_of_the_paper, WAYS[0], {NOISE, DIVISOR}),
    (no_clip, WAYS[0], {LOUD, ONE}),
    (no_clip, WAYS[1], {LOUD, ONE}),
    (clip_of_each_image, WAYS[0], {ONE}),
    (coupled, WAYS[0], {"records-apart"}),
]


@pytest.mark.parametrize(("plant", "settings", "caught"), FAULTS, ids=[f"{plant.__name__}-{way[0][11:]}" for plant, way, _ in FAULTS])
def test_a_planted_fault_is_caught_by_the_check_that_is_meant_for_it(
    plant: Callable[[Patch], None], settings: tuple[str, ...], caught: set[str], monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    assert caught <= failed(*settings)
