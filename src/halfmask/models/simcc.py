"""Pose as coordinate classification (SimCC, Li et al., ECCV 2022): two classifications per joint, over columns and over rows.

A 1×1 convolution makes one small map per joint, which is upsampled, flattened and sent through two linear layers shared by all
joints: one to `bins_per_pixel` bins per image column, one to as many per row. Half-pixel bins keep the quantisation error below
what a heatmap of the same cost would have.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.models.tinyvit import TinyViT

# ImageNet's channel statistics: public constants, so normalising by them reads no private image.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def normalise(images: Tensor) -> Tensor:
    """Bytes (N×3×H×W) to the normalised floats that the backbone expects."""
    mean = torch.tensor(_MEAN, device=images.device).view(3, 1, 1)
    std = torch.tensor(_STD, device=images.device).view(3, 1, 1)
    return images.float() * (1 / (255 * std)) - mean / std


class CoordinateHead(nn.Module):
    """Feature map in; logits over x bins and over y bins out, for each joint."""

    def __init__(self, inputs: int, joints: int, input_size: tuple[int, int], bins_per_pixel: int = 2):
        super().__init__()
        height, width = input_size
        self.map_size = (height // 8, width // 8)
        cells = self.map_size[0] * self.map_size[1]
        self.conv = nn.Conv2d(inputs, joints, 1)
        self.x_bins = nn.Linear(cells, width * bins_per_pixel)
        self.y_bins = nn.Linear(cells, height * bins_per_pixel)
        nn.init.normal_(self.conv.weight, std=inputs**-0.5)
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        _read_columns(self.x_bins, self.map_size, width, axis=1)
        _read_columns(self.y_bins, self.map_size, height, axis=0)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (N×J×x bins, N×J×y bins)."""
        maps = F.interpolate(self.conv(features), self.map_size, mode="bilinear", align_corners=False)
        flat = maps.flatten(2)
        return self.x_bins(flat), self.y_bins(flat)


@torch.no_grad()
def _read_columns(layer: nn.Linear, map_size: tuple[int, int], pixels: int, axis: int, spread: float = 10.0) -> None:
    """Start a coordinate classifier as a reading of its map: a bin looks at the cells near its own column (or row).

    It will have to learn that anyway; starting there, the layers below get a useful gradient from the first step.
    """
    cells = map_size[axis]
    positions = (torch.arange(cells) + 0.5) * pixels / cells
    bins = (torch.arange(layer.out_features) + 0.5) * pixels / layer.out_features
    near = torch.exp(-((bins[:, None] - positions[None]) ** 2) / (2 * spread**2))
    shape = (layer.out_features, 1, cells) if axis == 1 else (layer.out_features, cells, 1)
    weight = near.view(shape).expand(layer.out_features, *map_size).flatten(1)
    layer.weight.copy_(weight / weight.norm(dim=1, keepdim=True))
    nn.init.zeros_(layer.bias)


class PoseModel(nn.Module):
    """TinyViT and the coordinate head.

    `forward` takes images as bytes, or, where `features` of the frozen lower part were computed before, those.
    """

    def __init__(
        self,
        size: str = "nano",
        joints: int = 16,
        input_size: tuple[int, int] = (256, 192),
        stage4_stride: int = 2,
        norm: str = "batch",
        bins_per_pixel: int = 2,
    ):
        super().__init__()
        self.input_size = tuple(input_size)
        self.joints, self.bins_per_pixel = joints, bins_per_pixel
        self.backbone = TinyViT(size, stage4_stride, norm)
        self.head = CoordinateHead(self.backbone.widths[3], joints, input_size, bins_per_pixel)

    def lower(self, images: Tensor) -> Tensor:
        """Features below stage 4, from image bytes."""
        return self.backbone.lower(normalise(images))

    def upper(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, from features below stage 4."""
        return self.head(self.backbone.upper(features))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.upper(self.lower(images))


def smoothed_targets(coordinates: Tensor, bins: int, bins_per_pixel: int, sigma_bins: float = 6.0) -> Tensor:
    """Gaussian label smoothing: a distribution over bins centred on each coordinate (…), as (…×bins).

    Neighbouring bins are nearly right answers; a one-hot target would punish them as much as far ones.
    """
    centres = torch.arange(bins, device=coordinates.device, dtype=coordinates.dtype)
    offset = centres - coordinates.unsqueeze(-1) * bins_per_pixel
    return torch.softmax(-(offset**2) / (2 * sigma_bins**2), dim=-1)


def decode(x_logits: Tensor, y_logits: Tensor, bins_per_pixel: int) -> tuple[Tensor, Tensor]:
    """The most probable bin of each axis as pixels (N×J×2), and a confidence (N×J)."""
    x_probability, x = x_logits.softmax(-1).max(-1)
    y_probability, y = y_logits.softmax(-1).max(-1)
    points = torch.stack([x, y], -1).float() / bins_per_pixel
    return points, torch.minimum(x_probability, y_probability)


def flip_back(x_logits: Tensor, y_logits: Tensor, pairs: tuple[tuple[int, int], ...], bins_per_pixel: int) -> tuple[Tensor, Tensor]:
    """Logits of a mirrored image, put back: columns mirrored about the image's middle, left and right joints exchanged.

    Pixel x of the mirror image is pixel W−1−x of the original, so bin b there is bin (W−1)·bins_per_pixel − b here.
    """
    joints = list(range(x_logits.shape[1]))
    for left, right in pairs:
        joints[left], joints[right] = joints[right], joints[left]
    bins = x_logits.shape[-1]
    columns = (bins - bins_per_pixel - torch.arange(bins, device=x_logits.device)).clamp(min=0)
    return x_logits[:, joints][..., columns], y_logits[:, joints]
