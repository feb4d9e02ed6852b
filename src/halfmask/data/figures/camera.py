"""The camera: from points in the room to pixels of a crop, in one 3×4 matrix.

Everything is drawn as shapes through this matrix, so a crop is drawn directly at its own size. Cutting it out
of a rasterised picture would cost a bigger drawing and then blur it by resampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PICTURE = (480, 640)
"""Height and width of the picture coordinates in which a camera is first set up."""

_LIMIT = 4000.0
"""Pixels are clipped here: OpenCV's fixed-point numbers overflow far outside the image."""


@dataclass(frozen=True)
class Camera:
    """A pinhole camera with the room's x to its right, y up and z towards it."""

    matrix: np.ndarray
    centre: np.ndarray
    focal: float
    """Pixels that one metre fills at a depth of one metre."""

    @staticmethod
    def look(target: tuple[float, float, float], distance: float, pitch: float, roll: float, focal: float) -> Camera:
        """Aim at ``target`` from ``distance`` metres, looking down by ``pitch`` degrees, tilted by ``roll``.

        ``focal`` is in pixels of a 640×480 picture. The camera looks along −z: turning round a person is the
        business of the person's yaw, so the back wall always fills the picture.
        """
        p, r = np.deg2rad(pitch), np.deg2rad(roll)
        ahead = np.array([0.0, -np.sin(p), -np.cos(p)])
        right = np.array([1.0, 0.0, 0.0])
        down = np.array([0.0, -np.cos(p), np.sin(p)])
        centre = np.asarray(target) - distance * ahead
        rows = np.stack([right, down, ahead])
        extrinsic = np.concatenate([rows, -(rows @ centre)[:, None]], axis=1)
        c, s = np.cos(r), np.sin(r)
        h, w = PICTURE
        intrinsic = np.array(
            [
                [focal * c, -focal * s, (w - 1) / 2],
                [focal * s, focal * c, (h - 1) / 2],
                [0.0, 0.0, 1.0],
            ]
        )
        return Camera(intrinsic @ extrinsic, centre, focal)

    def window(self, x: float, y: float, scale: float) -> Camera:
        """The same camera seen through a window whose pixel (0, 0) is (x, y), magnified by ``scale``."""
        move = np.array([[scale, 0.0, -scale * x], [0.0, scale, -scale * y], [0.0, 0.0, 1.0]])
        return Camera(move @ self.matrix, self.centre, self.focal * scale)

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (N×2) and depths (N) of points (N×3)."""
        homogeneous = points @ self.matrix[:, :3].T + self.matrix[:, 3]
        depth = np.maximum(homogeneous[:, 2], 0.15)
        pixels = homogeneous[:, :2] / depth[:, None]
        np.minimum(pixels, _LIMIT, out=pixels)
        np.maximum(pixels, -_LIMIT, out=pixels)
        return pixels, depth

    def jacobian(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pixel of one point and how it moves (2×3) with the point: the camera near that point.

        Small round things (heads, hands) are drawn with it, as ellipses.
        """
        h = self.matrix[:, :3] @ point + self.matrix[:, 3]
        depth = max(float(h[2]), 0.15)
        pixel = h[:2] / depth
        return pixel, (self.matrix[:2, :3] - np.outer(pixel, self.matrix[2, :3])) / depth

    def plane(self, origin: np.ndarray, across: np.ndarray, along: np.ndarray) -> np.ndarray:
        """The homography that takes coordinates (a, b) on the plane origin + a·across + b·along to pixels."""
        m = self.matrix
        return np.stack([m[:, :3] @ across, m[:, :3] @ along, m[:, :3] @ origin + m[:, 3]], axis=1)
