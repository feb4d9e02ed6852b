"""What a recogniser goes by: where edges run in a picture, what a public network sees in it, and which colours parts of the body have.

Learning to see from a thousand small pictures takes a network many minutes, and it does not get far. These three are known to tell
what people do and who they are, cost milliseconds a picture, and are the same functions of any picture: raw, blurred or generated. What is
learnt on top of them is in `recognition`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np

from halfmask.data.skeleton import MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.models.judge import Judge, Sight, check_pictures, resized, shipped_judge

# Height and width at which edges and colours are looked at.
SMALL = (64, 48)
_DIRECTIONS, _CELL = 9, 4
# A picture without edges must not have its noise blown up to some.
_LEAST_EDGE = 4.0
# Where along a limb colours are looked at, as shares of its length.
_ALONG = (0.15, 0.35, 0.5, 0.65, 0.85)
_DARK = 8.0


@dataclass(frozen=True)
class Looks:
    """What is seen of some pictures; rows belong to pictures.

    Attributes:
        edges: how much edge there is in each direction, cell by cell.
        shape: what the pose network sees, cell by cell.
        parts: logarithms of the colours along the limbs, where the pose network finds them, and of the whole picture.
        known_parts: the same where the limbs are known to be; None if no poses were given.
    """

    edges: np.ndarray
    shape: np.ndarray
    parts: np.ndarray
    known_parts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.edges)

    def take(self, rows: np.ndarray) -> Looks:
        """Those of some pictures."""
        known = None if self.known_parts is None else self.known_parts[rows]
        return Looks(self.edges[rows], self.shape[rows], self.parts[rows], known)

    def knowing_poses(self) -> Looks:
        """What somebody sees who knows the poses: parts of the body are where they are, however hidden."""
        return self if self.known_parts is None else replace(self, parts=self.known_parts)


def look_at(
    images: np.ndarray,
    joints: np.ndarray | None = None,
    skeleton: Skeleton = MPII,
    judge: Judge | None = None,
    sight: Sight | None = None,
) -> Looks:
    """See pictures as the recogniser does.

    Args:
        images: bytes N×3×H×W.
        joints: the poses, if they are known: N×J×3 (x, y, whether it is there) in pixels of these pictures.
        judge: the network to look through; the shipped one if none is given.
        sight: what the judge saw in them, where it has looked already.
    """
    check_pictures(images)
    sight = sight or (judge or shipped_judge()).look(images)
    small = resized(images, SMALL)
    scale = np.array([SMALL[1] / images.shape[3], SMALL[0] / images.shape[2]])

    def placed(points: np.ndarray) -> np.ndarray:
        return (points + 0.5) * scale - 0.5

    found = parts(small, placed(sight.joints), np.ones(sight.joints.shape[:2], bool), MPII)
    known = None
    if joints is not None:
        if joints.shape != (len(images), len(skeleton), 3):
            raise HalfmaskError(
                f"poses have shape {joints.shape} for {len(images)} pictures: expected ({len(images)}, {len(skeleton)}, 3) as x, y and "
                f"whether the joint is there, in the order of {skeleton.name}"
            )
        known = parts(small, placed(joints[..., :2]), joints[..., 2] > 0, skeleton)
    return Looks(edges(small), sight.grid, found, known)


def edges(images: np.ndarray) -> np.ndarray:
    """Histograms of the directions of edges in cells of 4×4 pixels, each weighed against its neighbours (after Dalal and Triggs, 2005)."""
    found = []
    for image in images:
        planes = [plane.astype(np.float32) for plane in image]
        across = np.stack([cv2.Sobel(plane, cv2.CV_32F, 1, 0, ksize=1) for plane in planes])
        down = np.stack([cv2.Sobel(plane, cv2.CV_32F, 0, 1, ksize=1) for plane in planes])
        strength = np.hypot(across, down)
        # Of the three colours, the one in which the edge is strongest says where it runs.
        strongest = strength.argmax(0)[None]
        across, down, strength = (np.take_along_axis(one, strongest, 0)[0] for one in (across, down, strength))
        turn = np.arctan2(down, across) % np.pi / np.pi * _DIRECTIONS
        first, share = np.floor(turn).astype(int) % _DIRECTIONS, turn - np.floor(turn)
        second = (first + 1) % _DIRECTIONS
        size = (image.shape[2] // _CELL, image.shape[1] // _CELL)
        cells = []
        for direction in range(_DIRECTIONS):
            layer = strength * ((first == direction) * (1 - share) + (second == direction) * share)
            cells.append(cv2.resize(cv2.blur(layer, (2 * _CELL, 2 * _CELL)), size, interpolation=cv2.INTER_AREA))
        histogram = np.maximum(np.stack(cells), 0.0)
        # Where there is no edge, sums that are kept up as a window moves end a rounding error below nought.
        around = np.sqrt(np.maximum(cv2.blur((histogram**2).sum(0), (3, 3)), 0.0)) + _LEAST_EDGE
        found.append(np.sqrt(histogram / around).ravel())
    return np.array(found, np.float32)


def parts(images: np.ndarray, joints: np.ndarray, there: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """Logarithms of the colours along the limbs and across the trunk, and of the whole picture: light multiplies, so it adds there.

    A limb with an end that is not there has the colour of the whole picture.
    """
    pairs = np.array([*skeleton.edges, *_trunk(skeleton)])
    shares = np.array(_ALONG)[:, None]
    height, width = images.shape[2:]
    logs = np.log(images.astype(np.float32) + _DARK)
    whole = logs.mean((2, 3))
    found = []
    for picture, mean, points, here in zip(logs, whole, joints, there, strict=True):
        start, end = points[pairs[:, 0], None], points[pairs[:, 1], None]
        places = (start * (1 - shares) + end * shares).reshape(-1, 2)
        places = np.clip(np.nan_to_num(places), 0, [width - 1, height - 1]).round().astype(int)
        colours = picture[:, places[:, 1], places[:, 0]].T
        seen = np.repeat(here[pairs].all(1), len(_ALONG))
        found.append(np.concatenate([np.where(seen[:, None], colours, mean).ravel(), mean]))
    return np.array(found, np.float32)


def _trunk(skeleton: Skeleton) -> list[tuple[int, int]]:
    """From each shoulder to each hip, where a skeleton has them: most of what somebody wears is between."""
    try:
        ends = [[skeleton.index(f"{side}_{name}") for side in ("left", "right")] for name in ("shoulder", "hip")]
    except HalfmaskError:
        return []
    return [(shoulder, hip) for shoulder in ends[0] for hip in ends[1]]
