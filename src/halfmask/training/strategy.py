"""Which weights train, and what may be computed once because it does not change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.augment import NUMBERS, AugmentConfig, draw
from halfmask.data.keyed import uniforms
from halfmask.data.records import PoseRecords
from halfmask.data.store import cached
from halfmask.models.checkpoints import weights_digest
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import learning_statistics

Progress = Callable[[int, int], None]
# What is done to some of the pictures before the network sees them.
Change = Callable[[Tensor, slice], Tensor]

# Pictures go through the network by as many at a time as this, never fewer: a matrix product of other dimensions may round differently,
# and what is computed for a person would depend on how many others there are.
_AT_ONCE = 32
# Copies are the same for every run, whatever its seed, so that they are made once.
_COPY_SEED = 0x5EED
# Part of every copy's key: copies that were drawn otherwise are not found again.
_COPY_VERSION = 2


def choose_parameters(model: PoseModel, strategy: str) -> None:
    """Mark the trainable parameters.

    * `finetune`: stage 4, the head and every LayerNorm;
    * `top`: stage 4 and the head, so that what lies below can be computed once;
    * `full` and `scratch`: everything.
    """
    upper = {id(p) for part in (model.backbone.stages[3], model.head) for p in part.parameters()}
    norms = {id(p) for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for parameter in model.parameters():
        parameter.requires_grad = (
            strategy in ("full", "scratch") or id(parameter) in upper or (strategy == "finetune" and id(parameter) in norms)
        )


@torch.no_grad()
def learn_public_statistics(model: PoseModel, public: PoseRecords, records: int = 512) -> None:
    """Set the frozen normalisations of an untrained network by one pass over public people.

    A cumulative average over the batches: each layer sees inputs normalised by its own batch, as it would early in training.
    """
    for index, start in enumerate(range(0, min(records, len(public)), 64)):
        with learning_statistics(model, momentum=1 / (index + 1)):
            model(public.batch(np.arange(start, min(start + 64, len(public))))["image"])


@torch.no_grad()
def with_lower_features(
    records: PoseRecords,
    model: PoseModel,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    copies: int = 0,
    change: AugmentConfig | None = None,
    mirrored: bool = False,
    views_too: bool = True,
) -> PoseRecords:
    """The records with the frozen lower part's output for every image and view, computed once and kept in private storage.

    Keyed by the weights that made them and the data they were made from, and kept in half precision.

    Args:
        copies: of each record also as many copies, after fixed random changes (the same for an image and its view) of this kind.
        mirrored: of each image also the mirror image, for scoring.
        views_too: make copies of views as well.
    """
    lower = Lower(model, device)
    sources = ["image"] + ["view"] * (records.views is not None) + ["mirror"] * mirrored
    copied = records if views_too else replace(records, views=None)
    total = len(records) * (len(sources) + copies * (1 + (copied.views is not None)))
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(done, total)

    features = {}
    for source in sources:
        pixels = records.views if source == "view" else records.images
        assert pixels is not None
        features[source] = lower.features(_content(records, source), pixels, report, _mirror if source == "mirror" else _as_it_is)
    made = tuple(_copy(copied, lower, number, change or AugmentConfig(), report) for number in range(copies))
    return replace(records, features=features, copies=made)


@dataclass(frozen=True)
class Lower:
    """The frozen lower part of a network, and how its output is remembered."""

    model: PoseModel
    device: torch.device | str

    @property
    def key(self) -> str:
        """Names the weights."""
        backbone = self.model.backbone
        return weights_digest(backbone.patch_embed) + "".join(weights_digest(s) for s in backbone.stages[:3])

    def features(self, content: str, pixels: np.ndarray, report: Callable[[int], None], change: Change) -> np.ndarray:
        """Its output for every picture after a change; `content` names pictures and change."""

        def build() -> dict[str, np.ndarray]:
            parts = []
            for start in range(0, len(pixels), _AT_ONCE):
                some = slice(start, min(start + _AT_ONCE, len(pixels)))
                batch = change(torch.from_numpy(np.ascontiguousarray(pixels[some])), some)
                full = torch.cat([batch, batch.new_zeros(_AT_ONCE - len(batch), *batch.shape[1:])])
                found = self.model.lower(full.to(self.device).contiguous(memory_format=torch.channels_last))
                parts.append(_halved(found[: len(batch)].cpu()))
                report(len(batch))
            return {"features": np.concatenate(parts)}

        return cached("features", f"{content}/{self.key}/half/{_AT_ONCE}", build)["features"]


def _copy(records: PoseRecords, lower: Lower, number: int, change: AugmentConfig, report: Callable[[int], None]) -> PoseRecords:
    """The records after random changes, each drawn by the record's own id."""
    everyone = {"joints": torch.from_numpy(records.joints), "labelled": torch.from_numpy(records.labelled)}
    # Only its shape is looked at.
    everyone["image"] = torch.empty(len(records), 1, *records.images.shape[2:], device="meta")
    numbers = uniforms(_COPY_SEED, "copies", number, records.ids, count=NUMBERS)
    drawn = draw(everyone, torch.from_numpy(numbers), change, records.skeleton)
    joints, labelled = drawn.move_joints(everyone["joints"], everyone["labelled"], *records.images.shape[2:])
    features = {}
    for source, pixels in (("image", records.images), ("view", records.views)):
        if pixels is not None:
            content = f"{_content(records, source)}/copy{number}/{_COPY_VERSION}/{_digest(numbers)}/{change}"
            features[source] = lower.features(content, pixels, report, lambda batch, some: drawn.of(some).apply_to_images(batch))
    return replace(records, features=features, joints=joints.numpy(), labelled=labelled.numpy(), copies=())


def _halved(features: Tensor) -> np.ndarray:
    """Each record's in half precision, unless that would not hold the largest of its own: nobody is rounded by what others need."""
    short = features.half()
    fits = torch.isfinite(short).flatten(1).all(1)
    if bool(fits.all()):
        return short.numpy()
    return torch.where(fits.view(-1, *[1] * (features.dim() - 1)), short.float(), features).numpy()


def _as_it_is(pictures: Tensor, _: slice) -> Tensor:
    return pictures


def _mirror(pictures: Tensor, _: slice) -> Tensor:
    return pictures.flip(-1)


def _content(records: PoseRecords, source: str) -> str:
    if source != "view":
        return f"{records.key}/{source}"
    assert records.views is not None
    return f"{records.key}/{records.view_key or _digest(records.views)}/view"


def _digest(rows: np.ndarray) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.tobytes())
    return digest.hexdigest()[:16]
