"""A Gaussian blur of the whole crop, rounded to bytes: people and rooms become shapes without detail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.views.base import ImageView


@dataclass(frozen=True)
class Blur(ImageView):
    """Gaussian blur with a `kernel`×`kernel` window, then 8-bit rounding (the lossy step)."""

    kernel: int = 25
    sigma: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, int) or self.kernel < 1 or self.kernel % 2 == 0 or not 0 < self.sigma < math.inf:
            raise HalfmaskError(f"blur {self.kernel}×{self.kernel}, sigma {self.sigma}: expected an odd kernel and a sigma above 0")

    def __call__(self, image: np.ndarray) -> np.ndarray:  # noqa: D102
        return cv2.GaussianBlur(image, (self.kernel, self.kernel), self.sigma)

    def describe(self) -> str:  # noqa: D102
        return f"the crop after a Gaussian blur ({self.kernel}×{self.kernel}, σ={self.sigma:g}) rounded to 8 bits"
