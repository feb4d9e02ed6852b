"""Options of the noised half: each keeps the sensitivity at C and the noise at σC, and reads nobody private to choose a setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import halfmask.training.private as private_half
from halfmask.data.records import PRIVATE, VIEW
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippedCoordinates, ClippedSum
from halfmask.tasks.pose import PoseTask, best_sharpness, pose_loss
from halfmask.training.config import PrivateConfig, RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import WEIGHT, PrivateHalf, unit_loss
from halfmask.training.progress import Progress
from halfmask.training.refresh import calibrated
from halfmask.training.running import run_training
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
    batch, units = trainer.noised.shown(people, chosen, torch.arange(4), torch.ones(4), 0)
    engine = trainer.engine
    apart = engine.per_record_gradients(pose_loss, people.batch(chosen, PRIVATE)) - engine.per_record_gradients(
        pose_loss, people.batch(chosen, VIEW)
    )
    norms = apart.double().norm(dim=1)
    clip = float(norms.median())
    trainer.noised = replace(trainer.noised, mechanism=replace(trainer.noised.mechanism, clip_norm=clip))
    found = trainer.noised.clipped(batch, units)
    assert isinstance(found, ClippedSum)
    assert torch.allclose(found.norms, norms, rtol=1e-3)
    expected = (apart * (clip / norms.clamp(min=clip))[:, None].float()).sum(0)
    assert float((found.flat() - expected).norm() / expected.norm()) < 1e-3


def test_one_persons_residual_never_exceeds_the_clip_norm(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="feature-projective"), residual=True), tmp_path / "run")
    trainer.noised = replace(trainer.noised, mechanism=replace(trainer.noised.mechanism, clip_norm=1e-3))
    for person in range(3):
        batch, units = trainer.noised.shown(trainer.setup.private, np.array([person]), torch.tensor([person]), torch.ones(1), 0)
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
            features = {source: values * 3 + 1 for source, values in private.features.items()}
            changed = private.changed(images=255 - private.images, features=features)  # type: ignore[attr-defined]
            trainer.setup, trainer.noised = replace(trainer.setup, private=changed), replace(trainer.noised, records=changed)
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
    batch, units = trainer.noised.shown(trainer.setup.private, np.arange(3), torch.arange(3), torch.ones(3), 0)
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
    assert calibrated(trainer.noised, trainer.setup).sharpness == best_sharpness(model, batch)


def test_sharpness_scales_the_logits_of_the_loss(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(with_private(tiny_config(method="dpsgd"), calibrate=True), tmp_path / "run")
    trainer.noised = replace(trainer.noised, sharpness=0.5)
    batch, _ = trainer.noised.shown(trainer.setup.private, np.arange(4), torch.arange(4), torch.ones(4), 0)
    softer = trainer.noised.loss(trainer.setup.model, batch)
    head = trainer.setup.model.head
    with torch.no_grad():
        for layer in (head.x_bins, head.y_bins):
            layer.weight *= 0.5
            layer.bias *= 0.5
    plain = pose_loss(trainer.setup.model, {name: tensor for name, tensor in batch.items() if name != "sharpness"})
    assert torch.allclose(softer, plain, rtol=1e-4)


def test_calibration_looks_at_watched_people_alone(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(PoseTask, "calibrate", lambda task, model, batches: shown.extend(batches) or 0.5)
    trainer = trainer_for(with_private(tiny_config(method="feature-projective"), calibrate=True), tmp_path / "run")
    assert calibrated(trainer.noised, trainer.setup).sharpness == 0.5 and trainer.setup.watched is not None
    expected = trainer.setup.watched.batch(np.arange(len(trainer.setup.watched)))
    assert all(torch.equal(torch.cat([batch[name] for batch in shown]), expected[name]) for name in expected)


def test_calibration_without_public_people_is_refused(tiny_config: Build) -> None:
    config = with_private(tiny_config("data.public=0", method="dpsgd"), calibrate=True)
    with pytest.raises(HalfmaskError, match="whom nothing is trained on"):
        prepare(config, Progress())


def draws(monkeypatch: pytest.MonkeyPatch, half: PrivateHalf, units: list[int]) -> None:
    monkeypatch.setattr(half.poisson, "draw", lambda: torch.tensor(units, dtype=torch.long))


@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
def test_coins_are_tossed_for_units(unit: str, tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(tiny_config(unit=unit, batch=4), tmp_path / "run")
    private = trainer.setup.private
    units = np.unique(private.unit_ids(unit))
    assert trainer.noised.poisson.units == len(units) == len(trainer.setup.units)
    assert trainer.noised.poisson.expected_batch == pytest.approx(4) == trainer.noised.mechanism.expected_batch
    seen: list[Any] = []
    real = trainer.engine.clipped_sum
    monkeypatch.setattr(trainer.engine, "clipped_sum", lambda *a: seen.append(a) or real(*a))
    draws(monkeypatch, trainer.noised, [1, 3])
    trainer.take_step()
    _, batch, clip_norm, unit_index, _ = seen[0]
    members = [trainer.setup.units.members[i] for i in (1, 3)]
    assert clip_norm == trainer.setup.config.clip_norm == trainer.noised.mechanism.clip_norm
    assert unit_index.tolist() == [1] * len(members[0]) + [3] * len(members[1])
    assert torch.equal(batch["joints"], torch.from_numpy(private.joints[np.concatenate(members)]))
    for group in members:
        assert len(set(private.unit_ids(unit)[group].tolist())) == 1


def test_streams_for_coins_and_noise_are_apart(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = private_half.open_stream
    monkeypatch.setattr(private_half, "open_stream", lambda *a: opened.append(a) or real(*a))
    trainer_for(tiny_config(), tmp_path / "run")
    assert [arguments[:3] for arguments in opened] == [("coins", 1, 0), ("noise", 1, 0)]
    assert opened[0][3] and not opened[1][3:], "a key for the coins, which several processes share; the noise keeps its own to itself"


# ---- the weight of a record in its unit ----------------------------------------------------------------------------------


def test_weights_scale_each_record_and_no_task_sees_them() -> None:
    seen: list[set[str]] = []

    def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.append(set(batch))
        return model(batch["x"])[:, 0]

    model, x = nn.Linear(2, 1), torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([1.0, 0.5, -2.0])
    weighed = unit_loss(loss)
    assert torch.allclose(weighed(model, {"x": x, WEIGHT: weight}), model(x)[:, 0] * weight)
    assert torch.equal(weighed(model, {"x": x}), model(x)[:, 0])
    assert seen == [{"x"}, {"x"}]


def units_have_the_gradient_of_the_recipe(half: PrivateHalf, gradient: str) -> bool:
    """The mean, or the sum, of the gradients of a unit's records: here of a unit with several, and unclipped."""
    number = int(np.argmax([len(group) for group in half.units.members]))
    rows, index, weight = half.units.records_of(torch.tensor([number]))
    assert len(rows) > 1
    half = replace(half, mechanism=replace(half.mechanism, clip_norm=1e6))
    found = half.clipped(*half.shown(half.records, rows, index, weight, 0))
    each = half.engine.per_record_gradients(pose_loss, half.records.batch(rows))
    expected = each.mean(0) if gradient == "mean" else each.sum(0)
    return float((found.flat() - expected).norm() / expected.norm()) < 1e-3  # type: ignore[union-attr]


@pytest.mark.parametrize("gradient", ["mean", "sum"])
@pytest.mark.parametrize("times", [0, 1])
def test_a_units_gradient_is_the_mean_or_the_sum_of_its_records(gradient: str, times: int, tiny_config: Build, tmp_path: Path) -> None:
    """Shown as they are, and shown once after a change that changes nothing."""
    still = ("flip", "shift", "scale", "rotation", "half_body")
    unchanged = [f"augment.change.{name}=0" for name in still] + ["augment.change.colour=false", f"augment.times={times}"]
    config = tiny_config(f"unit_gradient={gradient}", *unchanged, unit="subject", strategy="full", batch=4)
    half = trainer_for(config, tmp_path / "run").noised
    assert units_have_the_gradient_of_the_recipe(half, gradient)
    ignoring = replace(half, loss=lambda model, batch: pose_loss(model, batch))
    assert units_have_the_gradient_of_the_recipe(ignoring, gradient) == (gradient == "sum"), "weights that are ignored are seen"


def test_several_showings_weigh_as_much_as_one(tiny_config: Build, tmp_path: Path) -> None:
    config = tiny_config("augment.times=3", unit="subject", strategy="full", batch=4)
    half = trainer_for(config, tmp_path / "run").noised
    rows, index, weight = half.units.records_of(torch.arange(len(half.units)))
    batch, shown = half.shown(half.records, rows, index, weight, 0)
    totals = torch.zeros(len(half.units)).index_add(0, shown, batch[WEIGHT])
    assert len(shown) == 3 * len(rows) and torch.allclose(totals, torch.ones(len(half.units)))


# ---- what is shown, and what leaves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_where_a_view_leaves_a_rest_the_rest_is_shown(residual: bool, tiny_config: Build, tmp_path: Path) -> None:
    """What is public of a record is not noised a second time; and a residual is of what stays private."""
    trainer = trainer_for(with_private(tiny_config(method="feature", strategy="full"), residual=residual), tmp_path / "run")
    people = trainer.setup.private
    rest = np.array(people.images) // 3  # type: ignore[attr-defined]
    divided = replace(people, rest=Arrays({"image": rest}))
    rows = np.array([5, 2])
    for records, expected in ((people, people.images), (divided, rest)):  # type: ignore[attr-defined]
        batch, _ = trainer.noised.shown(records, rows, torch.arange(2), torch.ones(2), 0)
        parts = [expected[rows], people.views[rows]] if residual else [expected[rows]]  # type: ignore[attr-defined]
        assert np.array_equal(batch["image"].numpy(), np.concatenate(parts))
        assert batch[WEIGHT].tolist() == [1.0, 1.0, -1.0, -1.0][: len(batch[WEIGHT])]


def test_nothing_leaves_but_what_the_mechanism_releases(tiny_config: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = trainer_for(tiny_config("private.weight=2"), tmp_path / "run").noised
    told: list[np.ndarray] = []
    fixed = torch.arange(half.engine.size, dtype=torch.float32)
    object.__setattr__(half.mechanism, "release_coordinates", lambda clipped, subspace: fixed)
    draws(monkeypatch, half, [3, 1])
    released = replace(half, publish=told.append).release(0)
    assert torch.equal(released.gradient, 2 * fixed) and released.move is None  # type: ignore[arg-type]
    assert [rows.tolist() for rows in told] == [np.concatenate([half.units.members[i] for i in (3, 1)]).tolist()]
    assert half.release(0).gradient is not None and len(told) == 1, "nobody else is told"


def test_going_on_opens_noise_that_was_never_used(tiny_config: Build, tmp_path: Path) -> None:
    trainer = trainer_for(tiny_config(), tmp_path / "run")
    whole = trainer.noised
    again, later = (whole.resumed(trainer.setup, paid, (0.1, 0.7)) for paid in (0, 3))
    assert again.mechanism.clip_norm == later.mechanism.clip_norm == 0.7 and later.clip_norms == (0.1, 0.7)
    numbers = [half.mechanism.noise.gaussian(50) for half in (whole, again, later)]
    assert torch.equal(numbers[0], numbers[1]) and not torch.equal(numbers[1], numbers[2])
    assert later.records is whole.records and later.loss is whole.loss


def test_the_open_half_is_the_mean_gradient_of_a_shuffled_batch(tiny_config: Build, tmp_path: Path) -> None:
    """No clip, no noise, no coins: each person once before anybody twice."""
    trainer = trainer_for(tiny_config(method="non-private", batch=20), tmp_path / "run")
    again = trainer_for(tiny_config(method="non-private", batch=20), tmp_path / "again")
    drawn = [again.open.sampler.draw() for _ in range(2)]
    assert torch.cat(drawn).sort().values.tolist() == list(range(40))
    for rows in drawn:
        expected, _ = again.engine.mean_gradient(pose_loss, again.setup.private.batch(rows))
        released = trainer.open.release(0)
        assert torch.allclose(released.gradient, expected, atol=1e-7) and released.move is None  # type: ignore[arg-type]
