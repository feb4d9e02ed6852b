"""Random changes to regions: mirrored, moved, made larger or smaller, lit otherwise; what is known of a face goes along."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from halfmask.data.faces import Layout
from halfmask.tasks.base import Batch

# Uniform numbers that a change takes: mirror, shift along both axes, scale, brightness, contrast.
NUMBERS = 6


def changed(batch: Batch, uniforms: Tensor, settings: Any, layout: Layout) -> Batch:
    """The regions after changes: a pure function of each and of its own row of numbers, the same for a region and its view."""
    device = batch["image"].device
    drawn = uniforms.to(device, torch.float32)
    mirrored = (drawn[:, 0] < 0.5) & bool(settings.mirror)
    shift = (2 * drawn[:, 1:3] - 1) * settings.shift
    scale = 1 + (2 * drawn[:, 3] - 1) * settings.scale
    found = _mirrored(batch, mirrored, layout)
    found = _moved(found, shift, scale)
    brightness, contrast = ((2 * drawn[:, k] - 1) * settings.light for k in (4, 5))
    pixels = found["image"].float()
    lit = (pixels - 127.5) * (1 + contrast)[:, None, None, None] + 127.5 * (1 + brightness)[:, None, None, None]
    return found | {"image": lit.round().clamp(0, 255).to(torch.uint8)}


def _mirrored(batch: Batch, which: Tensor, layout: Layout) -> Batch:
    order = torch.tensor(layout.mirror, device=which.device, dtype=torch.long)
    landmarks, visible = batch["landmarks"][:, order], batch["visible"][:, order]
    landmarks = landmarks * landmarks.new_tensor([-1.0, 1.0])
    # A mirror turns the head's roll and yaw round and leaves its pitch.
    pose = batch["pose"] * batch["pose"].new_tensor([-1.0, 1.0, -1.0])
    chosen = {"image": batch["image"].flip(-1), "landmarks": landmarks, "visible": visible, "pose": pose}
    return batch | {name: torch.where(which.view(-1, *[1] * (value.dim() - 1)), value, batch[name]) for name, value in chosen.items()}


def _moved(batch: Batch, shift: Tensor, scale: Tensor) -> Batch:
    """Seen through a window `scale` times as large, whose centre is moved by `shift` of the region's side; edges are drawn out."""
    image = batch["image"].float()
    turn = torch.zeros(len(image), 2, 3, device=image.device)
    turn[:, 0, 0] = turn[:, 1, 1] = scale
    turn[:, :, 2] = 2 * shift
    grid = F.affine_grid(turn, list(image.shape), align_corners=False)
    seen = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)
    landmarks = (batch["landmarks"] - shift[:, None]) / scale[:, None, None]
    inside = (landmarks.abs() <= 0.5).all(-1)
    visible = batch["visible"] * inside
    return batch | {"image": seen, "landmarks": landmarks * visible[..., None], "visible": visible}
