"""A generator that draws people in given poses, and the critic it learns from.

After Sun, Wang and Liu (2019). The generator takes two steps: noise z becomes an embedding e of an appearance (fully connected, four
residual blocks), and a decoder draws e in a pose (a U-Net of eight residual blocks on the pose's heatmaps). It never sees a picture. The
critic does (`halfmask.models.critic`), and is trained under the clip; whatever the generator learns from it is post-processing.

The paper's Table 1 leaves some things open. What we read into it:

* Four upsamplings need four downsamplings: of the three convolutions of levels 1 to 5, the first sets the width, and in levels 2 to 5 it
  has stride 2. The other two of levels 1 to 4 are a residual block, as are the two 3×3 ones of layers 7 to 10: eight in all. Layers 5
  and 6, the bottom, are plain.
* e is spread over the picture and joined with the heatmaps at the decoder's input, as the text says.
* A level's skip connection is joined before the 1×1 convolution of the level that comes back to its size.
* The length of z is not given: it is that of e.

`small` is ours, sized for a processor. There e joins at the bottom and at every level on the way up: spread over a map and joined before
a 1×1 convolution, it is a number added to each channel, which costs next to nothing.

There is no batch normalisation anywhere.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.models.checkpoints import load_into, read_state
from halfmask.models.critic import Critic, bound_weights, gradient_penalty, pair_losses, spectral_bound

__all__ = [
    "SHAPES",
    "AveragedGenerator",
    "Critic",
    "Generator",
    "PoseGAN",
    "bound_weights",
    "gradient_penalty",
    "load_start",
    "pair_losses",
    "spectral_bound",
]

# A picture's sides are halved so often.
_HALVINGS = 4
# The second half of a residual block begins at this share of its usual scale: eight sums, and no normalisation after any.
_CAUTION = 0.3


@dataclass(frozen=True)
class Shape:
    """Numbers of one size of the networks.

    Attributes:
        latent: of the noise z.
        mapping: the width of the fully connected layers.
        embedding: of the appearance e.
        widths: channels of the decoder's five levels, from the full size to the bottom.
        everywhere: whether e joins at the bottom and on the way up, rather than at the decoder's input.
        critic: channels of the critic's four convolutions.
    """

    latent: int
    mapping: int
    embedding: int
    widths: tuple[int, int, int, int, int]
    everywhere: bool
    critic: tuple[int, int, int, int]


SHAPES = {
    "small": Shape(32, 128, 32, (12, 24, 40, 64, 96), True, (32, 64, 96, 128)),
    "paper": Shape(128, 512, 128, (128, 256, 384, 512, 640), False, (64, 128, 256, 512)),
}


class LinearBlock(nn.Module):
    """Two fully connected layers beside a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu_(self.second(F.relu_(self.first(x))))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu_(self.second(F.relu_(self.first(x))))


class Mapping(nn.Module):
    """From noise to the embedding of an appearance."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.first = nn.Linear(shape.latent, shape.mapping)
        self.blocks = nn.Sequential(*(LinearBlock(shape.mapping) for _ in range(4)))
        self.last = nn.Linear(shape.mapping, shape.embedding)

    def forward(self, z: Tensor) -> Tensor:
        embedded: Tensor = self.last(self.blocks(F.relu(self.first(z))))
        return embedded


class Decoder(nn.Module):
    """From an embedding and the heatmaps of a pose to a picture.

    Attributes:
        down: the first convolution of each level; that of the first keeps the size.
        blocks: the residual blocks of levels 1 to 4.
        bottom: what is done at the lowest level.
        narrow: the 1×1 convolutions on the way up.
        raised: the residual blocks on the way up.
        spread: what e adds at the bottom and at each level on the way up, where it joins there.
    """

    def __init__(self, shape: Shape, joints: int):
        super().__init__()
        self.everywhere = shape.everywhere
        widths, lowest = shape.widths, shape.widths[-1]
        given = joints + (0 if shape.everywhere else shape.embedding)
        self.down = nn.ModuleList(
            nn.Conv2d(before, after, 3, 1 if level == 0 else 2, 1)
            for level, (before, after) in enumerate(zip((given, *widths[:-1]), widths, strict=True))
        )
        self.blocks = nn.ModuleList(ResidualBlock(width) for width in widths[:-1])
        self.bottom = nn.ModuleList(nn.Conv2d(lowest, lowest, 3, padding=1) for _ in range(4))
        up = tuple(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.narrow = nn.ModuleList(nn.Conv2d(below + width, width, 1) for below, width in up)
        self.raised = nn.ModuleList(ResidualBlock(width) for _, width in up)
        reached = [lowest, *(width for _, width in up)] if shape.everywhere else []
        self.spread = nn.ModuleList(nn.Linear(shape.embedding, width) for width in reached)
        self.out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, embedding: Tensor, heatmaps: Tensor) -> Tensor:
        """Pictures from −1 to 1, of the size of the heatmaps."""
        # Colours last, a third of the time is saved on a processor.
        x = heatmaps
        if not self.everywhere:
            x = torch.cat([heatmaps, embedding[:, :, None, None].expand(-1, -1, *heatmaps.shape[2:])], 1)
        x = x.contiguous(memory_format=torch.channels_last)
        skips = []
        for level, down in enumerate(self.down):
            x = F.relu_(down(x))
            if level < len(self.blocks):
                x = self.blocks[level](x)
                skips.append(x)
        x = self._joined(0, x, embedding)
        for layer in self.bottom:
            x = F.relu_(layer(x))
        for level, (narrow, block) in enumerate(zip(self.narrow, self.raised, strict=True), start=1):
            assert isinstance(narrow, nn.Conv2d)
            skip = skips.pop()
            # The upsampled map and the skip, joined, through one 1×1 convolution. That looks at one pixel at a time, so what comes from
            # below goes through its share of the weights before it is upsampled, at a quarter of the cost.
            from_below, from_skip = narrow.weight.split([x.shape[1], skip.shape[1]], 1)
            below = self._joined(level, F.conv2d(x, from_below, narrow.bias), embedding)
            x = block(F.relu_(F.conv2d(skip, from_skip) + F.interpolate(below, scale_factor=2.0, mode="nearest")))
        return torch.tanh(self.out(x)).contiguous()

    def _joined(self, place: int, x: Tensor, embedding: Tensor) -> Tensor:
        return x + self.spread[place](embedding)[:, :, None, None] if self.everywhere else x


class Generator(nn.Module):
    """Noise and a pose in, a picture out.

    Args:
        shape: one of `SHAPES`.
        joints: how many heatmaps a pose has.
    """

    def __init__(self, shape: Shape, joints: int):
        super().__init__()
        self.latent, self.joints = shape.latent, joints
        self.mapping = Mapping(shape)
        self.decoder = Decoder(shape, joints)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, (LinearBlock, ResidualBlock)):
                module.second.weight.data.mul_(_CAUTION)
        # An untrained generator draws grey: the tangent saturates nowhere.
        nn.init.normal_(self.decoder.out.weight, std=0.01)

    def forward(self, z: Tensor, heatmaps: Tensor) -> Tensor:
        """Pictures N×3×H×W from −1 to 1.

        Args:
            z: N×latent, standard normal.
            heatmaps: N×joints×H×W from 0 to 1.
        """
        if (
            z.shape[1:] != (self.latent,)
            or heatmaps.shape[:2] != (z.shape[0], self.joints)
            or any(n % 2**_HALVINGS for n in heatmaps.shape[2:])
        ):
            raise HalfmaskError(
                f"noise is {tuple(z.shape)} and heatmaps {tuple(heatmaps.shape)}: expected N×{self.latent} and N×{self.joints}×H×W, "
                f"H and W multiples of {2**_HALVINGS}"
            )
        kind = self.decoder.out.weight.dtype
        picture: Tensor = self.decoder(self.mapping(z.to(kind)), heatmaps.to(kind))
        return picture


class PoseGAN(nn.Module):
    """Both networks, as they are trained, saved and loaded together.

    Args:
        size: `small`, made for a processor, or `paper`.
        joints: how many heatmaps a pose has (the paper's: 18).
        height, width: of a picture; multiples of 16.
        conditional: whether the critic sees the pose too. The paper's does not.
        dropout: of the critic while it trains (the paper's: 0.25).
    """

    def __init__(
        self, size: str = "small", joints: int = 16, height: int = 64, width: int = 48, conditional: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        if size not in SHAPES:
            raise unknown_name("size of the generator", size, SHAPES)
        if height % 2**_HALVINGS or width % 2**_HALVINGS or height <= 0 or width <= 0:
            raise HalfmaskError(
                f"pictures of {height}×{width}: both sides must be multiples of {2**_HALVINGS}, as they are halved four times"
            )
        self.size, self.shape = size, SHAPES[size]
        self.joints, self.height, self.width = joints, height, width
        self.generator = Generator(self.shape, joints)
        self.critic = Critic(self.shape.critic, height, width, joints if conditional else 0, dropout)

    def generate(self, z: Tensor, heatmaps: Tensor) -> Tensor:
        """Pictures from −1 to 1 of people in these poses."""
        pictures: Tensor = self.generator(z, heatmaps)
        return pictures

    forward = generate


class AveragedGenerator:
    """An exponential moving average of a generator's weights, which draws more calmly than the last weights do.

    Early on it keeps less, so that an average over few steps is not one of untrained weights. (`OptimiserConfig.average` does the same for
    whoever takes the generator's steps by `training.optimise`; here it can be drawn with while training goes on.)

    Args:
        keep: the share of the average that a step keeps, from 0 (the last weights) to below 1.
    """

    def __init__(self, generator: Generator, keep: float = 0.999):
        if not 0 <= keep < 1:
            raise HalfmaskError(f"the share of the average that a step keeps is {keep}: expected 0 or more and less than 1")
        self.keep, self.steps = keep, 0
        self.generator = copy.deepcopy(generator).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, generator: Generator) -> None:
        """After a step of the generator."""
        keep = min(self.keep, self.steps / (self.steps + 10))
        self.steps += 1
        for mean, last in zip(self.generator.parameters(), generator.parameters(), strict=True):
            mean.lerp_(last, 1 - keep)

    @torch.no_grad()
    def release(self, generator: Generator) -> None:
        """Put the averaged weights in the generator's place."""
        for mean, last in zip(self.generator.parameters(), generator.parameters(), strict=True):
            last.copy_(mean)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"steps": self.steps, "weights": self.generator.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.steps = int(state["steps"])
        self.generator.load_state_dict(state["weights"])


def load_start(model: PoseGAN, weights: str | Path) -> tuple[str, ...]:
    """Load weights of public people to begin with; tells which of `generator` and `critic` they are of.

    Args:
        weights: `embedded` for those inside the package, or a file, which may hold the generator or the critic alone. A generator draws
            pictures of any size; a critic that judges another size, or sees poses where this one does not, is left out.
    """
    path = Path(weights).expanduser()
    if weights == "embedded":
        path = Path(str(resources.files("halfmask").joinpath(f"weights/posegan_{model.size}.safetensors")))
        if not path.is_file():
            raise HalfmaskError(f"no embedded weights for a generator of size '{model.size}': set model.weights to a file or to nothing")
    state = read_state(path)
    # An encoder is of use in pre-training alone.
    if not hasattr(model, "encoder"):
        state = {name: tensor for name, tensor in state.items() if not name.startswith("encoder.")}
    parts = ("generator", "critic")
    if not _fits(model.critic, state):
        state = {name: tensor for name, tensor in state.items() if name.startswith("generator.")}
    held = tuple(part for part in parts if any(name.startswith(f"{part}.") for name in state))
    if len(held) != 1:
        load_into(model, state, str(path))
        return parts
    (part,) = held
    strange = {name: tensor for name, tensor in state.items() if not name.startswith(f"{part}.")}
    load_into(
        model.get_submodule(part),
        {name.removeprefix(f"{part}."): state[name] for name in state if name not in strange} | strange,
        str(path),
    )
    return held


def _fits(critic: Critic, state: dict[str, Tensor]) -> bool:
    """Whether a critic among weights is one for the same pictures."""
    mine = {f"critic.{name}": tensor.shape for name, tensor in critic.state_dict().items()}
    differ = [name for name in mine.keys() & state.keys() if mine[name] != state[name].shape]
    return not differ or set(differ) - {"critic.head.weight", "critic.layers.0.weight"} != set()
