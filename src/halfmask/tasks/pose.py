"""2D human pose: where the joints of the person in a crop are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.figures import FLIP_PAIRS
from halfmask.data.records import PoseRecords
from halfmask.metrics.pckh import head_size, pckh, summary
from halfmask.models.simcc import PoseModel, decode, flip_back, smoothed_targets

Batch = dict[str, Tensor]


def pose_loss(model: nn.Module, batch: Batch) -> Tensor:
    """One loss per record: cross-entropy against smoothed bins on both axes, over labelled joints, by the constant number of joints.

    Dividing by a constant instead of by the number of labelled joints keeps the loss a plain sum over joints, and nothing here looks
    at another record. `weight`, where present, makes a unit's gradient the mean over its records.
    """
    assert isinstance(model, PoseModel)
    x_logits, y_logits = model.upper(batch["features"]) if "features" in batch else model(batch["image"])
    k = model.bins_per_pixel
    # Coordinates of unlabelled joints may be anything, even NaN, and NaN times nothing is NaN: they are never looked at.
    joints = torch.where(batch["labelled"][..., None], batch["joints"], torch.zeros_like(batch["joints"]))
    losses = torch.zeros(joints.shape[:2], device=x_logits.device)
    for axis, logits in enumerate((x_logits, y_logits)):
        targets = smoothed_targets(joints[..., axis], logits.shape[-1], k)
        losses = losses - (targets * logits.log_softmax(-1)).sum(-1)
    losses = torch.where(batch["labelled"], losses, torch.zeros_like(losses))
    loss = losses.sum(-1) / model.joints
    return loss * batch["weight"] if "weight" in batch else loss


@torch.no_grad()
def predict(
    model: PoseModel,
    images: np.ndarray,
    flip_test: bool = True,
    batch: int = 64,
    device: torch.device | str = "cpu",
) -> tuple[np.ndarray, np.ndarray]:
    """Joints in pixels (N×J×2) and confidences (N×J) for crops given as bytes (N×3×H×W).

    Args:
        flip_test: also look at the mirror image, and average the logits.
    """
    points, scores = [], []
    for start in range(0, len(images), batch):
        pixels = torch.from_numpy(np.ascontiguousarray(images[start : start + batch])).to(device)
        x_logits, y_logits = model(pixels)
        if flip_test:
            mirror = model(pixels.flip(-1))
            x_mirror, y_mirror = flip_back(mirror[0], mirror[1], FLIP_PAIRS, model.bins_per_pixel)
            x_logits, y_logits = (x_logits + x_mirror) / 2, (y_logits + y_mirror) / 2
        where, sure = decode(x_logits, y_logits, model.bins_per_pixel)
        points.append(where.cpu().numpy())
        scores.append(sure.cpu().numpy())
    if not points:
        return np.zeros((0, model.joints, 2), np.float32), np.zeros((0, model.joints), np.float32)
    return np.concatenate(points), np.concatenate(scores)


def evaluate(
    model: PoseModel,
    records: PoseRecords,
    source: str = "image",
    flip_test: bool = True,
    device: torch.device | str = "cpu",
) -> tuple[dict[str, float], dict[str, float]]:
    """PCKh of the model on `records`: the summary (means and joint groups), and PCKh@0.5 of each joint."""
    images = records.images if source == "image" else records.views
    assert images is not None
    predicted, _ = predict(model, images, flip_test, device=device)
    sizes = head_size(records.head_boxes)
    scores = summary(predicted, records.joints, records.labelled, sizes)
    return scores, pckh(predicted, records.joints, records.labelled, sizes).per_joint
