"""Training on public people: the augmentation moves joints with their pixels, and nobody private is opened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import halfmask.training.pretrain as module
from halfmask.data import datasets
from halfmask.data.augment import augment
from halfmask.data.figures import FLIP_PAIRS
from halfmask.gradients.engine import ClippingEngine
from halfmask.models.pose import build_model
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import PoseTask
from halfmask.tasks.pose_pretraining import FromCrops
from halfmask.training.config import RunConfig
from halfmask.training.pretrain import FromRecords, pretrain
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.setup import Setup
from halfmask.views import Blur

WIDTH, HEIGHT = 96, 128


def dots(joint: int, copies: int = 24) -> dict[str, torch.Tensor]:
    """Pictures of a bright dot at one joint; the others lie far from it and from each other."""
    joints = torch.tensor([[24.0 + 14 * (j % 4), 32.0 + 20 * (j // 4)] for j in range(16)])
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    dot = 255 * torch.exp(-((x - joints[joint, 0]) ** 2 + (y - joints[joint, 1]) ** 2) / 4)
    return {
        "image": dot.expand(copies, 3, HEIGHT, WIDTH).to(torch.uint8),
        "joints": joints.expand(copies, 16, 2).clone(),
        "labelled": torch.ones(copies, 16, dtype=torch.bool),
    }


@pytest.mark.parametrize("joint", [0, 3, 7, 9, 12, 15])
def test_joints_move_with_their_pixels(joint: int) -> None:
    partner = {a: b for pair in FLIP_PAIRS for a, b in (pair, pair[::-1])}.get(joint, joint)
    moved = augment(dots(joint), torch.Generator().manual_seed(joint))
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    sides = []
    for image, joints, labelled in zip(moved["image"].mean(1), moved["joints"], moved["labelled"], strict=True):
        seen = torch.stack([(image * x).sum(), (image * y).sum()]) / image.sum()
        distances = (joints - seen).norm(dim=1)
        nearest = int(distances.argmin())
        if not labelled[nearest] or image.amax() < 60:
            continue
        assert distances[nearest] < 0.75 and nearest in (joint, partner)
        sides.append(nearest)
    assert len(sides) > 12 and set(sides) == {joint, partner}


def test_joints_outside_the_picture_lose_their_label() -> None:
    data = dots(0)
    data["joints"][:, 5] = torch.tensor([WIDTH - 1.0, HEIGHT - 1.0])
    data["labelled"][:, 6] = False
    moved = augment(data, torch.Generator().manual_seed(0))
    inside = ((moved["joints"] >= 0) & (moved["joints"] <= torch.tensor([WIDTH - 1.0, HEIGHT - 1.0]))).all(-1)
    assert not (moved["labelled"] & ~inside).any()
    assert not moved["labelled"][:, 6].any(), "what was not labelled stays so"
    assert moved["labelled"].float().mean() > 0.5 and (~inside).any()
    assert float(moved["image"].min()) >= 0 and float(moved["image"].max()) <= 255


def test_augmentation_repeats_with_its_generator() -> None:
    first, second, other = (augment(dots(2), torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(first["image"], second["image"]) and torch.equal(first["joints"], second["joints"])
    assert not torch.equal(first["image"], other["image"])


@pytest.mark.usefixtures("one_thread")
def test_pretraining_reads_public_people_and_learns(
    tiny_config: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = datasets.figures_records
    monkeypatch.setattr(datasets, "figures_records", lambda *a: asked.append(a[:4]) or real(a[0], min(a[1], 24), *a[2:]))
    config = tiny_config("optimiser.name=adamw", "optimiser.learning_rate=0.002", "data.public=24", epochs=8)
    folder = pretrain(config, tmp_path / "run")
    assert {population for population, *_ in asked} == {"public"}
    assert asked[0] == ("public", 24, 0, 0)
    assert all(skip >= 24 for _, _, _, skip in asked[1:]), "judged on others than it learnt from"
    assert {path.name for path in folder.iterdir()} == {
        "calibration.json",
        "checkpoint",
        "config.yaml",
        "log.jsonl",
        "metrics.json",
        "model.safetensors",
        "model_card.md",
    }
    losses = [json.loads(line).get("public_loss") for line in (folder / "log.jsonl").read_text().splitlines()[1:]]
    assert losses[-1] < losses[0]
    state = load_file(folder / "model.safetensors")
    assert state["backbone.patch_embed.conv1.bn.running_mean"].abs().sum() > 0
    assert json.loads((folder / "metrics.json").read_text())["split"] == "public"
    again = pretrain(config, tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("one_thread")
def test_pretraining_on_a_dataset_opens_public_images_alone(
    tiny_config: Callable[..., RunConfig], lsp_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = lsp_folder(20)
    for private in range(17, 21):
        (folder / f"images/im{private:05d}.jpg").write_bytes(b"nobody opens this")
    splits = ("data.splits.public=1-12", "data.splits.tuning=13-16", "data.splits.private=17-20")
    out = pretrain(tiny_config(f"data.name={folder}", *splits, epochs=0.5), tmp_path / "run")
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["split"] == "public" and 0 <= metrics["metrics"]["pck@0.5"] <= 100
    assert load_file(out / "model.safetensors")["head.conv.weight"].shape[0] == 14


def ready(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Judged on a dozen people."""
    real = datasets.figures_records
    monkeypatch.setattr(datasets, "figures_records", lambda *a: real(a[0], min(a[1], 12), *a[2:]))
    return module._prepare(config, Progress())


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_people_is_shown_as_their_view(
    share: float, tiny_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (f"pretrain.view_share={share}", "view.options={kernel: 9, sigma: 3.0}", "data.public=12")
    setup = ready(tiny_config(*settings), monkeypatch)
    half = FromCrops(setup, ClippingEngine(setup.model))
    images = torch.randint(0, 256, (200, 3, 16, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    shown = half._some_as_views({"image": images.clone()})["image"]
    changed = (shown != images).flatten(1).any(1)
    assert abs(float(changed.float().mean()) - share) <= 0.12 and (share > 0) == bool(changed.any())
    for i in torch.nonzero(changed).flatten().tolist()[:5]:
        view = Blur(9, 3.0)(np.ascontiguousarray(images[i].numpy().transpose(1, 2, 0)))
        assert np.array_equal(shown[i].numpy(), view.transpose(2, 0, 1)), "the very view that private people will have"


@pytest.mark.usefixtures("one_thread")
def test_the_top_alone_is_trained_on_features_computed_once(
    tiny_config: Callable[..., RunConfig], tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_draw, real_lower = datasets.figures_records, PoseModel.lower
    monkeypatch.setattr(datasets, "figures_records", lambda *a: real_draw(a[0], min(a[1], 12), *a[2:]))
    passed: list[int] = []
    people = lambda images: int((images != 0).flatten(1).any(1).sum())  # noqa: E731
    monkeypatch.setattr(PoseModel, "lower", lambda self, images: passed.append(people(images)) or real_lower(self, images))
    settings = ["pretrain.top=true", "pretrain.view_share=0.25", "augment.copies=2", "data.public=12", "optimiser.learning_rate=0.002"]
    settings.append("optimiser.name=adamw")
    config = tiny_config(*settings, epochs=12)
    folder = pretrain(config, tmp_path / "run")
    # Before the first step the loop tries the loss, on each record twice: on three times four test people and pictures of noise, and
    # once more on the first.
    judged, tried = 2 * 12, 2 * 2 * 3 * 4 + 4
    # What scores are worth is told once without the mirror image and once with it.
    calibrated = 12 + 2 * 12
    assert sum(passed) == 12 * (1 + 2) * 2 + judged + calibrated + tried, (
        "a record and two copies, image and view; then each test person and their mirror image"
    )
    losses = [json.loads(line).get("public_loss") for line in (folder / "log.jsonl").read_text().splitlines()[1:]]
    assert losses[-1] < losses[0]
    torch.manual_seed(config.seed)
    state, before = load_file(folder / "model.safetensors"), build_model(config.model).state_dict()
    moved = {name for name, tensor in state.items() if not torch.equal(tensor, before[name])}
    assert moved and all(name.startswith(("head.", "backbone.stages.3.")) for name in moved)


def test_people_trained_on_are_public_and_cost_nothing(
    tiny_config: Callable[..., RunConfig], tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one loop, and the one loop pays: here it does not."""
    real = datasets.figures_records
    monkeypatch.setattr(datasets, "figures_records", lambda *a: real(a[0], min(a[1], 12), *a[2:]))
    monkeypatch.setattr("halfmask.privacy.account.Account.pay", lambda self, spend: pytest.fail("public people were paid for"))
    pretrain(tiny_config("data.public=12", epochs=1), tmp_path / "run")
    assert not list((fresh_home / "ledgers").glob("*.jsonl"))


@pytest.mark.parametrize("factor", [1.0, 1e6])
def test_no_gradient_is_longer_than_fifty(factor: float, tiny_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained network's can be; shortened, they keep their direction."""
    monkeypatch.setattr(PublicHalf, "gradient", lambda self: torch.ones(self.engine.size) * factor / self.engine.size**0.5)
    setup = ready(tiny_config("data.public=12"), monkeypatch)
    found = FromCrops(setup, ClippingEngine(setup.model)).gradient()
    assert float(found.norm()) == pytest.approx(min(factor, 50.0), rel=1e-3) and float(found.std()) < 1e-6 < float(found.min())


def test_records_of_any_task_are_changed_by_their_own_numbers(
    tiny_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another task gets: changes keyed by each record, and records as they are where it has none."""
    setup = ready(tiny_config("data.public=12", "pretrain.view_share=0.5", batch=8), monkeypatch)
    first, again = (FromRecords(setup, ClippingEngine(setup.model)) for _ in range(2))
    one, same, later = first.batch(), again.batch(), first.batch()
    assert len(one["image"]) == 8 and all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["image"], later["image"])
    monkeypatch.setattr(PoseTask, "numbers", 0)
    plain = FromRecords(setup, ClippingEngine(setup.model))
    rows = plain.samplers["private"].draw()
    plain = FromRecords(setup, ClippingEngine(setup.model))
    assert torch.equal(plain.batch()["image"][:4], setup.private.batch(rows)["image"])
