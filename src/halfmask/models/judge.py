"""The shipped pose network as a judge of pictures: what it sees in them, and where it finds their joints.

It was trained on public people and belongs to no run, so what it says of generated pictures is the same for whoever asks. Pictures of any
size are brought to the network's own before it looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import cv2
import numpy as np
import torch
import torch.nn.functional as F

from halfmask.errors import HalfmaskError
from halfmask.models.checkpoints import weights_digest
from halfmask.models.pose import build_model
from halfmask.models.simcc import PoseModel, decode, normalise

SIZE = (256, 192)
_BATCH = 64
# Cells of the picture, down and across, in which what a layer sees is averaged.
_GRID = (4, 3)


@dataclass(frozen=True)
class Sight:
    """What the judge sees in some pictures.

    Attributes:
        features: N×F, the means over the picture of its last two layers.
        grid: N×G, the same layers in a few cells of the picture: what is where, roughly.
        joints: N×16×2 in MPII's order, in pixels of the pictures.
        confidence: N×16.
    """

    features: np.ndarray
    grid: np.ndarray
    joints: np.ndarray
    confidence: np.ndarray


class Judge:
    """The network, and what to call it beside a number that it gave."""

    def __init__(self, model: PoseModel, name: str):
        self.model, self.name = model.eval(), f"{name} ({weights_digest(model)[:8]})"

    @torch.no_grad()
    def look(self, images: np.ndarray) -> Sight:
        """Everything at once, because the network is what costs.

        Args:
            images: bytes N×3×H×W.
        """
        check_pictures(images)
        height, width = images.shape[2:]
        features, grids, points, sure = [], [], [], []
        for start in range(0, len(images), _BATCH):
            shown = torch.from_numpy(resized(images[start : start + _BATCH], SIZE))
            stages = self.model.backbone.stages_forward(normalise(shown))
            features.append(torch.cat([stage.mean((2, 3)) for stage in stages[2:]], 1))
            grids.append(torch.cat([F.adaptive_avg_pool2d(stage, _GRID).flatten(1) for stage in stages[2:]], 1))
            x_logits, y_logits = self.model.head(stages[3])
            where, how = decode(x_logits, y_logits, self.model.bins_per_pixel)
            points.append(where)
            sure.append(how)
        # Centres of pixels are at whole numbers on both sides.
        scale = np.array([width / SIZE[1], height / SIZE[0]], np.float32)
        joints = (torch.cat(points).numpy() + 0.5) * scale - 0.5
        return Sight(torch.cat(features).numpy(), torch.cat(grids).numpy(), joints, torch.cat(sure).numpy())


@cache
def shipped_judge() -> Judge:
    """The judge with the weights that come with the package."""
    config = SimpleNamespace(size="nano", input_size=SIZE, stage4_stride=2, norm="batch", bins_per_pixel=2, weights="embedded")
    return Judge(build_model(config), "pose_nano")


def resized(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Pictures N×3×H×W at another height and width: means of pixels where they become fewer, straight lines between them where more."""
    if tuple(images.shape[2:]) == tuple(size):
        return np.array(images)
    how = cv2.INTER_AREA if images.shape[2] > size[0] else cv2.INTER_LINEAR
    found = [cv2.resize(np.ascontiguousarray(image.transpose(1, 2, 0)), size[::-1], interpolation=how) for image in images]
    return np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2))


def check_pictures(images: np.ndarray, name: str = "pictures") -> None:
    """Refuse what is not bytes N×3×H×W with somebody in it."""
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8 or 0 in images.shape:
        raise HalfmaskError(
            f"{name} have shape {images.shape} and type {images.dtype}: expected (pictures, 3, height, width) of uint8, at least one: "
            "convert them to RGB with values from 0 to 255"
        )
