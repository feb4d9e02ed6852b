"""The pose task: one loss per person, and predictions that do not care which way a person faces."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from halfmask.data.datasets import DataConfig, load_test
from halfmask.data.figures import FLIP_PAIRS
from halfmask.data.pose_records import PoseRecords
from halfmask.data.skeleton import COCO, LSP, MPII
from halfmask.data.splits import SplitsConfig
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine, check_records_apart
from halfmask.models.pose import learn_statistics
from halfmask.models.simcc import PoseModel, decode, flip_back, smoothed_targets
from halfmask.tasks.pose import PoseTask, evaluate, metric_of, pose_loss, predict, score
from halfmask.training.config import build_config

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
    views = np.zeros_like(tiny_records.images)
    seen = []
    real = predict
    monkeypatch.setattr("halfmask.tasks.pose.predict", lambda m, images, *a, **k: seen.append(images) or real(m, images))
    evaluate(model, tiny_records.changed(views=views), source="view")
    assert seen[0] is views


def perfect(records: PoseRecords) -> tuple[np.ndarray, np.ndarray]:
    return np.array(records.joints, np.float32), np.ones(records.joints.shape[:2], np.float32)


def test_lsp_is_scored_by_torso_length(lsp_folder, fresh_home) -> None:
    records = load_test(DataConfig(name=str(lsp_folder(4)), splits=SplitsConfig(test="1-4")), SIZE)
    assert metric_of(records) == "pck"
    scores, per_joint = score(records, *perfect(records))
    assert scores["pck@0.2"] == scores["pck@0.5"] == 100 and set(per_joint) == set(LSP.names)
    points, sure = perfect(records)
    points[:, LSP.index("l_knee")] += 1000
    scores, per_joint = score(records, points, sure)
    assert scores["pck@0.2"] == pytest.approx(100 * 13 / 14) and per_joint["l_knee"] == 0 and scores["pck@0.2/knee"] == 50


def test_mpii_is_scored_by_head_boxes_where_it_has_them(mpii_folder, fresh_home) -> None:
    config = DataConfig(name=str(mpii_folder()))
    records = load_test(config, SIZE)
    assert metric_of(records) == "pckh"
    # The first head box is 12 × 16: its size is 0.6 · 20 = 12 pixels of the image, the second's 0.6 · 5 = 3.
    assert records.transforms is not None
    zoom = records.transforms[:, 0, 0]
    points, sure = perfect(records)
    points[:, 0, 0] += 4 * zoom
    scores, per_joint = score(records, points, sure)
    assert per_joint["r_ankle"] == 50, "4 pixels are within half of 12, and not within half of 3"
    assert scores["pckh@0.5"] == pytest.approx(100 * 27 / 28)
    (Path(config.name) / "annot/mpii_gt_val.mat").unlink()
    assert metric_of(load_test(config, SIZE)) == "pck"


def test_a_joint_outside_the_crop_counts_as_the_benchmark_counts_it(mpii_folder, fresh_home) -> None:
    joints = json.loads((mpii_folder() / "annot/train.json").read_text())[0]["joints"]
    joints[0] = [88.0, 2.0]
    records = load_test(DataConfig(name=str(mpii_folder(joints=joints, scale=0.25))), SIZE)
    assert not records.labelled[:, 0].any() and records.scored()[:, 0].all()
    points, sure = perfect(records)
    points[:, 0] = 0
    assert score(records, points, sure)[1]["r_ankle"] == 0


def test_coco_is_scored_on_its_images(coco_folder, annotation, fresh_home) -> None:
    nobody = annotation(7, 22, keypoints=[0.0] * 51, num_keypoints=0)
    records = load_test(DataConfig(name=str(coco_folder(val=[annotation(5, 21), annotation(6, 22), nobody]))), SIZE)
    assert metric_of(records) == "oks-ap" and len(records) == 2
    scores, _ = score(records, *perfect(records))
    assert scores["ap"] == pytest.approx(100), "poses found in crops are right in their images"
    points, sure = perfect(records)
    points[0] += 1000
    assert score(records, points, sure)[0]["ar"] == pytest.approx(50)
    alone = records.take(np.array([1]))
    assert score(alone, *perfect(alone))[0]["ar"] == pytest.approx(100), "those who were not taken are not missed"


def test_somebody_detected_twice_is_found_once(coco_folder, fresh_home) -> None:
    folder = coco_folder()
    boxes = [{"image_id": image, "bbox": [15, 15, 50, 90], "score": s} for image in (21, 22) for s in (0.9, 0.8)]
    (folder / "boxes.json").write_text(json.dumps(boxes))
    records = load_test(DataConfig(name=str(folder), boxes="boxes.json"), SIZE)
    annotated = load_test(DataConfig(name=str(folder)), SIZE)
    assert len(records) == 4 and not records.labelled.any()
    points = np.repeat(perfect(annotated)[0], 2, axis=0)
    scores, _ = score(records, points, np.ones((4, 17), np.float32))
    assert scores["ap"] == pytest.approx(100)


def test_a_model_of_other_joints_is_scored_on_those_both_have(model: PoseModel, lsp_folder, fresh_home) -> None:
    records = load_test(DataConfig(name=str(lsp_folder(4)), splits=SplitsConfig(test="1-4")), SIZE)
    scores, per_joint = evaluate(model, records)
    assert set(per_joint) == set(MPII.names) and math.isnan(per_joint["pelvis"]) and not math.isnan(per_joint["upper_neck"])
    assert 0 <= scores["pck@0.2"] <= scores["pck@0.5"] <= 100


def test_fourteen_joints_are_mirrored_as_lsps() -> None:
    torch.manual_seed(0)
    model = PoseModel("nano", 14, SIZE).eval()
    images = np.random.default_rng(0).integers(0, 256, (4, 3, *SIZE), dtype=np.uint8)
    with torch.no_grad():
        x, y = model(torch.from_numpy(images))
        mirror = model(torch.from_numpy(images[..., ::-1].copy()))
        x_back, y_back = flip_back(mirror[0], mirror[1], LSP.flip_pairs, 2)
        expected, _ = decode((x + x_back) / 2, (y + y_back) / 2, 2)
    np.testing.assert_array_equal(predict(model, images)[0], expected.numpy())


# ---- the task ------------------------------------------------------------------------------------------------------------


def task_for(*settings: str) -> PoseTask:
    return PoseTask(build_config({"model": {"weights": None, "input_size": list(SIZE)}}, {}, list(settings)))


@pytest.mark.parametrize("people", [100, 700])
def test_an_untrained_network_learns_its_statistics_by_batches(people: int, random_records: Callable[..., PoseRecords]) -> None:
    """Sixty-four public people at a time, each batch alike, and of many the first five hundred and twelve."""
    records = random_records(people)
    images = records.images.copy()
    images[64:] //= 8
    images[512:] = 255
    torch.manual_seed(0)
    found, expected = (PoseModel("nano", 16, SIZE).eval() for _ in range(2))
    expected.load_state_dict(found.state_dict())
    task_for("strategy=scratch").prepare(found, records.changed(images=images))
    learn_statistics(expected, torch.from_numpy(images[:512]).split(64))
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in found.state_dict().items())


@pytest.mark.parametrize("settings", [("strategy=finetune",), ("strategy=scratch", "model.norm=group")])
def test_a_network_with_statistics_or_without_any_learns_none(settings: tuple[str, ...]) -> None:
    model = PoseModel("nano", 16, SIZE, norm="group" if len(settings) > 1 else "batch")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    task_for(*settings).prepare(model, None)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_noise_to_try_the_loss_on_has_joints_inside_the_picture(model: PoseModel, tiny_records: PoseRecords) -> None:
    """Other ones, for which the loss is the same in all records, would not show a loss that couples people."""
    sample = task_for().sample(model, tiny_records)
    assert sample["image"].shape == (4, 3, *SIZE) and sample["image"].dtype == torch.uint8 and sample["labelled"].all()
    assert (sample["joints"] >= 0).all() and (sample["joints"] < min(SIZE)).all() and sample["joints"].unique().numel() > 100
    losses = pose_loss(model, sample)
    assert losses.unique().numel() == 4


def test_what_is_frozen_is_told_by_its_weights_and_mirrored(model: PoseModel, tiny_records: PoseRecords) -> None:
    lower, data = task_for().lower(model), tiny_records.batch(np.arange(2))
    assert lower.mirror is not None
    with torch.no_grad():
        assert torch.allclose(lower.features(lower.mirror(data)), model.lower(data["image"].flip(-1)), atol=1e-5)
        assert torch.allclose(pose_loss(model, data), pose_loss(model, data | {"features": lower.features(data)}), rtol=1e-5)
    other = PoseModel("nano", 16, SIZE).eval()
    assert task_for().lower(other).key != lower.key == task_for().lower(model).key


def test_the_network_of_a_run_is_opened_with_its_joints(tmp_path: Path) -> None:
    torch.manual_seed(1)
    trained = PoseModel("nano", 14, SIZE)
    save_file(trained.state_dict(), tmp_path / "model.safetensors")
    found = task_for().open(tmp_path / "model.safetensors")
    assert found.joints == 14 and all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in found.state_dict().items())


def test_scores_have_their_parts_under_the_words_of_the_task(model: PoseModel, tiny_records: PoseRecords) -> None:
    scores = task_for().score(model, tiny_records, flip_test=False)
    metrics, per_joint = evaluate(model, tiny_records, flip_test=False)
    assert (scores.metrics, scores.parts, scores.table) == (metrics, per_joint, "per_joint") and next(iter(metrics)) == "pckh@0.5"


def test_a_head_that_places_other_joints_is_taken_over_by_their_names(tmp_path) -> None:
    """Human-Art's seventeen joints from weights for MPII's sixteen: shared ones are copied, the face begins anew."""
    torch.manual_seed(0)
    trained = PoseModel("nano", 16, (64, 48))
    path = tmp_path / "mpii.safetensors"
    save_file(trained.state_dict(), path)
    settings = {"model": {"input_size": [64, 48], "weights": str(path), "transfer": True}}
    joints = np.zeros((2, 17, 2), np.float32)
    data = SimpleNamespace(private=SimpleNamespace(targets=SimpleNamespace(shapes=lambda: {"joints": (joints.dtype, joints.shape[1:])})))
    model = PoseTask(build_config(settings, {})).build(data)
    ours, theirs = model.state_dict(), trained.state_dict()
    assert model.joints == 17
    for name in ("left_knee", "right_wrist"):
        assert torch.equal(ours["head.conv.weight"][COCO.index(name)], theirs["head.conv.weight"][MPII.index(name)])
    assert not any(torch.equal(ours["head.conv.weight"][COCO.index("nose")], row) for row in theirs["head.conv.weight"])
    assert all(torch.equal(ours[name], value) for name, value in theirs.items() if not name.startswith("head.conv"))
    with pytest.raises(HalfmaskError, match="of another architecture"):
        PoseTask(build_config({"model": settings["model"] | {"transfer": False}}, {})).build(data)
