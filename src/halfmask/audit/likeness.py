"""How alike two pictures are: PSNR and SSIM, on bytes."""

from __future__ import annotations

import math

import cv2
import numpy as np

_WINDOW, _SIGMA = (11, 11), 1.5
# The constants of the definition (Wang et al., 2004), for values up to 255.
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def psnr(picture: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio in decibels; infinite for equal pictures."""
    error = float(np.mean((picture.astype(np.float64) - truth.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def ssim(picture: np.ndarray, truth: np.ndarray) -> float:
    """Structural similarity, mean over pixels and channels: 1 for equal pictures, near 0 for unrelated ones. H×W×C bytes."""
    x, y = picture.astype(np.float64), truth.astype(np.float64)

    def mean(values: np.ndarray) -> np.ndarray:
        return cv2.GaussianBlur(values, _WINDOW, _SIGMA)

    mean_x, mean_y = mean(x), mean(y)
    variance_x, variance_y = mean(x * x) - mean_x**2, mean(y * y) - mean_y**2
    together = mean(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + _C1) * (2 * together + _C2)
    below = (mean_x**2 + mean_y**2 + _C1) * (variance_x + variance_y + _C2)
    return float(np.mean(above / below))
