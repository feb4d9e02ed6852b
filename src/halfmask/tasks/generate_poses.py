"""Poses to generate pictures in, and their heatmaps: by public randomness alone, never from a private batch, which they would show."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from halfmask.data.heatmaps import pose_heatmaps
from halfmask.data.records import Records
from halfmask.models.posegan import PoseGAN
from halfmask.tasks.generate_settings import GenerateModelConfig


class Poses:
    """The poses of everyone, which are public, and pictures generated in some of them."""

    def __init__(self, records: Records, config: GenerateModelConfig, seed: int):
        self.joints = torch.from_numpy(records.targets.rows(np.arange(len(records)))["joints"]).float()
        self.config, self.seed = config, seed

    def drawn(self, count: int, latent: int, use: int, number: int) -> tuple[Tensor, Tensor]:
        """Noise, and as many poses, for a use of public randomness and its number."""
        generator = torch.Generator().manual_seed((self.seed * 16 + use) * 1_000_003 + number)
        noise = torch.randn(count, latent, generator=generator)
        return noise, self.joints[torch.randint(len(self.joints), (count,), generator=generator)]


def heatmaps_of(model: PoseGAN, joints: Tensor, config: GenerateModelConfig) -> Tensor:
    """Of poses, for pictures of the model's size."""
    return pose_heatmaps(joints, (model.height, model.width), config.spread * model.height)
