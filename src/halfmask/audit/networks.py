"""The small network that an attacker of a view trains: what did the image look like?"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(4, outputs), nn.GELU())


class Restorer(nn.Module):
    """A view in, a guess at the image out: what is added to the view, seen at two scales."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.fine, self.coarse = _block(3, width), nn.Sequential(_block(3, width), _block(width, width), _block(width, width))
        self.join, self.change = _block(2 * width, width), nn.Conv2d(width, 3, 3, padding=1)
        for parameter in self.change.parameters():
            nn.init.zeros_(parameter)

    def forward(self, views: Tensor) -> Tensor:  # noqa: D102
        small = self.coarse(F.avg_pool2d(views, 4))
        wide = F.interpolate(small, views.shape[2:], mode="bilinear", align_corners=False)
        return views + self.change(self.join(torch.cat([self.fine(views), wide], 1)))


def pictures(images: np.ndarray) -> Tensor:
    """Bytes N×3×H×W as numbers around zero."""
    return torch.from_numpy(np.array(images)).float() / 127.5 - 1


def fit_restorer(views: np.ndarray, images: np.ndarray, steps: int, seed: int) -> Restorer:
    """Train to undo a view, on people other than those it is judged on."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network, shown, truth = Restorer(), pictures(views), pictures(images)
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(shown), (8,), generator=generator)
        optimiser.zero_grad()
        F.mse_loss(network(shown[chosen]), truth[chosen]).backward()
        optimiser.step()
        schedule.step()
    return network.eval()


@torch.no_grad()
def restored(network: Restorer, views: np.ndarray) -> np.ndarray:
    """The guesses as bytes, N×3×H×W."""
    return ((network(pictures(views)) + 1) * 127.5).clamp(0, 255).round().byte().numpy()
