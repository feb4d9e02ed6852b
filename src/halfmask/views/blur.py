"""A Gaussian blur of the whole crop, rounded to bytes: people and rooms become shapes without detail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.views.base import ImageView

_KERNEL, _SIGMA = 25, 10.0
# Beyond three deviations a Gaussian has next to nothing.
_REACH = 3


@dataclass(frozen=True)
class Blur(ImageView):
    """Gaussian blur with a `kernel`×`kernel` window, then 8-bit rounding (the lossy step).

    Where nothing is given it is 25×25 with σ = 10, which is customary; with a `sigma` alone the window is wide enough for all of it.
    """

    kernel: int = None  # type: ignore[assignment]
    sigma: float = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        # Filled in here, so that a blur is the same, and has the same name, whichever way it was asked for.
        if self.kernel is None:
            object.__setattr__(self, "kernel", _KERNEL if self.sigma is None else _window(self.sigma))
        if self.sigma is None:
            object.__setattr__(self, "sigma", _SIGMA)
        if not isinstance(self.kernel, int) or self.kernel < 1 or self.kernel % 2 == 0 or not 0 < self.sigma < math.inf:
            raise HalfmaskError(f"blur {self.kernel}×{self.kernel}, sigma {self.sigma}: expected an odd kernel and a sigma above 0")

    def __call__(self, image: np.ndarray) -> np.ndarray:  # noqa: D102
        return cv2.GaussianBlur(image, (self.kernel, self.kernel), self.sigma)

    def describe(self) -> str:  # noqa: D102
        return f"the crop after a Gaussian blur ({self.kernel}×{self.kernel}, σ={self.sigma:g}) rounded to 8 bits"


def _window(sigma: float) -> int:
    """The smallest odd window that reaches three deviations to either side; of what is no deviation none, to be refused."""
    return 2 * math.ceil(_REACH * sigma) + 1 if 0 < sigma < math.inf else _KERNEL
