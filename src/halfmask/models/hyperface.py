"""HyperFace: one trunk, features of three depths fused into a vector, and a small head for each of five tasks.

After Ranjan, Patel and Chellappa (2017): the first pooling knows edges, the third convolution parts, the last pooling faces; strided
convolutions bring the first two to the size of the last, a 1×1 convolution mixes them, and a vector of them is what every head reads. There
is no normalisation over a batch anywhere, so that a region's gradient is its own. The five log-variances that weigh the tasks are
parameters like all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# What the network learns, in the order of its losses, its heads and its log-variances.
SUBTASKS = ("detection", "landmarks", "visibility", "pose", "attribute")
# As far as a log-variance has a say: beyond, noise in it would drown a task or let it drown all others.
_LARGEST_LOG_VARIANCE = 10.0


# Where log-variances begin: about the logarithm of what is left of each loss once it is learnt. A landmark that is off by a twentieth of
# the region costs a thousandth, and steps that move every weight alike would need thousands of them to find that out.
_START = {"detection": -2.0, "landmarks": -6.5, "visibility": -2.5, "pose": -4.0, "attribute": -2.0}


@dataclass(frozen=True)
class Shape:
    """Numbers of one size of the network.

    Attributes:
        input_size: the side of a region in pixels.
        channels: of the five convolutions.
        first: kernel, stride and padding of the first convolution.
        second: kernel of the second.
        pool: kernel and stride of the three poolings.
        fused: channels that the first two depths are brought to; the last comes as it is.
        mixed: channels after the 1×1 convolution.
        map_size: the side of the map that all three depths are brought to.
        vector: what every head reads.
        head: the width of a head.
    """

    input_size: int
    channels: tuple[int, int, int, int, int]
    first: tuple[int, int, int]
    second: int
    pool: tuple[int, int]
    fused: int
    mixed: int
    map_size: int
    vector: int
    head: int


SHAPES = {
    "small": Shape(64, (24, 48, 64, 64, 64), (5, 2, 2), 3, (2, 2), 64, 48, 4, 192, 64),
    "paper": Shape(227, (96, 256, 384, 384, 256), (11, 4, 0), 5, (3, 2), 256, 192, 6, 3072, 512),
}


class HyperFace(nn.Module):
    """The network: regions in, one output for each task out.

    Args:
        size: `small`, made for a processor, or `paper`.
        landmarks: how many the dataset has.
        subtasks: which tasks it has heads for.
    """

    def __init__(self, size: str = "small", landmarks: int = 21, subtasks: tuple[str, ...] = SUBTASKS):
        super().__init__()
        shape = self.shape = SHAPES[size]
        self.landmarks, self.subtasks = landmarks, tuple(subtasks)
        one, two, three, four, five = shape.channels
        kernel, stride, padding = shape.first
        self.conv1 = nn.Conv2d(3, one, kernel, stride, padding)
        self.conv2 = nn.Conv2d(one, two, shape.second, padding=shape.second // 2)
        self.conv3 = nn.Conv2d(two, three, 3, padding=1)
        self.conv4 = nn.Conv2d(three, four, 3, padding=1)
        self.conv5 = nn.Conv2d(four, five, 3, padding=1)
        self.early = nn.Conv2d(one, shape.fused, 4, stride=4)
        self.middle = nn.Conv2d(three, shape.fused, 2, stride=2)
        self.mix = nn.Conv2d(2 * shape.fused + five, shape.mixed, 1)
        self.vector = nn.Linear(shape.mixed * shape.map_size**2, shape.vector)
        widths = {"detection": 1, "landmarks": 2 * landmarks, "visibility": landmarks, "pose": 3, "attribute": 1}
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(shape.vector, shape.head), nn.ReLU(), nn.Linear(shape.head, widths[name]))
                for name in self.subtasks
            }
        )
        self.log_variances = nn.Parameter(torch.tensor([_START[name] for name in self.subtasks]))
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for head in self.heads.values():
            assert isinstance(head, nn.Sequential) and isinstance(head[-1], nn.Linear)
            # An untrained network says nothing of anybody.
            nn.init.normal_(head[-1].weight, std=0.01)

    def lower(self, images: Tensor) -> Tensor:
        """From regions, bytes B×3×S×S, to the fused map as a vector: what does not train under strategy `top`."""
        images = images.float().to(self.conv1.weight.dtype) / 127.5 - 1
        first = self._pooled(F.relu(self.conv1(images)))
        third = F.relu(self.conv3(self._pooled(F.relu(self.conv2(first)))))
        last = self._pooled(F.relu(self.conv5(F.relu(self.conv4(third)))))
        fused = torch.cat([F.relu(self.early(first)), F.relu(self.middle(third)), last], 1)
        return F.relu(self.mix(fused)).flatten(1)

    def embedding(self, features: Tensor) -> Tensor:
        """The vector that every head reads, from what `lower` gives."""
        return F.relu(self.vector(features))

    def upper(self, features: Tensor) -> dict[str, Tensor]:
        """From what `lower` gives to what is said of each region, by task."""
        vector = self.embedding(features)
        said = {name: head(vector) for name, head in self.heads.items()}
        return {name: self._shaped(name, value) for name, value in said.items()}

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Logits of `detection` and `attribute` (B), `landmarks` (B×K×2), `visibility` (B×K) and `pose` (B×3), in the units of targets."""
        return self.upper(self.lower(images))

    def precisions(self) -> Tensor:
        """exp(−s) of each task."""
        return torch.exp(-self.bounded_log_variances())

    def bounded_log_variances(self) -> Tensor:
        """The log-variances s, within bounds."""
        return self.log_variances.clamp(-_LARGEST_LOG_VARIANCE, _LARGEST_LOG_VARIANCE)

    def _pooled(self, features: Tensor) -> Tensor:
        return F.max_pool2d(features, *self.shape.pool)

    def _shaped(self, name: str, value: Tensor) -> Tensor:
        if name == "landmarks":
            return value.view(value.shape[0], self.landmarks, 2)
        return value[:, 0] if name in ("detection", "attribute") else value


def parts_by_depth(model: HyperFace) -> dict[str, list[nn.Parameter]]:
    """The parameters that train under each strategy: `top` from the vector on, `finetune` from the fusion on."""
    upper: list[Any] = [model.vector, model.heads]
    fusion: list[Any] = [model.early, model.middle, model.mix]
    top = [parameter for part in upper for parameter in part.parameters()] + [model.log_variances]
    return {"top": top, "finetune": top + [parameter for part in fusion for parameter in part.parameters()]}
