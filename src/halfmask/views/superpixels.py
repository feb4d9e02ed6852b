"""Superpixels: patches that follow the outlines of what is seen, each in one colour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.views.base import ImageView

# Segments are sought in an enlarged picture until they would be so many pixels across there: how many there come to be can then be chosen
# finely, although a segment's side is a whole number of pixels.
_ACROSS = 4
# As is customary: the compactness, in the 8-bit Lab space, and the number of rounds.
_COMPACTNESS, _ROUNDS = 10.0, 10
# What of a segment lies apart and is smaller than this share of one, in percent, goes to its neighbour. Without that, stripes of a shirt
# would show at any number of segments, as shreds of its neighbours.
_SHREDS = 25


@dataclass(frozen=True)
class Superpixels(ImageView):
    """About `segments` superpixels (SLIC), each in its mean colour, rounded to 8 bits; one segment is the mean of the picture."""

    segments: int = 20

    def __post_init__(self) -> None:
        if isinstance(self.segments, bool) or not isinstance(self.segments, int) or self.segments < 1:
            raise HalfmaskError(f"superpixels with {self.segments} segments: expected a whole number of at least 1")

    def __call__(self, image: np.ndarray) -> np.ndarray:  # noqa: D102
        labels = self._labels(image).ravel()
        sizes = np.bincount(labels)
        means = [np.bincount(labels, image[:, :, channel].ravel()) / np.maximum(sizes, 1) for channel in range(3)]
        return np.stack(means, axis=1).round().astype(np.uint8)[labels].reshape(image.shape)

    def _labels(self, image: np.ndarray) -> np.ndarray:
        """The segment of each pixel, by number."""
        height, width = image.shape[:2]
        if self.segments == 1:
            return np.zeros((height, width), np.int64)
        side = math.sqrt(height * width / self.segments)
        times = max(1, math.ceil(_ACROSS / side))
        large = np.repeat(np.repeat(image, times, axis=0), times, axis=1)
        slic = _slic()
        found = slic.createSuperpixelSLIC(cv2.cvtColor(large, cv2.COLOR_RGB2Lab), slic.SLIC, max(1, round(times * side)), _COMPACTNESS)
        found.iterate(_ROUNDS)
        found.enforceLabelConnectivity(_SHREDS)
        # A pixel belongs to whichever segment its middle is in.
        middle = times // 2
        return np.ascontiguousarray(found.getLabels()[middle::times, middle::times]).astype(np.int64)

    def describe(self) -> str:  # noqa: D102
        if self.segments == 1:
            return "the mean colour of the crop, rounded to 8 bits"
        return f"the mean colours of about {self.segments} superpixels (SLIC) and their outlines, rounded to 8 bits"


def _slic() -> Any:
    found = getattr(cv2, "ximgproc", None)
    if not hasattr(found, "createSuperpixelSLIC"):
        raise HalfmaskError(
            "superpixels need OpenCV's contributed modules, and this OpenCV has none: install opencv-contrib-python-headless in its place"
        )
    return found
