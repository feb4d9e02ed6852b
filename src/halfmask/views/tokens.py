"""Tokens: of a clip, some space-time patches are public and the others are not.

The protected pixels are taken out *before* any patch is formed: ψ is the clip with a constant in their place, and the list of the tokens
that are public. A token is an overlapping patch in space and time; one that straddles the border has seen protected pixels, so it is
private. By default it is not in ψ at all. With `edges: cleared` it is, as the patch of the cleared clip, which is a function of public
pixels and of the mask alone: what of a thin arm lies in the patch is kept, and nothing of what lies behind it.

The rest, what stays private, is every token that any protected pixel has a part in, of the clip as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.views.base import ImageView, Seen, View

# In the place of protected pixels: the middle of what networks for video normalise by, so that they are near nothing.
FILL = 115
EDGES = ("private", "cleared")
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Tokens(View):
    """The public tokens of a clip (`clip`, T×3×H×W bytes), by its mask (`hidden`, T×H×W).

    Attributes:
        edges: what becomes of tokens that straddle the border: `private`, or `cleared` of what is protected.
        divides: whether the rest is what the private half is shown; else that is the whole clip.
        patch, stride: the shape of a token: frames, rows, columns.
        protects: what the mask hides, in the words of the certificate.
    """

    reads: ClassVar[tuple[str, ...]] = ("clip", "hidden")
    keeps: ClassVar[tuple[str, ...]] = ("clip",)
    may_divide: ClassVar[bool] = True

    edges: str = "private"
    divides: bool = True
    patch: Triple = (3, 7, 7)
    stride: Triple = (2, 4, 4)
    protects: str = "what its mask protects"

    def __post_init__(self) -> None:
        if self.edges not in EDGES:
            raise unknown_name("way to treat tokens at the border (view.options.edges)", self.edges, EDGES)

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:  # noqa: D102
        clip, hidden = record["clip"], np.asarray(record["hidden"], bool)
        if hidden.shape != (clip.shape[0], *clip.shape[2:]):
            raise HalfmaskError(
                f"the mask of a clip is {'×'.join(map(str, hidden.shape))} and its frames are "
                f"{clip.shape[0]}×{clip.shape[2]}×{clip.shape[3]}: expected a mask of the same length and size"
            )
        touched = self.any_of(hidden)
        public = self.any_of(~hidden) if self.edges == "cleared" else ~touched
        cleared = np.where(hidden[:, None], np.uint8(FILL), clip)
        return Seen({"clip": cleared, "tokens": public}, {"tokens": touched} if self.divides else None)

    def any_of(self, pixels: np.ndarray) -> np.ndarray:
        """Whether any of these pixels (T×H×W) has a part in each token; what lies beyond the frame is nobody's."""
        centred = [size // 2 for size in self.patch]
        found = F.max_pool3d(torch.from_numpy(pixels.astype(np.float32))[None, None], self.patch, self.stride, centred)[0, 0]
        return found.numpy() > 0

    def describe(self) -> str:  # noqa: D102
        frames, rows, columns = self.patch
        border = "those at the border are cleared of them" if self.edges == "cleared" else "those that straddle the border are private"
        return (
            f"the tokens (patches of {frames} frames × {rows}×{columns} pixels) of the clip with {self.protects} removed before any patch "
            f"is formed; {border}; and the mask itself"
        )


@dataclass(frozen=True)
class Framewise(View):
    """A view of pictures, of each frame of a clip by itself; all of its tokens."""

    reads: ClassVar[tuple[str, ...]] = ("clip", "tokens")

    view: ImageView

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:  # noqa: D102
        frames = [self.view(np.ascontiguousarray(frame.transpose(1, 2, 0))).transpose(2, 0, 1) for frame in record["clip"]]
        return Seen({"clip": np.stack(frames), "tokens": record["tokens"]})

    def describe(self) -> str:  # noqa: D102
        return f"of each frame, {self.view.describe()}"
