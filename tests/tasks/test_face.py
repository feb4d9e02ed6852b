"""The five losses of a region as one, under one clip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import halfmask.tasks.face as face_task
from halfmask.audit.own import audit_loss
from halfmask.data.faces import FaceRecords
from halfmask.data.records import Datasets
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine, check_records_apart
from halfmask.models.hyperface import SUBTASKS, HyperFace
from halfmask.tasks.face import FaceTask, face_loss, subtask_losses
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home", "tiny_hyperface")
Faces = Callable[..., FaceRecords]


def config_of(*assignments: str, **flags: Any) -> RunConfig:
    recipe = {
        "task": "face",
        "method": "dpsgd",
        "strategy": "full",
        "epsilon": 5.0,
        "delta": 1e-3,
        "clip_norm": 0.5,
        "batch": 4,
        "epochs": 1,
        "insecure_seed": 1,
        "even_so": True,
        "model": {"weights": None, "size": "tiny"},
    }
    return build_config(recipe, flags, list(assignments))


def trainer_of(config: RunConfig, records: FaceRecords, folder: Path) -> Trainer:
    setup = prepare(config, Progress(), Datasets(records, None, None, "faces"))
    return Trainer(setup, RunFolder.create(folder, config), Progress())


def batch_of(records: FaceRecords) -> dict[str, torch.Tensor]:
    return records.batch(np.arange(len(records)))


# ---- the losses ----------------------------------------------------------------------------------------------------------


def test_each_loss_is_that_of_the_paper(random_faces: Faces) -> None:
    torch.manual_seed(0)
    batch, model = batch_of(random_faces()), HyperFace("tiny", 5)
    said = {name: value.detach() for name, value in model(batch["image"]).items()}
    losses = subtask_losses(said, batch)
    row = 1
    p, g = torch.sigmoid(said["detection"][row]), torch.sigmoid(said["attribute"][row])
    assert float(losses["detection"][row]) == pytest.approx(float(-torch.log(p)), rel=1e-5)
    points = ((said["landmarks"][row] - batch["landmarks"][row]) ** 2).sum(1) * batch["visible"][row]
    assert float(losses["landmarks"][row]) == pytest.approx(float(points.sum() / (2 * 5)), rel=1e-5)
    assert float(losses["visibility"][row]) == pytest.approx(
        float(((said["visibility"][row] - batch["visible"][row]) ** 2).sum() / 5), rel=1e-5
    )
    assert float(losses["pose"][row]) == pytest.approx(float(((said["pose"][row] - batch["pose"][row]) ** 2).sum() / 3), rel=1e-5)
    expected = -torch.log(g) if batch["attribute"][row] else -torch.log(1 - g)
    assert float(losses["attribute"][row]) == pytest.approx(float(expected), rel=1e-5)


def test_a_region_without_a_face_teaches_detection_alone(random_faces: Faces) -> None:
    batch, model = batch_of(random_faces()), HyperFace("tiny", 5)
    losses = subtask_losses(model(batch["image"]), batch)
    assert all(float(losses[name][2]) == 0 for name in SUBTASKS[1:]) and float(losses["detection"][2]) > 0


def test_homoscedastic_weights(random_faces: Faces) -> None:
    batch, model, config = batch_of(random_faces()), HyperFace("tiny", 5), config_of().model
    with torch.no_grad():
        model.log_variances.copy_(torch.tensor([0.5, -1.0, 0.0, 2.0, -0.3]))
    losses = subtask_losses(model(batch["image"]), batch)
    known = [torch.ones_like(batch["face"])] + 4 * [batch["face"]]
    variances = zip(SUBTASKS, model.log_variances, known, strict=True)
    expected = sum(losses[name] * torch.exp(-s) + s * there for name, s, there in variances)
    assert torch.allclose(face_loss(model, batch, config), expected, rtol=1e-5)
    equal = face_loss(model, batch, replace(config, weighting="equal"))
    assert torch.allclose(equal, sum(losses.values()), rtol=1e-5)
    by_hand = face_loss(model, batch, replace(config, weighting="set", task_weights=[1.0, 2.0, 3.0, 4.0, 5.0]))
    assert torch.allclose(by_hand, sum(k * losses[name] for k, name in enumerate(SUBTASKS, 1)), rtol=1e-5)


def test_a_region_without_a_face_says_nothing_of_the_weights_of_others(random_faces: Faces) -> None:
    """Its gradient would be 1 for each of four log-variances, and fill the clip."""
    batch, model = batch_of(random_faces()), HyperFace("tiny", 5)
    without_a_face = face_loss(model, batch, config_of().model)[2]
    (gradient,) = torch.autograd.grad(without_a_face, model.log_variances)
    assert float(gradient[0]) != 0 and gradient[1:].tolist() == [0, 0, 0, 0]


def test_the_parts_of_the_tasks_add_up(random_faces: Faces) -> None:
    batch, model, config = batch_of(random_faces()), HyperFace("tiny", 5), config_of("model.clip=by-task")
    parts = FaceTask(config).losses(model)
    assert list(parts) == list(SUBTASKS)
    assert torch.allclose(sum(part(model, batch) for part in parts.values()), FaceTask(config).loss(model, batch), rtol=1e-5)
    assert not FaceTask(config_of()).losses(model), "one clip for all, unless asked otherwise"


# ---- one clip ------------------------------------------------------------------------------------------------------------


def test_log_variances_are_inside_the_one_clip(random_faces: Faces, tmp_path: Path) -> None:
    trainer = trainer_of(config_of(), random_faces(), tmp_path / "run")
    assert "log_variances" in trainer.engine.parameters
    half = trainer.noised
    units = torch.arange(len(half.records))
    rows, index, weight = half.units.records_of(units)
    batch, shown = half.shown(half.records, rows, index, weight, 0)
    everyone = half.clipped(batch, shown)
    gradients = trainer.engine.per_record_gradients(half.loss, batch).double()
    clip = half.mechanism.clip_norm
    expected = (gradients * (clip / gradients.norm(dim=1)).clamp(max=1)[:, None]).sum(0)
    assert float((everyone.flat() - expected).norm() / expected.norm()) < 1e-4
    assert float(everyone.sums["log_variances"].norm()) > 0


def test_tasks_clipped_apart_are_at_most_c_together(random_faces: Faces, tmp_path: Path) -> None:
    trainer = trainer_of(config_of("model.clip=by-task"), random_faces(), tmp_path / "run")
    half = trainer.noised
    clip = half.mechanism.clip_norm
    assert clip == 0.5 and len(half.apart) == 5
    for unit in range(3):
        rows, index, weight = half.units.records_of(torch.tensor([unit]))
        batch, shown = half.shown(half.records, rows, index, weight, 0)
        found = half.clipped(batch, shown)
        apart = [trainer.engine.clipped_sum(loss, batch, clip / 5, shown).flat() for loss in half.apart]
        assert all(float(part.norm()) <= clip / 5 * (1 + 1e-6) for part in apart)
        assert torch.allclose(found.flat(), sum(apart), atol=1e-9)
        assert float(found.flat().norm()) <= clip * (1 + 1e-6) and found.clip_norm == clip


def test_the_audit_of_the_loss_passes(random_faces: Faces) -> None:
    records = random_faces()
    for assignment in ("model.clip=joint", "model.clip=by-task"):
        config = config_of(assignment)
        found = audit_loss(FaceTask(config), HyperFace("tiny", 5), records, config)
        assert found["passed"] and found["path"] == "fast", found


# ---- planted faults ------------------------------------------------------------------------------------------------------


def failed(records: FaceRecords, config: RunConfig | None = None) -> set[str]:
    config = config or config_of()
    found = audit_loss(FaceTask(config), HyperFace("tiny", 5), records, config)
    return {check["check"] for check in found["checks"] if not check["passed"]}


def test_positives_counted_in_the_batch_are_caught(random_faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    real = face_task.subtask_losses

    def counting(said: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: loss / batch["face"].sum().clamp(min=1) for name, loss in real(said, batch).items()}

    monkeypatch.setattr(face_task, "subtask_losses", counting)
    records = random_faces()
    with pytest.raises(HalfmaskError, match="people are coupled"):
        check_records_apart(HyperFace("tiny", 5), FaceTask(config_of()).loss, batch_of(records))
    assert {"records-apart", "units-apart"} <= failed(records)


def test_log_variances_outside_the_clip_are_caught(random_faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added after the clip, the gradient of five numbers moves a step by more than a unit's share."""
    real = ClippingEngine.clipped_sum

    def outside(self: ClippingEngine, loss: Any, batch: Any, clip_norm: float, *others: Any, **named: Any) -> Any:
        found = real(self, loss, batch, clip_norm, *others, **named)
        if len(found.norms):
            whole = self.per_record_gradients(loss, batch).sum(0)
            place = self.unflatten(whole)["log_variances"]
            found.sums["log_variances"].copy_(place)
        return found

    monkeypatch.setattr(ClippingEngine, "clipped_sum", outside)
    assert any(name.startswith("step-sensitivity") for name in failed(random_faces()))


def test_one_task_clipped_by_itself_is_caught(random_faces: Faces, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clips to C add up to 2C on what both tasks share."""
    from halfmask.training.private import PrivateHalf

    real = PrivateHalf.clipped

    def twice(self: PrivateHalf, batch: Any, unit_index: torch.Tensor) -> Any:
        found = real(self, batch, unit_index)
        return found.plus(real(self, batch, unit_index)) if len(found.norms) else found

    monkeypatch.setattr(PrivateHalf, "clipped", twice)
    assert {"units-apart"} <= failed(random_faces()) or any(name.startswith("step") for name in failed(random_faces()))


def test_regions_of_one_face_are_one_unit_under_subject(random_faces: Faces, tmp_path: Path) -> None:
    records = random_faces(photographs=6)
    counts = {
        unit: len(trainer_of(config_of("batch=2", unit=unit), records, tmp_path / unit).noised.units)
        for unit in ("region", "image", "subject")
    }
    assert counts == {"region": 18, "image": 6, "subject": 3}
    half = trainer_of(config_of("batch=2", unit="subject"), records, tmp_path / "clip").noised
    rows, index, weight = half.units.records_of(torch.tensor([1]))
    assert len(rows) == 6 and len(set(index.tolist())) == 1
    found = half.clipped(*half.shown(half.records, rows, index, weight, 0))
    assert len(found.norms) == 1 and float(found.flat().norm()) <= 0.5 * (1 + 1e-6)


# ---- around it -----------------------------------------------------------------------------------------------------------


def test_the_attribute_is_off_unless_the_dataset_gives_one(random_faces: Faces) -> None:
    task = FaceTask(config_of())
    with_it, without = random_faces(), random_faces(attribute="")
    assert "attribute" in task.build(Datasets(with_it, name="faces")).subtasks
    assert "attribute" not in task.build(Datasets(without, name="faces")).subtasks


def test_the_certificate_counts_the_tasks_that_were_clipped(random_faces: Faces) -> None:
    task = FaceTask(config_of("model.clip=by-task"))
    for attribute, count in (("glasses", 5), ("", 4)):
        data = Datasets(random_faces(attribute=attribute), name="faces")
        (said,) = [fact for fact in task.public_facts(data) if "share of C" in fact]
        assert f"each of {count} tasks" in said and len(task.losses(task.build(data))) == count


def test_a_start_with_other_landmarks_keeps_all_but_those_heads(random_faces: Faces, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(3)
    start = HyperFace("tiny", 21)
    save_file(start.state_dict(), tmp_path / "start.safetensors")
    model = FaceTask(config_of(f"model.weights={tmp_path / 'start.safetensors'}")).build(Datasets(random_faces(), name="faces"))
    assert torch.equal(model.conv1.weight, start.conv1.weight)
    assert torch.equal(model.heads["pose"][2].weight, start.heads["pose"][2].weight)
    assert model.heads["landmarks"][2].weight.shape[0] == 10


def test_strategies(random_faces: Faces) -> None:
    model = HyperFace("tiny", 5)
    sizes = {}
    for strategy in ("top", "finetune", "full"):
        FaceTask(config_of()).trainable(model, strategy)
        sizes[strategy] = sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert sizes["top"] < sizes["finetune"] < sizes["full"] == sum(one.numel() for one in model.parameters())
    FaceTask(config_of("model.weighting=equal")).trainable(model, "full")
    assert not model.log_variances.requires_grad, "constants are not trained"


def test_scores_and_pictures(random_faces: Faces) -> None:
    records, task, model = random_faces(), FaceTask(config_of()), HyperFace("tiny", 5)
    scores = task.score(model, records)
    assert next(iter(scores.metrics)) == "detection_accuracy" and set(scores.parts) == set(SUBTASKS)
    for drawn in (task.pictures(None, records), task.pictures(model, records)):
        assert len(drawn) == len(records) and drawn[0].shape == (96, 96, 3)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(HalfmaskError, match=r"model\.task_weights"):
        config_of("model.task_weights=[1,2]")
    with pytest.raises(HalfmaskError, match=r"model\.subtasks"):
        config_of("model.subtasks=[]")
    with pytest.raises(HalfmaskError, match="by-task"):
        config_of("model.clip=by-task", "subspace.project_first=true", method="projected")


def test_samples_are_regions_with_and_without_faces(random_faces: Faces) -> None:
    task, model = FaceTask(config_of()), HyperFace("tiny", 5)
    for sample in task.samples(model, random_faces()):
        check_records_apart(model, task.loss, sample)
        assert isinstance(model, nn.Module) and set(sample) == set(batch_of(random_faces()))
