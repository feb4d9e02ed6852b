"""The warm start: a generator that can draw public people in given poses, before it is taught to draw people like the private ones.

An encoder says in a few numbers how somebody looks, and the decoder draws them again in their pose; noise is mapped to such numbers. Then,
in a run of its own, a critic learns to tell people from what is drawn. All of it sees public people alone, so that nothing is clipped or
noised. (A generator that learns from the critic here as well forgets in a few hundred steps what it can draw.)
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.data.heatmaps import limb_maps
from halfmask.data.pictures import PictureRecords
from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.posegan import Critic, PoseGAN, gradient_penalty
from halfmask.tasks.generate_halves import heatmaps_of
from halfmask.training.pretrain import FromRecords
from halfmask.training.setup import Setup

# How much an appearance is held to a normal distribution, per number of it.
_NORMAL = 2e-3
_STEEP = 10.0
# How near a limb a pixel is somebody's, as a share of the picture's height.
_NEAR = 0.05
# Directions in which the appearances of noise are compared with those of people.
_DIRECTIONS = 64


class Encoder(nn.Module):
    """What somebody looks like, in a few numbers: their mean and the logarithm of their spread."""

    def __init__(self, embedding: int, height: int, width: int, channels: tuple[int, ...] = (32, 64, 96, 128)):
        super().__init__()
        sizes = (3, *channels)
        self.layers = nn.ModuleList(nn.Conv2d(before, after, 3, 2, 1) for before, after in pairwise(sizes))
        shrunk = 2 ** len(channels)
        self.head = nn.Linear(channels[-1] * -(-height // shrunk) * -(-width // shrunk), 2 * embedding)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        x = pictures
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
        mean, spread = self.head(x.flatten(1)).chunk(2, 1)
        return mean, spread.clamp(-6, 2)


class FromPictures(FromRecords):
    """Public pictures, drawn again."""

    longest = 10.0

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        self.generator = torch.Generator().manual_seed(setup.config.seed + 3)
        self.loss_fn = self._loss

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, PoseGAN) and isinstance(model.critic, Critic)
        config = self.setup.config
        pictures = batch["image"].float() / 127.5 - 1
        maps = heatmaps_of(model, batch["joints"], config.model)
        if config.pretrain.critic:
            return self._judged(model, model.critic, pictures, maps)
        assert isinstance(model.encoder, Encoder)
        mean, spread = model.encoder(pictures)
        appearance = mean + (0.5 * spread).exp() * self._noise(mean.shape)
        again = model.generator.decoder(appearance, maps)
        far_from_normal = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1)
        losses = _difference(again, pictures, self._weight(batch["joints"])) + _NORMAL * far_from_normal
        from_noise = model.generator.mapping(self._noise((len(pictures), model.shape.latent)))
        return losses + config.pretrain.appearances * self._apart(from_noise, appearance.detach())

    def _judged(self, model: PoseGAN, critic: Critic, pictures: Tensor, maps: Tensor) -> Tensor:
        """What the critic is to learn: people from those whom the generator, which stays as it is, draws in their poses."""
        shown = maps if critic.conditional else None
        with torch.no_grad():
            drawn = model.generate(self._noise((len(pictures), model.shape.latent)), maps)
        share = torch.rand(len(pictures), 1, 1, 1, generator=self.generator).to(pictures.device)
        between = share * pictures + (1 - share) * drawn
        return critic(drawn, shown) - critic(pictures, shown) + _STEEP * gradient_penalty(critic, between, shown, one_sided=True)

    def _apart(self, one: Tensor, other: Tensor) -> Tensor:
        """How far two sets of appearances are from each other: in many directions, put in order and compared."""
        ways = F.normalize(torch.randn(one.shape[1], _DIRECTIONS, generator=self.generator), dim=0).to(one.device)
        return ((one @ ways).sort(0).values - (other @ ways).sort(0).values).square().mean()

    def _weight(self, joints: Tensor) -> Tensor:
        """How much each pixel counts: those of the person more than what stands behind, of which there is more and which no pose tells."""
        model = self.setup.model
        assert isinstance(model, PoseGAN) and isinstance(self.setup.private, PictureRecords)
        size = (model.height, model.width)
        near = limb_maps(joints.float(), self.setup.private.skeleton.edges, size, _NEAR * model.height).amax(1, keepdim=True)
        return 1 + self.setup.config.pretrain.person * near

    def _noise(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.setup.device)


def _difference(drawn: Tensor, pictures: Tensor, weight: Tensor) -> Tensor:
    """The weighted mean absolute difference of each picture, at three scales."""
    total = torch.zeros(len(drawn), device=drawn.device)
    for _ in range(3):
        total = total + ((drawn - pictures).abs() * weight).mean((1, 2, 3)) / weight.mean((1, 2, 3))
        drawn, pictures, weight = (F.avg_pool2d(x, 2) for x in (drawn, pictures, weight))
    return total
