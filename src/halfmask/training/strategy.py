"""Which weights train, and what may be computed once because it does not change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from halfmask.data.records import PoseRecords
from halfmask.data.store import cached
from halfmask.models.checkpoints import weights_digest
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import learning_statistics

Progress = Callable[[int, int], None]


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
) -> PoseRecords:
    """The records with the frozen lower part's output for every image and view, computed once and kept in private storage.

    Keyed by the weights that made them and the data they were made from.
    """
    lower_key = weights_digest(model.backbone.patch_embed) + "".join(weights_digest(s) for s in model.backbone.stages[:3])
    sources = {"image": records.images} | ({"view": records.views} if records.views is not None else {})
    features = {}
    for number, (source, pixels) in enumerate(sources.items()):
        assert pixels is not None
        content = records.key if source == "image" else f"{records.key}/{records.view_key or _digest(pixels)}"

        def build(pixels: np.ndarray = pixels, number: int = number) -> dict[str, np.ndarray]:
            parts = []
            for start in range(0, len(pixels), 64):
                batch = torch.from_numpy(np.ascontiguousarray(pixels[start : start + 64])).to(device)
                parts.append(model.lower(batch).cpu().numpy())
                if progress:
                    progress(number * len(pixels) + min(start + 64, len(pixels)), len(sources) * len(pixels))
            return {"features": np.concatenate(parts)}

        features[source] = cached("features", f"{content}/{source}/{lower_key}", build)["features"]
    return replace(records, features=features)


def _digest(pixels: np.ndarray) -> str:
    digest = hashlib.sha256()
    for image in pixels:
        digest.update(image.tobytes())
    return digest.hexdigest()[:16]
