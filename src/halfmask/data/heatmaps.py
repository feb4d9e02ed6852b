"""Poses as pictures: what a generator is told, a map for each joint that is bright where the joint is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError


@torch.no_grad()
def pose_heatmaps(joints: Tensor, size: tuple[int, int], sigma: float) -> Tensor:
    """Gaussians of height 1 round the joints; zeros for joints that are not known.

    Args:
        joints: N×J×3: x, y in pixels with centres at whole numbers, and 1 if the joint is known, else 0.
        size: height and width of the maps, the pictures' own.
        sigma: in pixels.

    Returns:
        N×J×H×W, float32.
    """
    if joints.ndim != 3 or joints.shape[2] != 3:
        raise HalfmaskError(f"joints of shape {tuple(joints.shape)}: expected N×J×3, of each x, y and whether it is known")
    if not sigma > 0:
        raise HalfmaskError(f"heatmaps with sigma {sigma}: expected a number of pixels above 0")
    joints = joints.float()
    known = joints[:, :, 2] > 0
    # What is not known may hold anything, also what is no number: a map of it is nothing all the same.
    x, y = (torch.where(known, joints[:, :, axis], torch.zeros(())) for axis in (0, 1))
    across, down = (torch.arange(side, dtype=torch.float32, device=joints.device) for side in (size[1], size[0]))
    # A Gaussian is that of its row times that of its column.
    columns = torch.exp((across - x[:, :, None]).square() / (-2 * sigma**2))
    rows = torch.exp((down - y[:, :, None]).square() / (-2 * sigma**2)) * known[:, :, None]
    return rows[:, :, :, None] * columns[:, :, None, :]


def limb_maps(joints: Tensor, limbs: Sequence[tuple[int, int]], size: tuple[int, int], reach: float) -> Tensor:
    """How near each pixel is to each limb: 1 on it, a Gaussian of the distance beside it; zeros for limbs of which an end is not known.

    Args:
        joints: N×J×3, as for `pose_heatmaps`.
        limbs: the two joints of each.
        size: height and width of the maps.
        reach: the Gaussian's standard deviation in pixels.

    Returns:
        N×limbs×H×W.
    """
    ends = torch.tensor(limbs, device=joints.device)
    first, last = joints[:, ends[:, 0]], joints[:, ends[:, 1]]
    known = (first[..., 2] * last[..., 2] > 0).to(joints.dtype)
    way = (last - first)[..., :2]
    ys, xs = torch.meshgrid(*(torch.arange(side, dtype=joints.dtype, device=joints.device) for side in size), indexing="ij")
    offset = torch.stack([xs, ys], -1)[None, None] - first[..., None, None, :2]
    along = (offset * way[..., None, None, :]).sum(-1) / way.square().sum(-1).clamp(min=1e-6)[..., None, None]
    nearest = offset - along.clamp(0, 1)[..., None] * way[..., None, None, :]
    return torch.exp(-nearest.square().sum(-1) / (2 * reach**2)) * known[..., None, None]
