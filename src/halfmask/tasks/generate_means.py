"""A critic that is fixed but for one linear layer: means of what people's pictures look like, part of the body by part.

A linear critic ⟨w, φ(x)⟩ has the gradient −φ(x), whatever w is. One step of plain private training with everyone in the batch, from w = 0
and at a rate of 1, therefore leaves w = the noised mean of clipped φ: one Gaussian release, clipped, noised, accounted for and certified by
the loop as any other step. The generator then learns, for as long as it likes, to draw pictures that have these means.

φ is where colours lie: each limb, the head and the trunk, found by the pose, and a few cells of the background, say how much of each of
some fixed colours they hold. Cells, colours, centres and scales come from public people; so they cost nothing, and what private people add
is how they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from halfmask.data.heatmaps import limb_maps
from halfmask.errors import HalfmaskError

# Corners and centre of the cube of colours, from −1 to 1, a little inside it: where clothes and walls are.
_LEVELS = (-0.75, 0.0, 0.75)
COLOURS = tuple((r, g, b) for r in _LEVELS for g in _LEVELS for b in _LEVELS)
_SHARPNESS = 4.0
# The background's cells, down and across.
_GRID = (4, 3)
# Half the width of a limb, as a share of the picture's height.
_THICKNESS = 0.035


class MeansCritic(nn.Module):
    """⟨w, φ(picture, pose)⟩, of which w alone is trained.

    Attributes:
        centre, scale: of φ over public people: a person like them has a φ about 1 long.
    """

    centre: Tensor
    scale: Tensor
    colours: Tensor
    grid: Tensor

    def __init__(self, limbs: Sequence[tuple[int, int]], height: int, width: int):
        super().__init__()
        if not limbs:
            raise HalfmaskError("model.critic=means looks along limbs, and these joints have none: use model.critic=network")
        self.limbs, self.height, self.width = tuple(limbs), height, width
        self.register_buffer("colours", torch.tensor(COLOURS), persistent=False)
        ys, xs = torch.meshgrid(torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
        cells = (ys * _GRID[0] / height).long() * _GRID[1] + (xs * _GRID[1] / width).long()
        self.register_buffer("grid", nn.functional.one_hot(cells, _GRID[0] * _GRID[1]).permute(2, 0, 1).float(), persistent=False)
        self.count = (len(self.limbs) + _GRID[0] * _GRID[1]) * len(COLOURS)
        self.register_buffer("centre", torch.zeros(self.count))
        self.register_buffer("scale", torch.ones(()))
        self.linear = nn.Linear(self.count, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def features(self, pictures: Tensor, joints: Tensor) -> Tensor:
        """φ of pictures from −1 to 1 and of their poses, N×J×3 in pixels."""
        cells = self.cells(joints)
        # The squared distance of each pixel to each colour, without one large tensor of differences.
        product = torch.einsum("nchw,kc->nkhw", pictures, self.colours)
        lengths = self.colours.square().sum(1)[:, None, None]
        shares = torch.softmax(_SHARPNESS * (2 * product - lengths), 1)
        held = torch.einsum("nphw,nkhw->npk", cells, shares).flatten(1)
        return (held - self.centre) / self.scale

    def cells(self, joints: Tensor) -> Tensor:
        """Which share of each pixel belongs to each limb or cell: N×P×H×W; each adds up to 1, or to 0 where it cannot be seen."""
        limb = limb_maps(joints, self.limbs, (self.height, self.width), _THICKNESS * self.height)
        person = limb.amax(1, keepdim=True)
        behind = self.grid[None] * (1 - person).clamp(min=0).square()
        every = torch.cat([limb, behind], 1)
        # A limb outside the picture holds nothing, rather than whatever is nearest to it.
        return every / every.sum((2, 3), keepdim=True).clamp(min=1.0)

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Centre and scale from public people's pictures and poses."""
        self.centre.zero_()
        self.scale.fill_(1.0)
        found = torch.cat([self.features(pictures, joints) for pictures, joints in batches])
        self.centre.copy_(found.mean(0))
        self.scale.copy_((found - self.centre).norm(dim=1).mean().clamp(min=1e-6))

    def forward(self, pictures: Tensor, joints: Tensor) -> Tensor:
        """⟨w, φ⟩ of each picture."""
        value: Tensor = self.linear(self.features(pictures, joints))
        return value[:, 0]

    @property
    def means(self) -> Tensor:
        """The released means, once they are."""
        return self.linear.weight[0]
