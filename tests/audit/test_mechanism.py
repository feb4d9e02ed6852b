"""The audit passes the real mechanism and fails each planted fault, by the check that is meant for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import halfmask.audit.mechanism as audit
import halfmask.gradients.engine as engine
import halfmask.training.loop as loop
import halfmask.training.setup as preparation
from halfmask.audit import canaries, checks
from halfmask.audit.canaries import CLIP_NORM, FULL, CanaryTask, Plan, canary_records, quarantine, ready
from halfmask.audit.findings import Finding
from halfmask.data.records import PRIVATE, VIEW, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS, Mechanism, method_named
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training import refresh
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import WEIGHT, PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.public import SharedBatch
from halfmask.training.setup import Setup

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
CLAIM = 1.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with quarantine() as path:
        yield path


def plan(method: str, **changes: Any) -> Plan:
    return replace(Plan(method, CLAIM, audit.DELTA, audit.CANARIES, audit.CANARIES, 1, seed=0), **changes)


def coins(count: int = audit.CANARIES) -> np.ndarray:
    return np.random.default_rng(0).random(count) < 0.5


def one_step(method: str, folder: Path, *settings: str) -> audit.Attack:
    return audit._one_step(audit._Run.of(plan(method, settings=settings), coins(), folder))


def basis_run(method: str, folder: Path) -> audit._Run:
    settings = ("subspace.source=private", "subspace.samples=300", "subspace.dim=300")
    return audit._Run.of(plan(method, units=700, batch=400, settings=settings), coins(700), folder)


def small(method: str, folder: Path, bright: int = 0, *settings: str) -> Trainer:
    chosen = plan(method, units=12, batch=12, settings=(*settings, "public.weight=0"))
    trainer = ready(chosen, chosen.canaries(np.full(12, bright), f"test/{bright}", np.zeros(12, int)), folder)
    trainer.refresh()
    return trainer


def quiet(method: str, folder: Path, *settings: str) -> dict[str, Finding]:
    chosen = plan(method, units=10, batch=2, steps=60, settings=(*settings, "public.weight=0"))
    run = audit._Run.of(chosen, np.zeros(10, bool), folder)
    return {finding.check: finding for finding in checks.constant_divisor(run.witness, run.trainer)}


# Options that claim to leave ε as it is, each with a method that can have it, and all of them together.
FOLLOW, RESIDUAL, FIRST = "private.follow=0.5", "private.residual=true", "subspace.project_first=true"
OPTIONS = [
    ("dpsgd", (FOLLOW,)),
    ("feature-projective", (FOLLOW,)),
    ("feature", (RESIDUAL,)),
    ("feature-projective", (RESIDUAL,)),
    ("projected", (FIRST,)),
    ("feature-projective", (RESIDUAL, FIRST, FOLLOW)),
]


# ---- the real thing ------------------------------------------------------------------------------------------------------


def test_every_noised_method_is_audited() -> None:
    assert audit.private_methods() == [name for name, method in METHODS.items() if method.private == "noised"]
    with pytest.raises(HalfmaskError, match="no mechanism"):
        audit.audit_mechanism(["non-private"])


@pytest.mark.parametrize(("method", "settings"), [(name, ()) for name in audit.private_methods()] + OPTIONS)
def test_canaries_find_no_more_than_was_claimed(method: str, settings: tuple[str, ...], folder: Path) -> None:
    attack = one_step(method, folder, *settings)
    assert attack.withstood(CLAIM) and attack.right > 105, "it must hear the canaries a little, or it is deaf"


def test_the_bound_is_where_theory_puts_it(folder: Path) -> None:
    """σ = 2.23 (ε = 2): the best 200 of 1000 guesses are right about 138 times, which proves about 0.32."""
    rights = [audit._one_step(audit._Run.of(plan("dpsgd", epsilon=2.0, seed=seed), coins(), folder)).right for seed in range(5)]
    assert 130 < np.mean(rights) < 146


@pytest.mark.parametrize(("method", "settings"), [(name, ()) for name in audit.private_methods()] + OPTIONS)
def test_checks_pass(method: str, settings: tuple[str, ...], folder: Path) -> None:
    trainer = small(method, folder, 0, *settings)
    findings = [
        checks.noise_variance(trainer),
        checks.extreme_gradients(trainer),
        checks.step_sensitivity(trainer, 12),
        checks.records_apart(trainer),
        checks.coupled_loss_refused(lambda: small(method, folder, 1, *settings)),
        checks.clip_norm_public(trainer, small(method, folder, FULL, *settings)),
        *quiet(method, folder, *settings).values(),
    ]
    if method_named(method).projected:
        findings.append(checks.basis_does_not_stretch(trainer))
    if method_named(method).view:
        findings.append(checks.public_half_fixed(small(method, folder, 0, *settings), small(method, folder, FULL, *settings)))
    assert [finding.check for finding in findings if not finding.passed] == []


def test_a_sensitivity_that_is_used_up_is_measured_as_such(folder: Path) -> None:
    """The check must reach the bound, not only stay below it: a check that measures nothing passes everything."""
    for method, settings in OPTIONS:
        found = checks.step_sensitivity(small(method, folder, 0, *settings), 12).found
        assert float(found.split("at most ")[1].split()[0]) > 0.999, (method, settings, found)


def test_options_are_audited_with_the_methods_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(audit, "_audit_method", lambda plan, folder: seen.append(plan) or {"passed": True})
    body = audit.audit_mechanism(settings=[RESIDUAL])
    assert [p.method for p in seen] == ["feature", "feature-projective"] and body["settings"] == [RESIDUAL]
    assert all(p.config().private.residual for p in seen)
    assert audit._methods_with([FIRST]) == ["projected", "feature-projective", "masked-projective"]
    for method in ("dpsgd", "masked"):
        with pytest.raises(HalfmaskError, match=r"private\.residual compares"):
            audit.audit_mechanism([method], settings=[RESIDUAL])
    with pytest.raises(HalfmaskError, match="canaries can be sent through"):
        audit.audit_mechanism(settings=["optimiser.learning_rate=1"])


def test_an_audit_repeats(folder: Path) -> None:
    assert one_step("dpsgd", folder) == one_step("dpsgd", folder)


def test_nothing_reaches_the_users_home(fresh_home: Path) -> None:
    with quarantine() as folder:
        one_step("dpsgd", folder)
    assert not fresh_home.exists() or not any(fresh_home.rglob("*.jsonl"))


# ---- noise ---------------------------------------------------------------------------------------------------------------


def scale_noise(patch: pytest.MonkeyPatch, factor: float) -> None:
    real = RandomStream.gaussian
    patch.setattr(RandomStream, "gaussian", lambda self, *a: factor * real(self, *a))


@pytest.mark.parametrize("method", ["dpsgd", "projected", "masked", "masked-projective"])
def test_missing_noise_is_heard_and_measured(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale_noise(monkeypatch, 0.0)
    assert one_step(method, folder).lower_bound > 3 * CLAIM
    assert not checks.noise_variance(small(method, folder)).passed


@pytest.mark.parametrize("method", ["dpsgd", "projected", "masked"])
def test_a_quarter_of_the_noise_is_measured(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries prove about 1 then, which is the claim itself: the variance is what must catch it."""
    scale_noise(monkeypatch, 0.25)
    assert not checks.noise_variance(small(method, folder)).passed
    assert not all(finding.passed for finding in quiet(method, folder).values())


def test_a_small_error_of_the_noise_is_measured_though_not_heard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scale_noise(monkeypatch, 0.99)
    assert one_step("dpsgd", folder).withstood(CLAIM)
    assert not checks.noise_variance(small("dpsgd", folder)).passed


# ---- clip ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dpsgd", "feature-projective", "masked", "masked-projective"])
def test_a_skipped_clip_is_seen(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine._clip_factors

    def unclipped(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        norm, factor, usable = real(*arguments)
        return norm, torch.where(usable, torch.ones_like(factor), factor), usable

    monkeypatch.setattr(engine, "_clip_factors", unclipped)
    assert one_step(method, folder).lower_bound > CLAIM
    trainer = small(method, folder)
    assert not checks.extreme_gradients(trainer).passed
    assert not checks.step_sensitivity(trainer, 12).passed


def test_a_clip_that_nan_gets_past_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = engine._clip_factors

    def trusting(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        norm, factor, usable = real(*arguments)
        return norm, factor, torch.ones_like(usable)

    monkeypatch.setattr(engine, "_clip_factors", trusting)
    trainer = small("dpsgd", folder)
    assert not checks.extreme_gradients(trainer).passed
    assert not checks.step_sensitivity(trainer, 12).passed


def test_a_skipped_clip_of_coordinates_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`subspace.project_first` has a clip of its own."""
    real = engine.ClippingEngine.clipped_coordinates

    def unclipped(self: engine.ClippingEngine, loss: Any, batch: Any, clip_norm: float, *rest: Any) -> engine.ClippedCoordinates:
        return replace(real(self, loss, batch, 1e9, *rest), clip_norm=clip_norm)

    monkeypatch.setattr(engine.ClippingEngine, "clipped_coordinates", unclipped)
    assert one_step("feature-projective", folder, FIRST).lower_bound > CLAIM
    trainer = small("feature-projective", folder, 0, FIRST)
    assert not checks.extreme_gradients(trainer).passed
    assert not checks.step_sensitivity(trainer, 12).passed


@pytest.mark.parametrize(("method", "options"), [("feature", ()), ("feature-projective", ()), ("feature-projective", (FIRST,))])
def test_an_image_and_its_view_clipped_apart_are_seen(
    method: str, options: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each adds C then, at right angles √2 C, opposed 2 C; canaries of one spot are deaf to it."""
    real = PrivateHalf.shown

    def apart(self: PrivateHalf, people: Records, *rest: Any) -> tuple[dict[str, Tensor], Tensor]:
        batch, _ = real(self, people, *rest)
        return batch, torch.arange(len(batch[WEIGHT]))

    monkeypatch.setattr(PrivateHalf, "shown", apart)
    finding = checks.step_sensitivity(small(method, folder, 0, RESIDUAL, *options), 12)
    assert not finding.passed and "1.414" in finding.found


# ---- a clip norm that moves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "options"), [("dpsgd", ()), ("feature-projective", ()), ("feature-projective", (FIRST,))])
def test_noise_that_does_not_follow_the_clip_norm_is_measured(
    method: str, options: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Mechanism._release

    def left_behind(self: Mechanism, *rest: Any) -> Tensor:
        return real(replace(self, clip_norm=CLIP_NORM), *rest)

    monkeypatch.setattr(Mechanism, "_release", left_behind)
    trainer = small(method, folder, 0, FOLLOW, *options)
    assert trainer.noised.mechanism.clip_norm > 1.9 * CLIP_NORM, "it moved"
    assert not checks.noise_variance(trainer).passed
    assert not quiet(method, folder, FOLLOW, *options)["constant-divisor"].passed
    assert checks.noise_variance(small(method, folder, 0, *options)).passed, "without following there is nothing to see"


def test_a_clip_that_runs_ahead_of_the_noise_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PrivateHalf.clipped

    def ahead(self: PrivateHalf, *rest: Any) -> Any:
        here = self.mechanism
        wider = replace(self, mechanism=replace(here, clip_norm=2 * here.clip_norm))
        return replace(real(wider, *rest), clip_norm=here.clip_norm)

    monkeypatch.setattr(PrivateHalf, "clipped", ahead)
    assert not checks.step_sensitivity(small("dpsgd", folder, 0, FOLLOW), 12).passed


def test_a_clip_norm_that_follows_private_people_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = refresh.following
    monkeypatch.setattr(refresh, "following", lambda half, setup, *rest: real(half, replace(setup, watched=setup.private), *rest))
    assert not checks.clip_norm_public(small("dpsgd", folder, 0, FOLLOW), small("dpsgd", folder, FULL, FOLLOW)).passed


# ---- batches -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["feature", "masked"])
def test_a_shared_public_batch_is_heard_and_counted(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shares(Trainer):
        """One batch for both halves, and an accountant who does not know it."""

        def __init__(self, setup: Setup, folder: RunFolder, progress: Progress):
            super().__init__(setup, folder, progress)
            shared = SharedBatch(setup, self.engine, self.exact.showing)
            self.exact, self.noised = shared, replace(self.noised, publish=shared.publish)

    monkeypatch.setattr(canaries, "Trainer", Shares)
    run = audit._Run.of(plan(method, batch=10, steps=1000), coins(), folder)
    assert audit._sampled(run).lower_bound > CLAIM
    monkeypatch.setattr(checks, "_COIN_STEPS", 1000)
    assert not checks.public_batch_independent(run.trainer).passed


@pytest.mark.parametrize("method", ["feature", "masked"])
def test_independent_batches_and_coins_are_counted(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = ready(plan(method, batch=10, steps=100), canary_records(np.zeros(audit.CANARIES, int), "test/count"), folder)
    assert checks.poisson_coins(trainer).passed
    monkeypatch.setattr(checks, "_COIN_STEPS", 2000)
    assert checks.public_batch_independent(trainer).passed
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: torch.randperm(self.units, generator=generator)[:10].sort().values)
    assert not checks.poisson_coins(trainer).passed, "batches of a fixed size"
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: torch.nonzero(self._stream.uniform(self.units) < 1.2 * self.rate).flatten())
    assert not checks.poisson_coins(trainer).passed, "another rate"


@pytest.mark.parametrize("method", ["dpsgd", "masked"])
def test_a_divisor_that_is_the_realised_batch_is_seen(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Mechanism.release_coordinates
    monkeypatch.setattr(
        Mechanism,
        "release_coordinates",
        lambda self, clipped, subspace=None: real(replace(self, expected_batch=max(1, len(clipped.norms))), clipped, subspace),
    )
    assert not quiet(method, folder)["constant-divisor"].passed


@pytest.mark.parametrize("method", ["projected", "masked"])
def test_skipping_an_empty_batch_is_seen(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Mechanism.release_coordinates
    monkeypatch.setattr(
        Mechanism,
        "release_coordinates",
        lambda self, clipped, subspace=None: real(self, clipped, subspace) * (1.0 if len(clipped.norms) else 0.0),
    )
    found = quiet(method, folder)
    assert found["constant-divisor"].passed and not found["empty-batch-noised"].passed


# ---- what is public ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["projected", "feature-projective", "masked-projective"])
def test_s_pub_left_in_the_private_set_is_heard_and_found(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = basis_run(method, folder)
    assert audit._basis(run).withstood(CLAIM) and checks.basis_apart(run.trainer).passed
    real = preparation.set_basis_apart
    left_in = lambda config, method, data, *gone: (data.private, real(config, method, data, *gone)[1])  # noqa: E731
    monkeypatch.setattr(preparation, "set_basis_apart", left_in)
    run = basis_run(method, folder)
    assert audit._basis(run).lower_bound > CLAIM
    assert not checks.basis_apart(run.trainer).passed


@pytest.mark.parametrize("method", ["feature", "masked"])
def test_a_view_that_is_computed_after_augmentation_is_seen(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, view = Records.batch, small(method, folder).setup.view

    def augmented(self: Records, records: Any, source: str = PRIVATE, device: Any = "cpu") -> dict[str, Tensor]:
        batch = real(self, records, PRIVATE, device)
        if source == VIEW:
            moved = np.roll(batch["image"].numpy(), (1, 1), (2, 3))
            batch["image"] = torch.from_numpy(np.stack([view.of({"image": image}).public["image"] for image in moved]))
        return batch

    monkeypatch.setattr(Records, "batch", augmented)
    finding = checks.public_half_fixed(small(method, folder), small(method, folder, FULL))
    assert not finding.passed and " 0 change" not in finding.found, "the public half shows the private spot"


def test_a_basis_that_stretches_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small("projected", folder)
    real = Subspace.from_gradients.__func__  # type: ignore[attr-defined]

    def rounded(cls: type[Subspace], gradients: Tensor, dimension: int) -> Subspace:
        subspace = real(cls, gradients, dimension)
        return replace(subspace, rows=subspace.rows * 1.01)

    monkeypatch.setattr(Subspace, "from_gradients", classmethod(rounded))
    assert not checks.basis_does_not_stretch(trainer).passed


# ---- the loss ------------------------------------------------------------------------------------------------------------


def test_a_coupled_loss_fails_the_sensitivity_check_and_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CanaryTask.loss
    monkeypatch.setattr(CanaryTask, "loss", lambda self, model, batch: real(self, model, batch) * batch["labelled"].sum())
    found = checks.records_apart(small("dpsgd", folder))
    assert not found.passed
    attack = one_step("dpsgd", folder)
    assert not attack.withstood(CLAIM) and "coupled" in attack.refused


def test_a_missing_refusal_is_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "check_records_apart", lambda *a: None)
    assert not checks.coupled_loss_refused(lambda: small("dpsgd", folder, 1)).passed
