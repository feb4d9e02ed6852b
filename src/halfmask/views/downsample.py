"""A few coarse, coarsely quantised cells of the crop."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.views.base import ImageView


@dataclass(frozen=True)
class Downsample(ImageView):
    """Mean of each `cell`×`cell` block, quantised to `levels` grey levels a channel, shown again at the crop's size."""

    cell: int = 16
    levels: int = 16

    def __post_init__(self) -> None:
        whole = isinstance(self.cell, int) and isinstance(self.levels, int)
        if not whole or self.cell < 2 or not 2 <= self.levels <= 256:
            raise HalfmaskError(f"downsample cell {self.cell}, levels {self.levels}: expected whole numbers, a cell ≥ 2, 2 to 256 levels")

    def __call__(self, image: np.ndarray) -> np.ndarray:  # noqa: D102
        height, width = image.shape[:2]
        small = (max(1, width // self.cell), max(1, height // self.cell))
        coarse = cv2.resize(image, small, interpolation=cv2.INTER_AREA).astype(np.float32)
        step = 255 / (self.levels - 1)
        quantised = np.clip(np.round(coarse / step) * step, 0, 255).astype(np.uint8)
        return cv2.resize(quantised, (width, height), interpolation=cv2.INTER_NEAREST)

    def describe(self) -> str:  # noqa: D102
        return f"the means of {self.cell}×{self.cell} pixel blocks, quantised to {self.levels} levels"
