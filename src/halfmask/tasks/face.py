"""Faces: where they are, where their landmarks are and which can be seen, how the head is turned, and a binary attribute.

Five losses of one region, weighed into one, so that one clip bounds all that a unit does to any weight, the weights of the tasks among
them. Whatever is known of faces alone is multiplied by the region's own label: nothing counts faces in a batch, and nothing balances
across images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halfmask.data.face_sets import load_face_test, load_faces, load_public_faces
from halfmask.data.faces import UNITS, FaceRecords
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.metrics.faces import face_scores
from halfmask.metrics.names import MetricInfo
from halfmask.models.checkpoints import load_into, read_state, weights_digest
from halfmask.models.hyperface import SUBTASKS, HyperFace, parts_by_depth
from halfmask.tasks.base import Batch, Graph, Lower, Report, Scores, Task, register
from halfmask.tasks.face_changes import NUMBERS, changed
from halfmask.tasks.face_finding import find_faces
from halfmask.tasks.face_settings import FACE_GROUPS, FaceModelConfig

_OF_FACE = "% of face size"
METRICS = {
    "detection_accuracy": MetricInfo("detection accuracy", "%", digits=2),
    "detection_ap": MetricInfo("detection AP", "%", digits=2),
    "landmark_error": MetricInfo("landmark error", _OF_FACE, higher_is_better=False, digits=2),
    "landmark_mse": MetricInfo("landmark MSE", higher_is_better=False),
    "visibility_mse": MetricInfo("visibility MSE", higher_is_better=False),
    "pose_error": MetricInfo("head pose error", "°", higher_is_better=False, digits=2),
    "pose_mse": MetricInfo("head pose MSE", "rad²", higher_is_better=False),
    "attribute_accuracy": MetricInfo("attribute accuracy", "%", digits=2),
}
# The metric of each task that stands for it.
HEADLINES = {
    "detection": "detection_accuracy",
    "landmarks": "landmark_error",
    "visibility": "visibility_mse",
    "pose": "pose_error",
    "attribute": "attribute_accuracy",
}


def subtask_losses(said: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """One loss per region for each task that the network has, none of which looks at another region.

    Detection and attribute are cross-entropies, the others squared errors: of landmarks over those that can be seen, by the constant number
    of them.
    """
    known = labelled(batch)
    found: dict[str, Callable[[], Tensor]] = {
        "detection": lambda: F.binary_cross_entropy_with_logits(said["detection"], batch["face"], reduction="none"),
        "landmarks": lambda: _landmarks(said["landmarks"], batch),
        "visibility": lambda: (said["visibility"] - batch["visible"]).square().mean(-1),
        "pose": lambda: (said["pose"] - batch["pose"]).square().mean(-1),
        "attribute": lambda: F.binary_cross_entropy_with_logits(said["attribute"], batch["attribute"], reduction="none"),
    }
    return {name: known[name] * found[name]() for name in said}


def labelled(batch: Batch) -> dict[str, Tensor]:
    """By task, 1 for each region that has a label for it and 0 for others."""
    face = batch["face"]
    return {
        "detection": torch.ones_like(face),
        "landmarks": face,
        "visibility": face,
        "pose": face * batch["posed"],
        "attribute": face * batch["attributed"],
    }


def _landmarks(said: Tensor, batch: Batch) -> Tensor:
    squares = (said - batch["landmarks"]).square().sum(-1) * batch["visible"]
    return squares.sum(-1) / (2 * batch["visible"].shape[-1])


def face_loss(model: nn.Module, batch: Batch, config: FaceModelConfig, only: str | None = None) -> Tensor:
    """The tasks' losses as one: Σ l·exp(−s) + s over the tasks that a region has a label for, or weighed by constants.

    Where there is no face, nothing is known of its landmarks, and s has no part in the likelihood of what is not known. Were it added all
    the same, its gradient, 1 for each of four tasks, would be most of what a region without a face has to say, and fill the clip.

    Args:
        only: the part of one task alone, where tasks are clipped apart.
    """
    assert isinstance(model, HyperFace)
    said = model.upper(batch["features"]) if "features" in batch else model(batch["image"])
    losses = subtask_losses(said, batch)
    kept = [name for name in model.subtasks if only is None or name == only]
    if config.weighting == "uncertainty":
        variances, precisions = model.bounded_log_variances(), model.precisions()
        known = labelled(batch)
        terms = [losses[n] * precisions[(k := model.subtasks.index(n))] + known[n] * variances[k] for n in kept]
        return torch.stack(terms).sum(0)
    constants = dict(zip(SUBTASKS, config.task_weights if config.weighting == "set" else [1.0] * len(SUBTASKS), strict=True))
    return torch.stack([losses[name] * constants[name] for name in kept]).sum(0)


@torch.no_grad()
def said_of(model: HyperFace, records: Records, source: str = PRIVATE, device: torch.device | str = "cpu") -> dict[str, np.ndarray]:
    """What the network says of records, by task."""
    parts: list[dict[str, Tensor]] = []
    for batch in records.batches(source, device, 256):
        parts.append(model.upper(batch["features"]) if "features" in batch else model(batch["image"]))
    return {name: torch.cat([part[name] for part in parts]).float().cpu().numpy() for name in model.subtasks}


@register
class FaceTask(Task):
    """Regions of photographs, and the faces that they show or do not."""

    name = "face"
    shards = True
    units = UNITS
    numbers = NUMBERS
    groups = FACE_GROUPS
    metrics: ClassVar[Mapping[str, MetricInfo]] = METRICS
    drawn = "Landmarks (green: visible, red: hidden) and head axes on test regions"
    labels = "which regions show a face and where they lie in their photographs, landmarks, visibility, head pose and any attribute learnt"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        return face_loss(model, batch, self.config.model)

    def losses(self, model: nn.Module) -> dict[str, Callable[[nn.Module, Batch], Tensor]]:
        """With `model.clip=by-task`, the part of each task."""
        if self.config.model.clip == "joint":
            return {}
        assert isinstance(model, HyperFace)

        def alone(name: str) -> Callable[[nn.Module, Batch], Tensor]:
            return lambda model, batch: face_loss(model, batch, self.config.model, name)

        return {name: alone(name) for name in model.subtasks}

    def load(self, report: Report | None = None) -> Datasets:  # noqa: D102
        return load_faces(self.config.data, self.config.model.input_size, report, self.shard)

    def load_test(self, report: Report | None = None) -> FaceRecords:  # noqa: D102
        return load_face_test(self.config.data, self.config.model.input_size, report)

    def load_public(self, report: Report | None = None) -> tuple[FaceRecords, FaceRecords | None]:  # noqa: D102
        return load_public_faces(self.config.data, self.config.model.input_size, report)

    def build(self, data: Datasets) -> HyperFace:  # noqa: D102
        assert isinstance(data.private, FaceRecords)
        return self._network(len(data.private.layout), data.private.attribute)

    def open(self, weights: Path) -> HyperFace:  # noqa: D102
        state = read_state(weights)
        subtasks = tuple(name for name in SUBTASKS if f"heads.{name}.2.weight" in state)
        points = len(state["heads.visibility.2.bias"]) if "visibility" in subtasks else len(state.get("heads.landmarks.2.bias", ())) // 2
        model = HyperFace(self.config.model.size, points, subtasks)
        load_into(model, state, str(weights))
        return model

    def _subtasks(self, attribute: str) -> tuple[str, ...]:
        """Those that are asked for, but for an attribute that the records do not have."""
        return tuple(name for name in SUBTASKS if name in self.config.model.subtasks and (name != "attribute" or attribute))

    def _network(self, landmarks: int, attribute: str) -> HyperFace:
        config = self.config.model
        model = HyperFace(config.size, landmarks, self._subtasks(attribute))
        if config.weights is None or self.config.strategy == "scratch":
            return model
        path = Path(config.weights).expanduser()
        if config.weights == "embedded":
            path = Path(str(resources.files("halfmask").joinpath(f"weights/face_{config.size}.safetensors")))
            if not path.is_file():
                raise HalfmaskError(
                    f"no embedded weights for a HyperFace of size '{config.size}': set model.weights to a file or to nothing"
                )
        state = read_state(path)
        if config.fresh_variances:
            state.pop("log_variances", None)
        load_into(model, _fitting(state, model), str(path))
        return model

    def trainable(self, model: nn.Module, strategy: str) -> None:
        """`top` trains from the vector on, `finetune` from the fusion on."""
        assert isinstance(model, HyperFace)
        chosen = parts_by_depth(model).get(strategy, list(model.parameters()))
        marked = {id(parameter) for parameter in chosen}
        for parameter in model.parameters():
            parameter.requires_grad = id(parameter) in marked
        # Nothing flows into weights of the tasks that are constants.
        model.log_variances.requires_grad = model.log_variances.requires_grad and self.config.model.weighting == "uncertainty"

    def lower(self, model: nn.Module) -> Lower:  # noqa: D102
        assert isinstance(model, HyperFace)
        below = [model.conv1, model.conv2, model.conv3, model.conv4, model.conv5, model.early, model.middle, model.mix]
        return Lower("".join(weights_digest(part) for part in below), lambda batch: model.lower(batch["image"]))

    def change(self, records: Records, batch: Batch, uniforms: Tensor) -> Batch:  # noqa: D102
        assert isinstance(records, FaceRecords)
        return changed(batch, uniforms, self.config.augment, records.layout)

    def sample(self, model: nn.Module, records: Records) -> Batch:
        """Noise for regions, two in three of them faces."""
        assert isinstance(model, HyperFace)
        generator = torch.Generator().manual_seed(self.config.seed)
        side = model.shape.input_size
        pixels = torch.randint(0, 256, (4, 3, side, side), generator=generator, dtype=torch.uint8)
        draw = lambda *shape: torch.rand(4, *shape, generator=generator)  # noqa: E731
        visible = (draw(model.landmarks) < 0.7).float()
        labels = {"face": (draw() < 0.67).float(), "landmarks": (draw(model.landmarks, 2) - 0.5) * visible[..., None], "visible": visible}
        labels |= {"pose": draw(3) - 0.5, "posed": torch.ones(4), "attribute": (draw() < 0.5).float(), "attributed": torch.ones(4)}
        return {"image": pixels} | labels

    def score(  # noqa: D102
        self,
        model: nn.Module,
        records: Records,
        source: str = PRIVATE,
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        assert isinstance(model, HyperFace)
        everyone = np.arange(len(records))
        scores = face_scores(said_of(model, records, source, device), records.targets.rows(everyone), records.truth.rows(everyone))
        parts = {name: scores[metric] for name, metric in HEADLINES.items() if metric in scores}
        return Scores(scores, parts)

    def features(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        assert isinstance(model, HyperFace)
        return model.embedding(batch["features"] if "features" in batch else model.lower(batch["image"]))

    def shows_somebody(self, records: Records) -> np.ndarray:  # noqa: D102
        return records.targets.rows(np.arange(len(records)))["face"] > 0.5

    def predict(
        self,
        model: nn.Module,
        image: np.ndarray,
        device: torch.device | str = "cpu",
        box: tuple[float, float, float, float] | None = None,
        flip_test: bool = True,
    ) -> tuple[dict[str, Any], np.ndarray]:
        """All faces of a photograph, with boxes, landmarks and the axes of each head drawn."""
        from halfmask.report.face_overlay import draw_face

        assert isinstance(model, HyperFace)
        faces = find_faces(model, image, device, box)
        drawing = image.copy()
        for face in faces:
            drawing = draw_face(drawing, face.landmarks, face.visible, face.box, face.pose, f"{face.score:.2f}")
        return {"faces": [face.to_json() for face in faces]}, drawing

    def graph(self, model: nn.Module, confidence: Mapping[str, Any], flip_test: bool = False) -> Graph:  # noqa: D102
        from halfmask.tasks.graphs import face_graph

        assert isinstance(model, HyperFace)
        return face_graph(model)

    def summary(self, found: Mapping[str, Any]) -> str:  # noqa: D102
        count = len(found["faces"])
        return "no face found" if not count else f"{count} face{'s' * (count > 1)}, surest {found['faces'][0]['score']:.2f}"

    def pictures(self, model: nn.Module | None, records: Records, device: torch.device | str = "cpu") -> list[np.ndarray]:
        """Landmarks and head axes on regions; a region without a face, or said to be one, is left as it is."""
        from halfmask.report.face_overlay import draw_face

        everyone = np.arange(len(records))
        regions = records.part(PRIVATE).rows(everyone)["image"].transpose(0, 2, 3, 1)
        said = records.targets.rows(everyone)
        found = {"detection": said["face"] - 0.5, "landmarks": said["landmarks"], "visibility": said["visible"], "pose": said["pose"]}
        if model is not None:
            assert isinstance(model, HyperFace)
            found = said_of(model, records.without_view(), device=device)
        drawn, side = [], regions.shape[1]
        for row, region in enumerate(regions):
            face = "detection" not in found or found["detection"][row] > 0
            points = (found["landmarks"][row] + 0.5) * side - 0.5 if "landmarks" in found and face else np.zeros((0, 2))
            visible = found["visibility"][row] if "visibility" in found and face else None
            pose = np.rad2deg(found["pose"][row]) if "pose" in found and face else None
            drawn.append(draw_face(np.ascontiguousarray(region), points, visible, pose=pose, scale=3))
        return drawn

    def most_in(self, unit: str) -> dict[str, int]:  # noqa: D102
        data = self.config.data
        return {"image": data.positives + data.negatives} if unit == "region" else {}

    def public_facts(self, data: Datasets) -> list[str]:
        """What ε means for a face that several regions show."""
        config, facts, records = self.config, list[str](), data.private
        assert isinstance(records, FaceRecords)
        if config.unit != "subject":
            facts.append(
                f"that the promise is to one {config.unit}: "
                + ("several regions show one face, and " if config.unit == "region" else "")
                + "a person of several photographs has less of it. Train with --unit subject, where ids are known, to protect people"
            )
        if config.model.clip == "by-task":
            tasks = len(self._subtasks(records.attribute))
            facts.append(f"that each of {tasks} tasks was clipped to its share of C, so that together they are at most C")
        return facts


def _fitting(state: dict[str, Tensor], model: HyperFace) -> dict[str, Tensor]:
    """Weights of a network with other landmarks, or with a head more or less: those heads' last layers stay untrained."""
    wanted = model.state_dict()
    own = {name for name in wanted if name.startswith(("heads.", "log_variances"))}
    kept = {name: tensor for name, tensor in state.items() if not name.startswith(("heads.", "log_variances")) or name in own}
    for name in own:
        if name not in kept or kept[name].shape != wanted[name].shape:
            kept[name] = wanted[name]
    return kept
