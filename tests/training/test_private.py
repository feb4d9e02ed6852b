"""Options of the noised half: each keeps the sensitivity at C and the noise at σC, and reads nobody private to choose a setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippedCoordinates, ClippedSum
from halfmask.tasks.pose import best_sharpness, pose_loss
from halfmask.training.config import PrivateConfig, RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.running import run_training
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.refresh import calibrate
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
Build = Callable[..., RunConfig]


def trainer_for(config: RunConfig, folder: Path) -> Trainer:
    return Trainer(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


def with_private(config: RunConfig, **values: object) -> RunConfig:
    return replace(config, private=PrivateConfig(**values)).checked()  # type: ignore[arg-type]


# ---- residual ------------------------------------------------------------------------------------------------------------


def test_a_residual_is_the_image_less_its_view_clipped_as_one(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="feature"), residual=True), tmp_path / "run")
    people = trainer.setup.private
    chosen = np.arange(4)
    batch, units = trainer.noised.shown(people, chosen, torch.arange(4), torch.ones(4))
    engine = trainer.engine
    apart = engine.per_record_gradients(pose_loss, people.batch(chosen, "image")) - engine.per_record_gradients(
        pose_loss, people.batch(chosen, "view")
    )
    norms = apart.double().norm(dim=1)
    clip = float(norms.median())
    trainer.noised.mechanism = replace(trainer.noised.mechanism, clip_norm=clip)
    found = trainer.noised.clipped(batch, units)
    assert isinstance(found, ClippedSum)
    assert torch.allclose(found.norms, norms, rtol=1e-3)
    expected = (apart * (clip / norms.clamp(min=clip))[:, None].float()).sum(0)
    assert float((found.flat() - expected).norm() / expected.norm()) < 1e-3


def test_one_persons_residual_never_exceeds_the_clip_norm(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="feature-projective"), residual=True), tmp_path / "run")
    trainer.noised.mechanism = replace(trainer.noised.mechanism, clip_norm=1e-3)
    for person in range(3):
        batch, units = trainer.noised.shown(trainer.setup.private, np.array([person]), torch.tensor([person]), torch.ones(1))
        clipped = trainer.noised.clipped(batch, units)
        assert isinstance(clipped, ClippedSum)
        assert len(clipped.norms) == 1, "image and view are one unit: clipped apart, one person could add twice the clip norm"
        assert float(clipped.flat().double().norm()) <= 1e-3


def test_residuals_need_a_view(tiny_config: Build) -> None:
    with pytest.raises(HalfmaskError, match="has none"):
        with_private(tiny_config(method="dpsgd"), residual=True)


# ---- a clip norm that follows public people ------------------------------------------------------------------------------


def test_the_clip_norm_is_a_quantile_of_public_norms(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="dpsgd"), follow=0.5), tmp_path / "run")
    people = trainer.setup.watched or trainer.setup.basis
    assert people is not None
    trainer.refresh()
    rows = trainer.engine.per_record_gradients(pose_loss, people.batch(torch.arange(len(people))))
    assert trainer.noised.mechanism.clip_norm == pytest.approx(float(rows.double().norm(dim=1).quantile(0.5)), rel=1e-3)
    assert trainer.noised.mechanism.noise_multiplier == trainer.setup.noise_multiplier, "σ is in units of C"


def test_the_clip_norm_does_not_look_at_private_people(tiny_config: Build, tmp_path: Path) -> None:
    config = with_private(tiny_config(method="projected"), follow=0.7)
    clips = []
    for name in ("one", "other"):
        trainer = trainer_for(config, tmp_path / name)
        if name == "other":
            private = trainer.setup.private
            changed = replace(private, images=255 - private.images, features={k: v * 3 + 1 for k, v in private.features.items()})
            trainer.setup = replace(trainer.setup, private=changed)
        trainer.refresh()
        clips.append(trainer.noised.mechanism.clip_norm)
    assert clips[0] == clips[1] != config.clip_norm


def test_noise_grows_with_the_clip_norm_it_follows(tiny_config: Build, tmp_path: Path) -> None:
    """Otherwise a C that rose would be noised for the C that was."""
    config = with_private(tiny_config(method="dpsgd", clip_norm=1e-6), follow=0.5)
    trainer = trainer_for(config, tmp_path / "run")
    trainer.refresh()
    clip = trainer.noised.mechanism.clip_norm
    assert clip > 1e-3
    nothing = ClippedSum(torch.zeros(0), clip, 0, {name: torch.zeros_like(p) for name, p in trainer.engine.parameters.items()})
    noise = trainer.noised.mechanism.release(nothing).double()
    expected = trainer.setup.noise_multiplier * clip / trainer.noised.poisson.expected_batch
    assert float(noise.square().mean().sqrt()) == pytest.approx(expected, rel=0.05)


def test_a_run_that_follows_says_so(tiny_config: Build, tmp_path: Path) -> None:
    config = replace(tiny_config(method="feature-projective"), insecure_seed=None)
    folder = run_training(with_private(config, follow=0.5, residual=True), tmp_path / "run")
    certificate = json.loads((folder / "certificate.json").read_text())
    assert any("clip norm moved" in line for line in certificate["public_assumptions"])
    assert not certificate["unaccounted_reads"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert any(line["event"] == "clip" for line in lines)


# ---- projecting first, weighing, averaging -------------------------------------------------------------------------------


def test_projecting_first_clips_coordinates(tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(method="projected")
    config = replace(config, subspace=replace(config.subspace, project_first=True)).checked()
    trainer = trainer_for(config, tmp_path / "run")
    trainer.refresh()
    batch, units = trainer.noised.shown(trainer.setup.private, np.arange(3), torch.arange(3), torch.ones(3))
    clipped = trainer.noised.clipped(batch, units)
    assert isinstance(clipped, ClippedCoordinates) and len(clipped.coordinates) == trainer.noised.subspace.dimension  # type: ignore[union-attr]
    assert float(clipped.coordinates.norm()) <= 3 * trainer.noised.mechanism.clip_norm
    trainer.take_step()


def test_the_weight_scales_signal_and_noise_alike(tiny_config: Build, tmp_path: Path) -> None:
    updates = []
    for weight in (1.0, 3.0):
        config = with_private(tiny_config(method="dpsgd", insecure_seed=4), weight=weight)
        trainer = trainer_for(config, tmp_path / f"run{weight}")
        seen: list[torch.Tensor] = []
        trainer._apply = lambda update, move=None, seen=seen: seen.append(update)  # type: ignore[method-assign, misc]
        trainer.take_step()
        updates.append(seen[0])
    assert torch.allclose(updates[1], 3 * updates[0], rtol=1e-5)


def test_the_average_of_the_weights_is_released(tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config(method="public-only")
    config = replace(config, optimiser=replace(config.optimiser, average=0.9)).checked()
    trainer = trainer_for(config, tmp_path / "run")
    name = next(iter(trainer.engine.parameters))
    expected = trainer.engine.parameters[name].detach().clone()
    for _ in range(3):
        trainer.take_step()
        trainer.standing.step += 1
        expected = 0.9 * expected + 0.1 * trainer.engine.parameters[name].detach()
    last = trainer.engine.parameters[name].detach().clone()
    trainer.optimiser.release_average()
    assert torch.allclose(trainer.engine.parameters[name], expected, rtol=1e-5)
    assert not torch.allclose(expected, last)
    folder = run_training(config, tmp_path / "whole")
    assert set(load_file(folder / "model.safetensors")) >= {name}


@pytest.mark.parametrize("setting", ["private.follow=1.5", "private.weight=-1", "optimiser.average=1"])
def test_settings_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(HalfmaskError, match=setting.partition("=")[0]):
        build_config({}, {}, [setting])


def test_a_model_too_sure_of_itself_is_found_out(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="dpsgd"), calibrate=True), tmp_path / "run")
    model, watched = trainer.setup.model, trainer.setup.watched
    assert watched is not None
    batch = watched.batch(np.arange(len(watched)))
    before = best_sharpness(model, batch)
    with torch.no_grad():
        for layer in (model.head.x_bins, model.head.y_bins):
            layer.weight *= 4
            layer.bias *= 4
    assert best_sharpness(model, batch) == pytest.approx(before / 4, rel=0.01) or before == 0.125
    calibrate(trainer)
    assert trainer.noised.sharpness == best_sharpness(model, batch)


def test_sharpness_scales_the_logits_of_the_loss(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="dpsgd"), calibrate=True), tmp_path / "run")
    trainer.noised.sharpness = 0.5
    batch, _ = trainer.noised.shown(trainer.setup.private, np.arange(4), torch.arange(4), torch.ones(4))
    softer = pose_loss(trainer.setup.model, batch)
    head = trainer.setup.model.head
    with torch.no_grad():
        for layer in (head.x_bins, head.y_bins):
            layer.weight *= 0.5
            layer.bias *= 0.5
    plain = pose_loss(trainer.setup.model, {name: tensor for name, tensor in batch.items() if name != "sharpness"})
    assert torch.allclose(softer, plain, rtol=1e-4)


def test_calibration_looks_at_watched_people_alone(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr("halfmask.training.refresh.best_sharpness", lambda model, batch: shown.append(batch) or 0.5)
    trainer = trainer_for(with_private(tiny_config(method="feature-projective"), calibrate=True), tmp_path / "run")
    calibrate(trainer)
    assert trainer.noised.sharpness == 0.5 and trainer.setup.watched is not None
    expected = trainer.setup.watched.batch(np.arange(len(trainer.setup.watched)))
    assert all(torch.equal(shown[0][name], expected[name]) for name in expected)


def test_calibration_without_public_people_is_refused(tiny_config: Build) -> None:
    config = with_private(tiny_config("data.public=0", method="dpsgd"), calibrate=True)
    with pytest.raises(HalfmaskError, match="whom nothing is trained on"):
        prepare(config, Progress())
