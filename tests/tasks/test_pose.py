"""The pose task: one loss per person, and predictions that do not care which way a person faces."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from halfmask.data.figures import FLIP_PAIRS
from halfmask.data.records import PoseRecords
from halfmask.gradients.engine import ClippingEngine, check_records_apart
from halfmask.models.simcc import PoseModel, smoothed_targets
from halfmask.tasks.pose import evaluate, pose_loss, predict

SIZE = (64, 48)


@pytest.fixture(scope="module")
def model() -> PoseModel:
    """Untrained, but loath to look at the edges, as trained ones are."""
    torch.manual_seed(0)
    model = PoseModel("nano", 16, SIZE).eval()
    with torch.no_grad():
        model.head.x_bins.bias -= 8 * torch.linspace(-1, 1, 2 * SIZE[1]) ** 4
    return model


def batch(records: int = 3, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "image": torch.randint(0, 256, (records, 3, *SIZE), generator=generator, dtype=torch.uint8),
        "joints": torch.rand(records, 16, 2, generator=generator) * 45,
        "labelled": torch.rand(records, 16, generator=generator) < 0.7,
    }


def test_the_loss_is_cross_entropy_over_labelled_joints_by_a_constant(model: PoseModel) -> None:
    data = batch()
    with torch.no_grad():
        x_logits, y_logits = model(data["image"])
        found = pose_loss(model, data)
    for i in range(3):
        expected = 0.0
        for j in range(16):
            if data["labelled"][i, j]:
                for axis, logits in enumerate((x_logits, y_logits)):
                    target = smoothed_targets(data["joints"][i, j, axis], logits.shape[-1], 2, 6.0)
                    expected -= float((target * logits[i, j].log_softmax(-1)).sum())
        assert float(found[i]) == pytest.approx(expected / 16, rel=1e-5)


def test_each_record_has_its_own_loss(model: PoseModel) -> None:
    data, other = batch(), batch(seed=1)
    mixed = {key: torch.cat([data[key][:1], other[key][1:]]) for key in data}
    with torch.no_grad():
        assert pose_loss(model, data).shape == (3,)
        assert pose_loss(model, mixed)[0] == pytest.approx(float(pose_loss(model, data)[0]), rel=1e-5)
        assert pose_loss(model, mixed)[1] != pytest.approx(float(pose_loss(model, data)[1]), rel=1e-3)
    check_records_apart(model, pose_loss, data)


def test_features_stand_for_images(model: PoseModel) -> None:
    data = batch()
    with torch.no_grad():
        features = {"features": model.lower(data["image"])} | {key: data[key] for key in ("joints", "labelled")}
        assert torch.allclose(pose_loss(model, features), pose_loss(model, data), rtol=1e-5)


def test_weights_scale_each_record(model: PoseModel) -> None:
    data = batch()
    with torch.no_grad():
        weighed = pose_loss(model, data | {"weight": torch.tensor([1.0, 0.5, 0.0])})
        assert torch.allclose(weighed, pose_loss(model, data) * torch.tensor([1.0, 0.5, 0.0]))


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1e30])
def test_unlabelled_joints_do_not_count_whatever_they_hold(model: PoseModel, nonsense: float) -> None:
    """Neither in the value nor in the gradient: a NaN there would throw the whole person out of training."""
    clean = batch()
    clean["labelled"][0, :4] = False
    poisoned = clean | {"joints": clean["joints"].clone()}
    poisoned["joints"][0, :4] = nonsense
    engine = ClippingEngine(model)
    with torch.no_grad():
        assert torch.equal(pose_loss(model, poisoned), pose_loss(model, clean))
    for data in (poisoned, clean):
        assert engine.clipped_sum(pose_loss, data, 0.1).nonfinite == 0
    assert torch.allclose(engine.clipped_sum(pose_loss, poisoned, 0.1).flat(), engine.clipped_sum(pose_loss, clean, 0.1).flat())
    assert torch.isfinite(engine.mean_gradient(pose_loss, poisoned)[0]).all()


def test_a_person_without_labels_costs_nothing(model: PoseModel) -> None:
    data = batch()
    data["labelled"][1] = False
    losses = pose_loss(model, data)
    assert losses[1] == 0 and losses[0] > 0


def test_a_better_prediction_has_a_lower_loss(model: PoseModel) -> None:
    data = batch()
    with torch.no_grad():
        x_logits, y_logits = model(data["image"])
        near = torch.stack([x_logits.argmax(-1), y_logits.argmax(-1)], -1) / 2
        assert (pose_loss(model, data | {"joints": near.float()}) < pose_loss(model, data)).all()


# ---- prediction ----------------------------------------------------------------------------------------------------------


def mirrored(points: np.ndarray) -> np.ndarray:
    order = list(range(16))
    for left, right in FLIP_PAIRS:
        order[left], order[right] = right, left
    swapped = points[:, order].copy()
    swapped[..., 0] = SIZE[1] - 1 - swapped[..., 0]
    return swapped


@pytest.mark.parametrize("flip_test", [True, False])
def test_a_mirror_image_gives_mirrored_joints(model: PoseModel, flip_test: bool) -> None:
    """With the flip test exactly so; without it an untrained network would have to be lucky."""
    images = np.random.default_rng(0).integers(0, 256, (8, 3, *SIZE), dtype=np.uint8)
    points, scores = predict(model, images, flip_test)
    flipped, _ = predict(model, images[..., ::-1], flip_test)
    assert points.shape == (8, 16, 2) and scores.shape == (8, 16)
    # The last half pixel lies beyond the last pixel's centre and has no mirror bin.
    has_mirror = (points[..., 0] <= SIZE[1] - 1) & (mirrored(flipped)[..., 0] >= 0)
    assert has_mirror.mean() > 0.8
    same = np.isclose(points, mirrored(flipped)).all(-1)
    assert same[has_mirror].all() == flip_test


def test_batches_do_not_change_predictions(model: PoseModel) -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 3, *SIZE), dtype=np.uint8)
    whole, cut = predict(model, images, batch=5), predict(model, images, batch=2)
    assert np.array_equal(whole[0], cut[0]) and np.allclose(whole[1], cut[1], atol=1e-5)


def test_nobody_gives_nothing(model: PoseModel) -> None:
    points, scores = predict(model, np.zeros((0, 3, *SIZE), np.uint8))
    assert points.shape == (0, 16, 2) and scores.shape == (0, 16)


def test_evaluation_scores_what_was_predicted(model: PoseModel, tiny_records: PoseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = tiny_records.joints.astype(np.float32)
    monkeypatch.setattr("halfmask.tasks.pose.predict", lambda *a, **k: (truth, np.ones(truth.shape[:2])))
    best, per_joint = evaluate(model, tiny_records)
    assert max(best.values()) == pytest.approx(100, abs=1e-3) and len(per_joint) == 16
    monkeypatch.setattr("halfmask.tasks.pose.predict", lambda *a, **k: (truth + 1000, np.ones(truth.shape[:2])))
    assert max(evaluate(model, tiny_records)[0].values()) == 0


def test_evaluation_of_views_looks_at_views(model: PoseModel, tiny_records: PoseRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    views = np.zeros_like(tiny_records.images)
    seen = []
    real = predict
    monkeypatch.setattr("halfmask.tasks.pose.predict", lambda m, images, *a, **k: seen.append(images) or real(m, images))
    evaluate(model, replace(tiny_records, views=views), source="view")
    assert seen[0] is views
