"""2D human pose: where the joints of the person in a crop are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.augment import NUMBERS, draw
from halfmask.data.datasets import count_private, load_datasets, load_public, load_test
from halfmask.data.images import crop_picture, to_image
from halfmask.data.mapping import map_joints, with_skeleton
from halfmask.data.pose_records import UNITS, PoseRecords, mislabelled
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.data.skeleton import MPII, Skeleton, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.metrics import oks_ap, pck
from halfmask.metrics.pckh import head_size, pckh, summary
from halfmask.models.checkpoints import read_state, weights_digest
from halfmask.models.pose import build_model, choose_parameters, learn_statistics
from halfmask.models.simcc import PoseModel, decode, flip_back, smoothed_targets
from halfmask.models.tinyvit import learning_statistics
from halfmask.tasks.base import MIRROR, Batch, Box, Graph, Lower, Report, Scores, Task, register
from halfmask.tasks.pose_settings import POSE_GROUPS

if TYPE_CHECKING:
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.training.public import PublicHalf
    from halfmask.training.setup import Setup

Logits = tuple[Tensor, Tensor]
# So many public people tell the statistics of an untrained network.
_STATISTICS = 512


def pose_loss(model: nn.Module, batch: Batch) -> Tensor:
    """One loss per record: cross-entropy against smoothed bins on both axes, over labelled joints, by the constant number of joints.

    Dividing by a constant instead of by the number of labelled joints keeps the loss a plain sum over joints, and nothing here looks
    at another record. `sharpness`, where present, multiplies the logits: see `best_sharpness`.
    """
    assert isinstance(model, PoseModel)
    logits = _logits(model, batch)
    if "sharpness" in batch:
        logits = (logits[0] * batch["sharpness"][:, None, None], logits[1] * batch["sharpness"][:, None, None])
    return _cross_entropy(logits, batch, model.bins_per_pixel)


def _logits(model: PoseModel, batch: Batch) -> Logits:
    return model.upper(batch["features"]) if "features" in batch else model(batch["image"])


def _cross_entropy(logits: Logits, batch: Batch, bins_per_pixel: int) -> Tensor:
    # Coordinates of unlabelled joints may be anything, even NaN, and NaN times nothing is NaN: they are never looked at.
    joints = torch.where(batch["labelled"][..., None], batch["joints"], torch.zeros_like(batch["joints"]))
    losses = torch.zeros(joints.shape[:2], device=joints.device)
    for axis, values in enumerate(logits):
        targets = smoothed_targets(joints[..., axis], values.shape[-1], bins_per_pixel)
        losses = losses - (targets * values.log_softmax(-1)).sum(-1)
    losses = torch.where(batch["labelled"], losses, torch.zeros_like(losses))
    return losses.sum(-1) / joints.shape[1]


@torch.no_grad()
def best_sharpness(model: PoseModel, batches: Batch | Iterable[Batch]) -> float:
    """The factor on all logits at which the loss of these people, in one batch or several, who must not have been trained on, is smallest.

    A model fitted to few people is too sure of itself on others. The gradient of an ordinary loss then says first of all "be less sure",
    for everyone alike, and the clip norm is spent on that, though it moves no joint. With its logits scaled by this factor the model is
    as sure as it should be, and what is left of the gradient is about where the joints are.
    """
    losses = dict.fromkeys((2 ** (step / 4) for step in range(-12, 5)), 0.0)
    for batch in [batches] if isinstance(batches, dict) else batches:
        x_logits, y_logits = _logits(model, batch)
        for sharpness in losses:
            each = _cross_entropy((x_logits * sharpness, y_logits * sharpness), batch, model.bins_per_pixel)
            losses[sharpness] += float(each.mean()) * len(each)
    finite = {sharpness: loss for sharpness, loss in losses.items() if math.isfinite(loss)}
    return min(finite, key=finite.__getitem__, default=1.0)


@torch.no_grad()
def predict(
    model: PoseModel,
    images: np.ndarray,
    flip_test: bool = True,
    batch: int = 64,
    device: torch.device | str = "cpu",
    skeleton: Skeleton | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Joints in pixels (N×J×2) and confidences (N×J) for crops given as bytes (N×3×H×W).

    Args:
        flip_test: also look at the mirror image, and average the logits.
        skeleton: which joints the model places, to tell left from right; their number tells if it is not given.
    """

    def look(some: slice, mirrored: bool) -> Logits:
        pixels = torch.from_numpy(np.array(images[some])).to(device)
        return model(pixels.flip(-1) if mirrored else pixels)

    return _place(model, len(images), look, flip_test, batch, skeleton)


def _place(
    model: PoseModel, people: int, look: Callable[[slice, bool], Logits], flip_test: bool, batch: int, skeleton: Skeleton | None
) -> tuple[np.ndarray, np.ndarray]:
    """Joints and confidences from what a network says of some people, or of their mirror images."""
    pairs = (skeleton or skeleton_with(model.joints)).flip_pairs if flip_test else ()
    points, scores = [], []
    for start in range(0, people, batch):
        some = slice(start, start + batch)
        x_logits, y_logits = look(some, False)
        if flip_test:
            x_mirror, y_mirror = flip_back(*look(some, True), pairs, model.bins_per_pixel)
            x_logits, y_logits = (x_logits + x_mirror) / 2, (y_logits + y_mirror) / 2
        where, sure = decode(x_logits, y_logits, model.bins_per_pixel)
        points.append(where.cpu().numpy())
        scores.append(sure.cpu().numpy())
    if not points:
        return np.zeros((0, model.joints, 2), np.float32), np.zeros((0, model.joints), np.float32)
    return np.concatenate(points), np.concatenate(scores)


@torch.no_grad()
def _predict_from_features(
    model: PoseModel, records: PoseRecords, flip_test: bool, device: torch.device | str, skeleton: Skeleton
) -> tuple[np.ndarray, np.ndarray]:
    """The same from what the lower part of the network, frozen, made of the images before."""

    def look(some: slice, mirrored: bool) -> Logits:
        features = records.features[MIRROR if mirrored else PRIVATE][some]
        return model.upper(torch.from_numpy(np.array(features)).to(device).float())

    return _place(model, len(records), look, flip_test, 64, skeleton)


def evaluate(
    model: PoseModel,
    records: PoseRecords,
    source: str = PRIVATE,
    flip_test: bool = True,
    device: torch.device | str = "cpu",
) -> tuple[dict[str, float], dict[str, float]]:
    """Score the model on `records` by the metric that their dataset is scored by; see `metric_of`.

    A model that places another dataset's joints is scored on those that both have.

    Returns:
        The summary (means and joint groups), and the score of each joint, where the metric has one.
    """
    return score(*_judged(model, records, source, flip_test, device))


def _judged(
    model: PoseModel, records: PoseRecords, source: str, flip_test: bool, device: torch.device | str
) -> tuple[PoseRecords, np.ndarray, np.ndarray]:
    """The records with the joints that the model has, where it places those, and how sure it is."""
    own = records.skeleton if model.joints == len(records.skeleton) else skeleton_with(model.joints)
    if source == PRIVATE and {PRIVATE, MIRROR} <= records.features.keys():
        predicted, confidences = _predict_from_features(model, records, flip_test, device, own)
    else:
        images = records.images if source == PRIVATE else records.views
        assert images is not None
        predicted, confidences = predict(model, images, flip_test, device=device, skeleton=own)
    return (records if own == records.skeleton else with_skeleton(records, own)), predicted, confidences


def score_by_scene(records: PoseRecords, predicted: np.ndarray, confidences: np.ndarray) -> list[dict[str, Any]]:
    """The headline for each kind of picture, where the dataset tells kinds apart: a mean can hide whom a model serves badly."""
    scenes = None if records.scenes is None else np.asarray(records.scenes)
    found = []
    for scene in () if scenes is None else np.unique(scenes):
        rows = np.flatnonzero(scenes == scene)
        some = records.take(rows)
        assert isinstance(some, PoseRecords)
        metrics, _ = score(some, predicted[rows], confidences[rows])
        metric, value = next(iter(metrics.items()))
        found.append(
            {
                "group": str(scene) or "other",
                "records": len(rows),
                "metric": metric,
                "value": round(value, 4) if math.isfinite(value) else None,
            }
        )
    return found


def metric_of(records: PoseRecords) -> str:
    """`oks-ap` for COCO's form, `pckh` where everybody has a head box, `pck` (of torso length) otherwise."""
    if records.coco is not None:
        return "oks-ap"
    if records.skeleton == MPII and not records.unscored and bool(np.isfinite(records.head_boxes).all()):
        return "pckh"
    return "pck"


def score(records: PoseRecords, predicted: np.ndarray, confidences: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:
    """Score predictions in crop pixels (N×J×2) with their confidences (N×J)."""
    metric = metric_of(records)
    if metric == "pckh":
        sizes = head_size(records.head_boxes)
        counted = records.scored()
        scores = summary(predicted, records.joints, counted, sizes)
        return scores, pckh(predicted, records.joints, counted, sizes).per_joint
    if metric == "oks-ap":
        return _average_precision(records, predicted, confidences), {}
    counted = records.scored()
    result = pck.pck(predicted, records.joints, counted, pck.torso_lengths(records.joints, counted, records.skeleton))
    return pck.summary(result, records.skeleton), dict(zip(records.skeleton.names, result[0.2].per_joint.tolist(), strict=True))


def _average_precision(records: PoseRecords, predicted: np.ndarray, confidences: np.ndarray) -> dict[str, float]:
    """OKS-AP is measured in image pixels, so predictions go back to their images first."""
    truth, transforms = records.coco, records.transforms
    if truth is None or transforms is None:
        raise HalfmaskError("these records do not know their images: OKS-AP needs records read from a COCO-style dataset")
    turns = np.linalg.inv(transforms[:, :, :2])
    placed = np.einsum("nij,nkj->nki", turns, predicted - transforms[:, None, :, 2])
    results = oks_ap.keypoint_results(placed, confidences, truth.image_ids, truth.box_scores)
    if truth.detected:
        results = oks_ap.suppress(results, records.skeleton.oks_sigmas)
    return oks_ap.average_precision(truth.images, truth.annotations, results, records.skeleton)


def _same_joints(found: int, wanted: int) -> dict[int, int]:
    """Joints that the skeletons with these numbers of joints have in common: the place in the second, and that in the first."""
    sources = map_joints(skeleton_with(found), skeleton_with(wanted)).sources
    return {joint: places[0] for joint, places in enumerate(sources) if len(places) == 1}


@register
class PoseTask(Task):
    """Crops of people, and where their joints are."""

    name = "pose"
    units = UNITS
    numbers = NUMBERS
    groups = POSE_GROUPS
    shards = True
    labels = "keypoints, visibility and crop box"
    drawn = "Skeletons that each method draws on test people"
    planted = "people with another's joints"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        return pose_loss(model, batch)

    def load(self, report: Report | None = None) -> Datasets:  # noqa: D102
        return load_datasets(self.config.data, self.config.model.input_size, report, self.shard)

    def load_test(self, report: Report | None = None) -> PoseRecords:  # noqa: D102
        return load_test(self.config.data, self.config.model.input_size, report)

    def load_public(self, report: Report | None = None) -> tuple[PoseRecords, PoseRecords | None]:  # noqa: D102
        return load_public(self.config.data, self.config.model.input_size, report)

    def count_private(self) -> int:  # noqa: D102
        return count_private(self.config.data, self.config.unit)

    def build(self, data: Datasets) -> PoseModel:  # noqa: D102
        joints = data.private.targets.shapes()["joints"][1][0]
        same = _same_joints if self.config.model.transfer else None
        return build_model(self.config.model, joints, self.config.strategy == "scratch", same)

    def open(self, weights: Path) -> PoseModel:  # noqa: D102
        # One map of the head for each joint. Another kind of file is refused where its weights are read.
        head = read_state(weights).get("head.conv.weight")
        return build_model(replace(self.config.model, weights=str(weights)), joints=len(MPII) if head is None else len(head))

    def trainable(self, model: nn.Module, strategy: str) -> None:  # noqa: D102
        assert isinstance(model, PoseModel)
        choose_parameters(model, strategy)

    def lower(self, model: nn.Module) -> Lower:  # noqa: D102
        assert isinstance(model, PoseModel)
        backbone = model.backbone
        key = weights_digest(backbone.patch_embed) + "".join(weights_digest(s) for s in backbone.stages[:3])
        return Lower(
            key,
            lambda batch: model.lower(batch["image"].contiguous(memory_format=torch.channels_last)),
            lambda batch: batch | {"image": batch["image"].flip(-1)},
        )

    def change(self, records: Records, batch: Batch, uniforms: Tensor) -> Batch:  # noqa: D102
        assert isinstance(records, PoseRecords)
        return draw(batch, uniforms, self.config.augment.change, records.skeleton).apply(batch)

    def calibrate(self, model: nn.Module, batches: Iterable[Batch]) -> float:  # noqa: D102
        assert isinstance(model, PoseModel)
        return best_sharpness(model, batches)

    def prepare(self, model: nn.Module, public: Records | None) -> None:
        """An untrained network learns the statistics of its frozen normalisations from public people."""
        if self.config.strategy != "scratch" or self.config.model.norm != "batch":
            return
        if public is None:
            raise HalfmaskError(
                "training from scratch needs public people for its normalisation statistics: add records with split 'public', or use "
                "model.norm=group"
            )
        assert isinstance(model, PoseModel)
        some = min(_STATISTICS, len(public))
        learn_statistics(model, (public.batch(np.arange(start, min(start + 64, some)))["image"] for start in range(0, some, 64)))

    def pretraining(self, setup: Setup, engine: ClippingEngine) -> PublicHalf:
        """Crops, the first of them at half size."""
        # Pre-training belongs to the rooms that ask a task, not to what a task needs.
        from halfmask.tasks.pose_pretraining import FromCrops

        return FromCrops(setup, engine)

    def learning(self, model: nn.Module) -> AbstractContextManager[None]:
        """Normalisation statistics: the people are public."""
        return learning_statistics(model, momentum=0.05)

    def sample(self, model: nn.Module, records: Records) -> Batch:
        """Noise for pictures, and joints anywhere in them."""
        assert isinstance(model, PoseModel)
        generator = torch.Generator().manual_seed(self.config.seed)
        pixels = torch.randint(0, 256, (4, 3, *model.input_size), generator=generator, dtype=torch.uint8)
        joints = torch.rand(4, model.joints, 2, generator=generator) * min(model.input_size)
        return {"image": pixels, "joints": joints, "labelled": torch.ones(4, model.joints, dtype=torch.bool)}

    def score(  # noqa: D102
        self,
        model: nn.Module,
        records: Records,
        source: str = PRIVATE,
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        assert isinstance(model, PoseModel) and isinstance(records, PoseRecords)
        judged = _judged(model, records, source, flip_test, device)
        metrics, per_joint = score(*judged)
        groups = score_by_scene(*judged)
        return Scores(metrics, per_joint, "per_joint", {"groups": groups} if groups else {})

    def pictures(self, model: nn.Module | None, records: Records, device: torch.device | str = "cpu") -> list[np.ndarray]:
        """Skeletons on crops."""
        # Drawing belongs to the report, which is not needed to train.
        from halfmask.report.overlay import draw_skeleton

        assert isinstance(records, PoseRecords)
        crops = [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in records.images]
        if model is None:
            labels = zip(crops, records.joints, records.labelled, strict=True)
            return [draw_skeleton(crop, joints, labelled, skeleton=records.skeleton) for crop, joints, labelled in labels]
        assert isinstance(model, PoseModel)
        points, _ = predict(model, np.asarray(records.images), device=device)
        own = skeleton_with(model.joints)
        return [draw_skeleton(crop, joints, skeleton=own) for crop, joints in zip(crops, points, strict=True)]

    def predict(  # noqa: D102
        self,
        model: nn.Module,
        image: np.ndarray,
        device: torch.device | str = "cpu",
        box: Box | None = None,
        flip_test: bool = True,
    ) -> tuple[dict[str, Any], np.ndarray]:
        from halfmask.report.overlay import draw_skeleton

        assert isinstance(model, PoseModel)
        skeleton = skeleton_with(model.joints)
        crop, transform = crop_picture(image, box, self.config.model.input_size)
        points, scores = predict(model, np.ascontiguousarray(crop.transpose(2, 0, 1)[None]), flip_test, device=device)
        joints = to_image(points[0], transform)
        found = [
            {"name": name, "x": round(float(x), 2), "y": round(float(y), 2), "score": round(float(score), 4)}
            for name, (x, y), score in zip(skeleton.names, joints, scores[0], strict=True)
        ]
        return {"joints": found}, draw_skeleton(image, joints, skeleton=skeleton)

    def graph(self, model: nn.Module, confidence: Mapping[str, Any], flip_test: bool = False) -> Graph:  # noqa: D102
        from halfmask.tasks.graphs import pose_graph

        assert isinstance(model, PoseModel)
        return pose_graph(model, confidence, flip_test)

    def confidence(self, model: nn.Module, public: Records, device: torch.device | str = "cpu") -> dict[str, Any]:
        """How likely a joint of some score is within a fifth of the torso length of its place."""
        from halfmask.tasks.pose_calibration import calibrate_scores

        if not (isinstance(model, PoseModel) and isinstance(public, PoseRecords)):
            return {}
        return {name: curve.to_json() for name, curve in calibrate_scores(model, public, device).items()}

    def summary(self, found: Mapping[str, Any]) -> str:  # noqa: D102
        return f"mean score {sum(joint['score'] for joint in found['joints']) / len(found['joints']):.2f}"

    def mislabelled(self, strangers: Records, members: Records, chosen: np.ndarray) -> PoseRecords:
        """Crops with another person's joints."""
        assert isinstance(strangers, PoseRecords) and isinstance(members, PoseRecords)
        return mislabelled(strangers, members, chosen)
