"""Regions of a photograph that may show a face: where they are, which are kept, and what is kept of them.

A detector looks at regions that selective search proposes, and is taught by some of them. A region that shares more than half with a face
is taught as that face, one that shares little with any as no face, and what lies between teaches nothing. Selective search gives its boxes
in an order that is random each time, and the same boxes: so they are sorted, and which of them are kept is decided by numbers that belong
to the photograph and the box (`halfmask.data.keyed`). Whoever leaves takes nothing but their own regions along.

A box is left, top, width, height in pixels. Its edges lie between pixels, whose centres have whole numbers: the box 0, 0, 10, 10 reaches
from −0.5 to 9.5, and its middle is 4.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from halfmask.data.crops import box_problem
from halfmask.data.faces import Face
from halfmask.data.keyed import record_id, uniforms
from halfmask.errors import HalfmaskError

# The longer side that selective search is given; it takes more than its share of time on more pixels, and finds much the same.
SEARCHED_SIDE = 180
# Fewer pixels show nobody: neither a face nor a region is smaller.
LEAST_SIDE = 16
SMALL = f"a face smaller than {LEAST_SIDE} pixels"
BEYOND = "a face beyond the regions that its photograph may have (data.positives)"
COVERED = "a face behind another one, which all regions show more of"
# How much of both a region and a face share, at least for a face and at most for none.
_FACE, _NO_FACE = 0.5, 0.35
# How far the annotated box is moved and scaled at most, as shares of its sides: together never so far that half of it is lost.
_MOVED, _SMALLER, _LARGER = 0.08, 0.92, 1.12


@dataclass(frozen=True)
class RegionSettings:
    """How many regions of a photograph are kept, and the public seed that they are chosen by."""

    positives: int = 3
    negatives: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Region:
    """A region that is kept.

    Attributes:
        box: in whole pixels, inside the photograph.
        face: the place of the face it shows among those of its photograph; −1 for none.
        face_box: the box of that face, cut to the photograph.
        overlap: how much of both the two share; 0 for none.
    """

    box: tuple[int, int, int, int]
    face: int = -1
    face_box: tuple[float, float, float, float] = (np.nan, np.nan, np.nan, np.nan)
    overlap: float = 0.0


def propose(image: np.ndarray) -> np.ndarray:
    """N×4 boxes where selective search finds that something may be, each once and in ascending order.

    Args:
        image: H×W×3 bytes, red first.
    """
    segmentation: Any = getattr(getattr(cv2, "ximgproc", None), "segmentation", None)
    if segmentation is None:
        raise HalfmaskError(
            "this OpenCV is built without its contributed modules, which selective search is one of: install "
            "opencv-contrib-python-headless instead of opencv-python-headless"
        )
    height, width = image.shape[:2]
    if min(height, width) < LEAST_SIDE:
        return np.zeros((0, 4), np.int64)
    scale = max(1.0, max(height, width) / SEARCHED_SIDE)
    smaller = image
    if scale > 1:
        sides = (max(1, round(width / scale)), max(1, round(height / scale)))
        smaller = cv2.resize(image, sides, interpolation=cv2.INTER_AREA)
    search = segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(cv2.cvtColor(smaller, cv2.COLOR_RGB2BGR))
    search.switchToSelectiveSearchFast()
    found = np.asarray(search.process(), np.float64).reshape(-1, 4)
    back = np.array([width / smaller.shape[1], height / smaller.shape[0]])
    corners = np.concatenate([found[:, :2] * back, (found[:, :2] + found[:, 2:]) * back], 1)
    return _whole(corners, (height, width))


def choose(
    boxes: np.ndarray, faces: Sequence[Face], image_size: tuple[int, int], name: str, settings: RegionSettings
) -> tuple[list[Region], dict[str, int]]:
    """The regions of a photograph that are kept, and how many of its faces have none, for each reason.

    Each face that is large enough has one at least, as long as there are no more of them than `positives`: its own box, a little moved,
    is among the candidates.

    Args:
        boxes: what `propose` gave.
        image_size: rows and columns.
        name: the photograph's; with the seed and a box, what numbers are drawn by.
    """
    left_out: dict[str, int] = {}
    placed: list[int] = []
    cut_boxes: list[np.ndarray] = []
    for number, face in enumerate(faces):
        problem = box_problem(face.box, image_size)
        inside = None if problem else _inside(face.box, image_size)
        if inside is not None:
            # Too small to be learnt from is still no example of where nobody is.
            placed.append(number)
            cut_boxes.append(inside)
            problem = SMALL if inside[2:].min() < LEAST_SIDE else None
        if problem:
            left_out[problem] = left_out.get(problem, 0) + 1
    face_boxes = np.array(cut_boxes).reshape(-1, 4)
    large = face_boxes[:, 2:].min(1) >= LEAST_SIDE
    moved = [_moved(box, image_size, name, settings.seed) for box in face_boxes[large]]
    candidates = np.unique(np.concatenate([np.asarray(boxes, np.int64).reshape(-1, 4), *moved]), axis=0)
    ids = np.array([record_id(name, *box) for box in candidates.tolist()], np.uint64)
    candidates = candidates[np.argsort(uniforms(settings.seed, "regions", 0, ids)[:, 0], kind="stable")]
    overlaps = shared(candidates, face_boxes)
    best = overlaps.max(1, initial=0.0)
    nearest = overlaps.argmax(1) if len(face_boxes) else np.zeros(len(candidates), np.int64)
    shows = (best > _FACE) & (large[nearest] if len(face_boxes) else False)
    positives = _one_each_first(np.flatnonzero(shows), nearest, settings.positives)
    beyond = int(large.sum()) - len({int(nearest[row]) for row in positives})
    if beyond:
        left_out[BEYOND if len(positives) == settings.positives else COVERED] = beyond
    regions = [
        Region(_box(candidates[row]), placed[nearest[row]], _float_box(face_boxes[nearest[row]]), float(best[row])) for row in positives
    ]
    negatives = np.flatnonzero(best < _NO_FACE)[: settings.negatives]
    return regions + [Region(_box(candidates[row])) for row in negatives], left_out


def shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """N×M: the area that two boxes have in common, as a share of what they cover together."""
    one, other = np.asarray(boxes, np.float64)[:, None], np.asarray(others, np.float64)[None]
    low, high = np.maximum(one[..., :2], other[..., :2]), np.minimum(one[..., :2] + one[..., 2:], other[..., :2] + other[..., 2:])
    common = np.clip(high - low, 0, None).prod(-1)
    together = one[..., 2:].prod(-1) + other[..., 2:].prod(-1) - common
    return np.asarray(common / np.maximum(together, 1e-12))


def cut(image: np.ndarray, box: Sequence[int], size: int) -> np.ndarray:
    """A region as the network sees it, 3×S×S bytes: stretched to a square, averaged where it shrinks."""
    left, top, width, height = box
    region = image[top : top + height, left : left + width]
    how = cv2.INTER_AREA if min(width, height) >= size else cv2.INTER_LINEAR
    return np.ascontiguousarray(cv2.resize(region, (size, size), interpolation=how).transpose(2, 0, 1))


def into_region(face: Face, box: Sequence[float]) -> dict[str, np.ndarray]:
    """What a region teaches of the face it shows, as `halfmask.data.faces.face_records` wants it; landmarks outside cannot be seen."""
    left, top, width, height = box
    points = np.asarray(face.landmarks, np.float64)
    placed = (points - [left + width / 2 - 0.5, top + height / 2 - 0.5]) / [width, height]
    visible = np.asarray(face.visible, bool) & (np.abs(placed) <= 0.5).all(1)
    pose = np.asarray(face.pose, np.float64)
    posed, attributed = bool(np.isfinite(pose).all()), bool(np.isfinite(face.attribute))
    return {
        "face": np.float32(1),
        # What cannot be seen may hold anything; garbage that is never stored cannot be read.
        "landmarks": np.where(visible[:, None], placed, 0).astype(np.float32),
        "visible": visible.astype(np.float32),
        "pose": np.radians(pose if posed else np.zeros(3)).astype(np.float32),
        "posed": np.float32(posed),
        "attribute": np.float32(face.attribute if attributed else 0),
        "attributed": np.float32(attributed),
    }


def out_of_region(landmarks: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Landmarks (…×K×2, as shares of their regions) in the pixels of the photograph: the way back from `into_region`."""
    sides, corners = np.asarray(boxes, np.float64)[..., None, 2:], np.asarray(boxes, np.float64)[..., None, :2]
    return np.asarray(np.asarray(landmarks, np.float64) * sides + corners + sides / 2 - 0.5)


def _one_each_first(rows: np.ndarray, faces: np.ndarray, most: int) -> list[int]:
    """The first region of each face, then the others, in the order they were drawn."""
    seen: set[int] = set()
    first: list[int] = []
    others: list[int] = []
    for row in rows.tolist():
        (others if int(faces[row]) in seen else first).append(row)
        seen.add(int(faces[row]))
    return (first + others)[:most]


def _moved(box: np.ndarray, image_size: tuple[int, int], name: str, seed: int) -> np.ndarray:
    """1×4: the box of a face, moved and scaled a little by numbers of its own, so that not every face sits in the middle."""
    who = np.array([record_id(name, "face", *(round(100 * value) for value in box.tolist()))], np.uint64)
    drawn = uniforms(seed, "moved face", 0, who, count=4)[0]
    sides = box[2:] * (_SMALLER + (_LARGER - _SMALLER) * drawn[2:])
    middle = box[:2] + box[2:] / 2 + box[2:] * _MOVED * (2 * drawn[:2] - 1)
    corners = np.concatenate([middle - sides / 2, middle + sides / 2])[None]
    made = _whole(corners, image_size, least=1)
    # A face of few pixels can lose half of itself to rounding alone.
    if not len(made) or shared(made, box[None])[0, 0] <= _FACE or made[0, 2:].min() < LEAST_SIDE:
        made = _whole(np.concatenate([np.floor(box[:2]), np.ceil(box[:2] + box[2:])])[None], image_size, least=1)
    return made


def _whole(corners: np.ndarray, image_size: tuple[int, int], least: int = LEAST_SIDE) -> np.ndarray:
    """Boxes in whole pixels inside the image, each once, from left, top, right and bottom; without those that are too small."""
    rows, columns = image_size
    edges = np.clip(np.round(corners), 0, [columns, rows, columns, rows]).astype(np.int64)
    boxes = np.concatenate([edges[:, :2], edges[:, 2:] - edges[:, :2]], 1)
    return np.unique(boxes[boxes[:, 2:].min(1) >= least], axis=0)


def _inside(box: tuple[float, ...], image_size: tuple[int, int]) -> np.ndarray:
    left, top = max(0.0, box[0]), max(0.0, box[1])
    right, bottom = min(float(image_size[1]), box[0] + box[2]), min(float(image_size[0]), box[1] + box[3])
    return np.array([left, top, right - left, bottom - top])


def _box(row: np.ndarray) -> tuple[int, int, int, int]:
    left, top, width, height = (int(value) for value in row)
    return left, top, width, height


def _float_box(row: np.ndarray) -> tuple[float, float, float, float]:
    left, top, width, height = (float(value) for value in row)
    return left, top, width, height
