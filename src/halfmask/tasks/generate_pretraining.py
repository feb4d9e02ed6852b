"""The warm start: a generator that can draw public people in given poses, before it is taught to draw people like the private ones.

An encoder says in a few numbers how somebody looks, and the decoder draws them again in their pose; noise is mapped to such numbers; and a
critic, which learns beside, sharpens what is drawn. All of it sees public people alone, so that nothing is clipped or noised.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.posegan import Critic, PoseGAN, gradient_penalty
from halfmask.tasks.generate_halves import heatmaps_of
from halfmask.training.pretrain import FromRecords
from halfmask.training.setup import Setup

# How much an appearance is held to a normal distribution, per number of it.
_NORMAL = 2e-3
_STEEP = 10.0
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
        assert isinstance(model, PoseGAN) and isinstance(model.critic, Critic) and isinstance(model.encoder, Encoder)
        config = self.setup.config
        pictures = batch["image"].float() / 127.5 - 1
        maps = heatmaps_of(model, batch["joints"], config.model)
        mean, spread = model.encoder(pictures)
        appearance = mean + (0.5 * spread).exp() * self._noise(mean.shape)
        again = model.generator.decoder(appearance, maps)
        losses = _difference(again, pictures) + _NORMAL * 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1)
        from_noise = model.generator.mapping(self._noise((len(pictures), model.shape.latent)))
        losses = losses + config.pretrain.appearances * self._apart(from_noise, appearance.detach())
        if config.pretrain.adversarial:
            losses = losses + self._judged(model, model.critic, pictures, maps, from_noise)
        return losses

    def _judged(self, model: PoseGAN, critic: Critic, pictures: Tensor, maps: Tensor, appearance: Tensor) -> Tensor:
        """What the critic thinks of somebody new in a known pose, and what it learns from that."""
        config = self.setup.config
        shown = maps if critic.conditional else None
        drawn = model.generator.decoder(appearance.detach(), maps)
        frozen = {name: weight.detach() for name, weight in critic.named_parameters()}
        wanted = -config.pretrain.adversarial * functional_call(critic, frozen, (drawn, shown))
        share = torch.rand(len(pictures), 1, 1, 1, generator=self.generator).to(pictures.device)
        between = share * pictures + (1 - share) * drawn.detach()
        learnt = critic(drawn.detach(), shown) - critic(pictures, shown) + _STEEP * gradient_penalty(critic, between, shown, one_sided=True)
        return wanted + learnt

    def _apart(self, one: Tensor, other: Tensor) -> Tensor:
        """How far two sets of appearances are from each other: in many directions, put in order and compared."""
        ways = F.normalize(torch.randn(one.shape[1], _DIRECTIONS, generator=self.generator), dim=0).to(one.device)
        return ((one @ ways).sort(0).values - (other @ ways).sort(0).values).square().mean()

    def _noise(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.setup.device)


def _difference(drawn: Tensor, pictures: Tensor) -> Tensor:
    """The mean absolute difference of each picture, at three scales."""
    total = torch.zeros(len(drawn), device=drawn.device)
    for _ in range(3):
        total = total + (drawn - pictures).abs().mean((1, 2, 3))
        drawn, pictures = F.avg_pool2d(drawn, 2), F.avg_pool2d(pictures, 2)
    return total
