"""The task `generate`: two ways to clip, generated pictures by public randomness alone, a generator that is shown nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import check_records_apart
from halfmask.models.posegan import SHAPES, PoseGAN
from halfmask.tasks.generate import GenerateTask
from halfmask.tasks.generate_halves import FakeHalf, GeneratorSteps
from halfmask.tasks.generate_pretraining import Encoder
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.pretrain import pretrain
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.setup import Setup, prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
SMALL = (
    "data.private=24",
    "data.public=60",
    "data.public_skip=0",
    "data.test=8",
    "data.height=32",
    "data.width=32",
    "model.weights=null",
    "model.generator_batch=4",
    "subspace.samples=4",
    "batch=8",
    "epochs=0.6",
)


def config_of(*settings: str, **flags: object) -> RunConfig:
    return build_config(load_recipe("generate/critic"), {"even_so": True, "insecure_seed": 1, **flags}, [*SMALL, *settings])


@pytest.fixture
def trainer_of(tmp_path: Path) -> Callable[..., Trainer]:
    def made(*settings: str, name: str = "run", **flags: object) -> Trainer:
        config = config_of(*settings, **flags)
        return Trainer(prepare(config, Progress()), RunFolder.create(tmp_path / name, config), Progress())

    return made


def critic_of(setup: Setup) -> list[Tensor]:
    assert isinstance(setup.model, PoseGAN)
    return [weight.detach().clone() for weight in setup.model.critic.parameters()]


@pytest.mark.parametrize("way", ["real", "pair"])
@pytest.mark.parametrize("conditional", ["true", "false"])
def test_the_loss_of_a_picture_depends_on_that_picture_alone(trainer_of: Callable[..., Trainer], way: str, conditional: str) -> None:
    setup = trainer_of(f"model.clip={way}", f"model.conditional={conditional}").setup
    batch = setup.private.batch(np.arange(4))
    check_records_apart(setup.model, setup.task.loss, batch)
    some = setup.task.loss(setup.model, {name: part[:2] for name, part in batch.items()})
    assert torch.allclose(setup.task.loss(setup.model, batch)[:2], some, atol=1e-5)


def test_a_pair_is_real_against_generated_and_its_generated_picture_comes_from_its_own_numbers(trainer_of: Callable[..., Trainer]) -> None:
    setup = trainer_of("model.clip=pair").setup
    task, model = setup.task, setup.model
    assert isinstance(task, GenerateTask) and isinstance(model, PoseGAN)
    uniforms = torch.rand(3, task.numbers, generator=torch.Generator().manual_seed(0))
    shown = task.change(setup.private, setup.private.batch(np.arange(3)), uniforms)
    # The same numbers beside somebody else's picture: the same noise, the same pose.
    other = task.change(setup.private, setup.private.batch(np.arange(3, 6)), uniforms)
    assert torch.equal(shown["noise"], other["noise"]) and torch.equal(shown["joints of another"], other["joints of another"])
    assert (
        0.7 < float(task.change(setup.private, setup.private.batch(np.zeros(200, int)), torch.rand(200, task.numbers))["noise"].std()) < 1.3
    )
    maps = task._heatmaps(model, shown["joints of another"])
    real = shown["image"].float() / 127.5 - 1
    expected = model.critic(model.generate(shown["noise"], maps)) - model.critic(real)
    assert torch.allclose(task.loss(model, shown), expected, atol=1e-5)


def test_no_pose_of_a_record_reaches_the_generated_picture_beside_it(trainer_of: Callable[..., Trainer]) -> None:
    """A pose that came from the batch would show who is in it."""
    setup = trainer_of("model.clip=pair").setup
    uniforms = torch.rand(24, setup.task.numbers, generator=torch.Generator().manual_seed(0))
    batch = setup.private.batch(np.arange(24))
    shown = setup.task.change(setup.private, batch, uniforms)
    own = (shown["joints of another"] == batch["joints"]).flatten(1).all(1)
    assert own.sum() <= 6
    batch["joints"] = batch["joints"] + 1
    assert torch.equal(shown["joints of another"], setup.task.change(setup.private, batch, uniforms)["joints of another"])


@pytest.mark.parametrize(
    "settings", [("model.clip=real",), ("model.clip=pair",), ("model.bound=penalty",), ("model.critic=means", "batch=24", "epochs=1")]
)
def test_nothing_but_the_noised_half_knows_a_private_picture(
    trainer_of: Callable[..., Trainer], settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the noised half's release held fixed, other private pictures change neither the exact half nor the generator."""
    found = []
    for name, shift in (("one", 0), ("two", 90)):
        trainer = trainer_of(*settings, "epochs=0.6" if "model.critic=means" not in settings else "epochs=1", name=name)
        private = trainer.setup.private.private
        monkeypatch.setattr(private, "rows", _brighter(private.rows, shift))
        monkeypatch.setattr(type(trainer.noised), "release", _fixed)
        trainer.train()
        assert isinstance(trainer.setup.model, PoseGAN)
        found.append({n: t.clone() for n, t in trainer.setup.model.state_dict().items()})
        monkeypatch.undo()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def _brighter(rows: Callable[..., dict[str, np.ndarray]], shift: int) -> Callable[..., dict[str, np.ndarray]]:
    return lambda chosen: {name: part + np.uint8(shift) for name, part in rows(chosen).items()}


def _fixed(half: object, step: int) -> object:
    from halfmask.training.private import Released

    size = half.engine.size  # type: ignore[attr-defined]
    return Released(gradient=0.01 * torch.randn(size, generator=torch.Generator().manual_seed(step)))


def test_fakes_are_clipped_to_the_same_norm_and_not_noised(trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of("model.clip=real", "clip_norm=0.001", "model.bound=none")
    half = trainer.exact
    assert isinstance(half, FakeHalf)
    first, again = half.gradient(), None
    half.batches = 0
    again = half.gradient()
    assert torch.equal(first, again) and 0 < float(first.norm()) <= 0.001 * (1 + 1e-5)


def test_the_generator_follows_every_so_many_steps_and_the_critic_is_bounded(trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of("model.critic_steps=2", "model.bound=weights", "model.limit=0.02", "epochs=1.3")
    model = trainer.setup.model
    assert isinstance(model, PoseGAN)
    trainer.begin()
    changed = []
    for _ in range(4):
        before = [weight.clone() for weight in model.generator.parameters()]
        trainer.make_ready(4)
        trainer.take_step()
        trainer.standing.step += 1
        changed.append(any(not torch.equal(a, b) for a, b in zip(before, model.generator.parameters(), strict=True)))
        assert all(float(weight.abs().max()) <= 0.02 for weight in model.critic.parameters())
    assert changed == [False, True, False, True]
    assert not any(weight.requires_grad for weight in model.generator.parameters())


def test_one_release_of_means_is_the_noised_mean_of_clipped_features(trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of("model.critic=means", "batch=24", "epochs=1", "model.generator_steps=2", "clip_norm=0.8", epsilon=20)
    setup = trainer.setup
    trainer.train()
    critic = setup.model.critic
    assert setup.steps == 1 and setup.sampling_rate == 1.0
    batch = setup.private.batch(np.arange(24))
    features = critic.features(batch["image"].float() / 127.5 - 1, batch["joints"])  # type: ignore[operator, union-attr]
    clipped = features * (0.8 / features.norm(dim=1, keepdim=True)).clamp(max=1)
    noise = setup.noise_multiplier * 0.8 / 24
    away = (critic.means - clipped.mean(0)).detach()  # type: ignore[operator, union-attr]
    assert 0.5 * noise < float(away.std()) < 2 * noise and float(away.abs().max()) < 6 * noise


def test_means_in_several_steps_are_refused(trainer_of: Callable[..., Trainer]) -> None:
    with pytest.raises(HalfmaskError, match=r"released once.*batch=24"):
        trainer_of("model.critic=means", "batch=8", "epochs=1")


@pytest.mark.parametrize("method", GenerateTask.methods)
def test_a_person_who_leaves_would_be_missed(method: str) -> None:
    words = "public view of a person stays" if method == "public-only" else "pose of every person"
    with pytest.raises(HalfmaskError, match=f"add-remove.*{words}"):
        config_of(adjacency="add-remove", method=method)


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(HalfmaskError, match=r"augment\.times"):
        config_of("model.clip=pair", "augment.times=0")
    with pytest.raises(HalfmaskError, match="real pictures alone"):
        config_of("model.clip=pair", "model.critic=means")
    with pytest.raises(HalfmaskError, match=r"no meaning for the task"):
        config_of(method="feature")


def test_a_run_that_goes_on_has_its_generator_as_it_was(trainer_of: Callable[..., Trainer]) -> None:
    """State of the generator's optimiser, average and counter come back."""
    trainer = trainer_of("model.average=0.5", "model.anchor=0.1", "model.critic_steps=1", "epochs=1")
    trainer.train()
    post = trainer.post
    assert isinstance(post, GeneratorSteps) and post.taken == 3
    other = GeneratorSteps(trainer.setup)
    other.restore(post.state())
    assert other.taken == 3 and other.averaged is not None and other.start is not None and post.averaged is not None
    assert all(torch.equal(a, b) for a, b in zip(post.averaged.generator.parameters(), other.averaged.generator.parameters(), strict=True))
    assert other.optimiser.state_dict()["state"].keys() == post.optimiser.state_dict()["state"].keys()


def test_fixed_noise_ends_the_run_before_the_budget_is_passed(trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of("noise_multiplier=3.0", "epochs=40", epsilon=4)
    setup = trainer.setup
    assert 0 < setup.steps < 120 and setup.noise_multiplier == 3.0
    assert setup.spent(setup.steps) <= 4
    assert replace(setup, steps=setup.steps + 5).plan is not None


def test_public_only_reads_no_private_picture(trainer_of: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(method="public-only")

    def refuse(rows: object) -> dict[str, np.ndarray]:
        raise AssertionError("a private picture was read")

    monkeypatch.setattr(trainer.setup.private.private, "rows", refuse)
    before = critic_of(trainer.setup)
    trainer.train()
    assert any(not torch.equal(a, b) for a, b in zip(before, critic_of(trainer.setup), strict=True))


def test_the_watched_loss_is_a_distance_of_pictures(trainer_of: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    setup = trainer_of().setup
    assert setup.watched is not None
    grey = setup.task.watched_loss(setup.model, setup.watched)
    theirs = setup.watched.private.rows(np.arange(len(setup.watched)))["image"]
    monkeypatch.setattr(setup.task, "generated", lambda *_: theirs)
    assert 0.05 < grey < 1 and setup.task.watched_loss(setup.model, setup.watched) < 1e-3


@pytest.mark.parametrize("part", ["whole", "appearance"])
def test_how_a_pose_becomes_a_shape_may_stay_as_it_was(part: str, trainer_of: Callable[..., Trainer]) -> None:
    trainer = trainer_of(f"model.generator_part={part}", "model.critic_steps=1", "model.average=0")
    generator = trainer.setup.model.generator
    before = {name: weight.clone() for name, weight in generator.named_parameters()}
    trainer.train()
    moved = {name for name, weight in generator.named_parameters() if not torch.equal(weight, before[name])}
    learns = {name for name in before if name.startswith(("mapping.", "decoder.spread.", "decoder.out."))}
    assert moved <= (learns if part == "appearance" else set(before)) and any(name.startswith("decoder.out.") for name in moved)
    assert part == "appearance" or moved - learns


def test_a_critic_is_pretrained_against_a_generator_that_stays(tmp_path: Path) -> None:
    settings = ["data.public=40", "data.height=32", "data.width=32", "epochs=1", "pretrain.critic=true"]
    torch.manual_seed(0)
    start = PoseGAN("small", 16, 32, 32).state_dict()
    save_file(start | _encoder_of(32), tmp_path / "start.safetensors")
    config = build_config(load_recipe("generate/pretrain"), {}, [*settings, f"model.weights={tmp_path / 'start.safetensors'}"])
    found = load_file(pretrain(config, tmp_path / "warm") / "model.safetensors")
    assert all(torch.equal(found[name], start[name]) for name in start if name.startswith("generator."))
    assert not torch.equal(found["critic.head.weight"], start["critic.head.weight"])


def _encoder_of(side: int) -> dict[str, torch.Tensor]:
    return {f"encoder.{name}": tensor for name, tensor in Encoder(SHAPES["small"].embedding, side, side).state_dict().items()}


def test_from_a_warm_start_to_a_certificate(tmp_path: Path) -> None:
    """Pre-trained on public people, trained on private ones, judged, certified, and opened again."""
    public = build_config(load_recipe("generate/pretrain"), {}, ["data.public=40", "data.height=32", "data.width=32", "epochs=1"])
    warm = pretrain(public, tmp_path / "warm")
    config = config_of(f"model.weights={warm / 'model.safetensors'}", "model.conditional=false")
    run_training(config, tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["metrics"]
    assert metrics["frechet_distance"] > 0 and 0 <= metrics["pose_kept"] <= 100
    certificate = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert set(certificate["epsilon"]) == {"zero-out", "replace-one"} and certificate["unit"] == "image"
    said = " ".join(certificate["public_assumptions"])
    assert "the pose of every person" in said and "one image" in said and "trained with" in said
    opened = GenerateTask(config).open(tmp_path / "run" / "model.safetensors")
    joints = torch.rand(3, 16, 3) * 20 + 1
    assert GenerateTask(config).generated(opened, joints).shape == (3, 3, 32, 32)
