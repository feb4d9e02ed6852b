"""The critic of a Wasserstein game: a number for a picture, and what keeps that number from rising too steeply.

It is the only network of `generate` that ever sees a private picture, so all of its layers are such as the clipping engine has rules for,
and none looks at another record of the batch: there is no normalisation at all.

**Dropout** is off in every run, although the paper has it at a quarter. Masks would be drawn one record after the other, from one stream
that is public: who is in the batch would move the masks of all who come later, and the clip, which bounds a record's own gradient, would
not bound that. Masks that are keyed by the record would be legal. But dropout keeps a network from learning its records by heart, which
the noise does already, and it pays with a gradient that points elsewhere in every step: signal that the same ε no longer buys. The network
can have it, as the paper's does, for whoever trains one without a promise.

What bounds the weights (`bound_weights`, `spectral_bound`) works on weights that are released anyway: post-processing, free of charge.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.errors import HalfmaskError

# How far apart the four convolutions look, and what is left of a negative number after each.
LAYERS, STRIDE, LEAK = 4, 2, 0.2


class Critic(nn.Module):
    """Four strided convolutions and one linear number.

    Args:
        widths: channels after each convolution.
        height, width: of a picture.
        heatmaps: how many heatmaps of a pose it sees besides the picture; 0 for none. Poses are public.
        dropout: the share of numbers left out after each convolution while it trains.

    Attributes:
        thrifty: whether maps lie in memory with their colours last, and are changed in place. No number changes but by rounding, and a
            fifth of the time is saved on a processor. Off, it is the network as anyone would write it, which is what benchmarks ask for.
    """

    thrifty = True

    def __init__(self, widths: tuple[int, ...], height: int, width: int, heatmaps: int = 0, dropout: float = 0.0):
        super().__init__()
        self.height, self.width, self.heatmaps, self.dropout = height, width, heatmaps, dropout
        channels = (3 + heatmaps, *widths)
        self.layers = nn.ModuleList(nn.Conv2d(before, after, 3, STRIDE, 1) for before, after in pairwise(channels))
        shrunk = STRIDE ** len(widths)
        self.head = nn.Linear(widths[-1] * -(-height // shrunk) * -(-width // shrunk), 1)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv2d) and layer.bias is not None
            nn.init.kaiming_normal_(layer.weight, LEAK, nonlinearity="leaky_relu")
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.head.weight, std=self.head.in_features**-0.5)
        nn.init.zeros_(self.head.bias)

    @property
    def conditional(self) -> bool:
        """Whether it sees the pose."""
        return self.heatmaps > 0

    def forward(self, images: Tensor, heatmaps: Tensor | None = None) -> Tensor:
        """A number for each picture.

        Args:
            images: N×3×H×W from −1 to 1, or bytes.
            heatmaps: N×joints×H×W; not looked at by a critic that does not see poses.
        """
        x = self.seen(images, heatmaps)
        if self.thrifty:
            x = x.contiguous(memory_format=torch.channels_last)
        for layer in self.layers:
            x = F.dropout(F.leaky_relu(layer(x), LEAK, inplace=self.thrifty), self.dropout, self.training)
        score: Tensor = self.head(x.flatten(1))
        return score[:, 0]

    def seen(self, images: Tensor, heatmaps: Tensor | None = None) -> Tensor:
        """The first layer's input."""
        if images.shape[1:] != (3, self.height, self.width):
            raise HalfmaskError(f"pictures are {tuple(images.shape)}: expected N×3×{self.height}×{self.width}, colours first")
        x = images.to(self.head.weight.dtype)
        if not images.is_floating_point():
            x = x / 127.5 - 1
        if not self.conditional:
            return x
        if heatmaps is None or heatmaps.shape != (len(images), self.heatmaps, self.height, self.width):
            found = "none" if heatmaps is None else str(tuple(heatmaps.shape))
            raise HalfmaskError(
                f"heatmaps: found {found}, expected {len(images)}×{self.heatmaps}×{self.height}×{self.width}: this critic sees the pose"
            )
        return torch.cat([x, heatmaps.to(x.dtype)], 1)

    def slopes(self, images: Tensor, heatmaps: Tensor | None = None) -> Tensor:
        """∂D/∂picture of each record, N×3×H×W, written out as the layers in reverse order.

        Asking autograd for it would give the same numbers. Written out, it is one more forward computation with the same weights, so that
        the clipping engine can differentiate a loss that contains it, record by record. Dropout has no part in it.
        """
        x = self.seen(images, heatmaps)
        gates, shapes = [], []
        for layer in self.layers:
            shapes.append(x.shape[2:])
            x = layer(x)
            # A constant: the leaky unit has no second derivative.
            gates.append(LEAK + (1 - LEAK) * (x.detach() > 0).to(x.dtype))
            x = F.leaky_relu(x, LEAK)
        back = self.head.weight.view(1, *x.shape[1:]) * gates[-1]
        for place in range(len(gates) - 1, -1, -1):
            layer = self.layers[place]
            assert isinstance(layer, nn.Conv2d)
            lost = [size - ((out - 1) * STRIDE + 1) for size, out in zip(shapes[place], back.shape[2:], strict=True)]
            back = F.conv_transpose2d(back, layer.weight, None, STRIDE, 1, lost)
            if place:
                back = back * gates[place - 1]
        return back[:, :3]


def pair_losses(
    critic: nn.Module, real: Tensor, fake: Tensor, real_heatmaps: Tensor | None = None, fake_heatmaps: Tensor | None = None
) -> Tensor:
    """D(fake) − D(real) of each pair, in one pass: a pair is one record of two pictures that lie next to each other."""
    images = torch.stack([_as_fake(real, fake), fake], 1).flatten(0, 1)
    if real_heatmaps is None or fake_heatmaps is None:
        scores = critic(images)
    else:
        scores = critic(images, torch.stack([real_heatmaps, fake_heatmaps], 1).flatten(0, 1))
    both = scores.view(-1, 2)
    return both[:, 1] - both[:, 0]


def _as_fake(real: Tensor, fake: Tensor) -> Tensor:
    return real if real.is_floating_point() else real.to(fake.dtype) / 127.5 - 1


def gradient_penalty(
    critic: Critic, images: Tensor, heatmaps: Tensor | None = None, one_sided: bool = False, steepest: float = 1.0
) -> Tensor:
    """(‖∂D/∂picture‖ − steepest)² of each record; with `one_sided` only of those that are steeper."""
    # The small number keeps the root differentiable where the critic is flat.
    lengths = (critic.slopes(images, heatmaps).square().flatten(1).sum(1) + 1e-12).sqrt()
    excess = lengths - steepest
    return (F.relu(excess) if one_sided else excess).square()


@torch.no_grad()
def bound_weights(critic: nn.Module, limit: float) -> None:
    """Cut every weight and bias to at most `limit` in size, in place: the weight clipping of Wasserstein critics."""
    _check_limit(limit)
    for parameter in critic.parameters():
        parameter.clamp_(-limit, limit)


@torch.no_grad()
def spectral_bound(critic: Critic, limit: float = 1.0, iterations: int = 24) -> None:
    """Divide each layer's weight, in place, by max(1, its spectral norm / limit).

    The norm is that of the layer as a map of whole pictures, borders and stride included, so that the critic rises by at most limit⁵ over
    a distance of one. Power iteration from a fixed start comes at it from below, within a few in a hundred; a run that is resumed finds
    the same.
    """
    _check_limit(limit)
    for layer, norm in zip([*critic.layers, critic.head], spectral_norms(critic, iterations), strict=True):
        assert isinstance(layer.weight, Tensor)
        if norm > limit:
            layer.weight.mul_(limit / norm)


@torch.no_grad()
def spectral_norms(critic: Critic, iterations: int = 24) -> list[float]:
    """The largest factor by which each layer stretches its input."""
    norms = []
    size = (critic.height, critic.width)
    for layer in critic.layers:
        assert isinstance(layer, nn.Conv2d)
        start = torch.randn(1, layer.in_channels, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        across = (start / start.norm()).to(layer.weight)
        norm = 0.0
        for _ in range(iterations):
            out = F.conv2d(across, layer.weight, None, STRIDE, 1)
            lost = [before - ((after - 1) * STRIDE + 1) for before, after in zip(across.shape[2:], out.shape[2:], strict=True)]
            norm = float(out.norm())
            across = F.conv_transpose2d(out, layer.weight, None, STRIDE, 1, lost)
            across = across / across.norm().clamp(min=1e-30)
        norms.append(norm)
        size = (-(-size[0] // STRIDE), -(-size[1] // STRIDE))
    return [*norms, float(critic.head.weight.norm())]


def _check_limit(limit: float) -> None:
    if not 0 < limit < float("inf"):
        raise HalfmaskError(f"the bound of the critic's weights is {limit}: expected a number greater than 0")
