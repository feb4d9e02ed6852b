"""Finding faces in a whole photograph: candidate regions, the network's word on each, and one face of many regions that show it.

After HyperFace: regions are proposed by selective search, and squares all over the photograph besides; those that are said to show a face
are cut anew round the landmarks that were found in them, which fit the face better than a proposal does, and looked at again; regions whose
landmarks' boxes overlap are one face, whose landmarks are the median of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from halfmask.data.crops import box_problem
from halfmask.data.regions import cut, out_of_region, propose
from halfmask.errors import HalfmaskError
from halfmask.models.hyperface import HyperFace

# Faces smaller than this were never learnt.
_SMALLEST = 16.0
# A region this much longer than wide, or wider than long, is no face.
_LONGEST = 2.0
_SURE, _CERTAIN, _SAME_FACE, _INSIDE = 0.5, 0.9, 0.3, 0.6
# Sides of squares that are looked at besides what selective search proposes, as shares of the photograph's shorter side.
_SHARES = (0.3, 0.45, 0.65)
# As many of the regions that look most like faces are looked at a second time.
_LOOKED_AT_AGAIN = 100


@dataclass(frozen=True)
class Found:
    """A face, in pixels of the photograph.

    Attributes:
        box: left, top, width, height.
        score: how sure the network is that it is one.
        landmarks, visible: K×2, and K from 0 to 1; empty where the network has no such task.
        pose: roll, pitch, yaw in degrees; None where it has no such task.
        attribute: how likely it is, from 0 to 1; None where it has no such task.
    """

    box: tuple[float, float, float, float]
    score: float
    landmarks: np.ndarray
    visible: np.ndarray
    pose: np.ndarray | None
    attribute: float | None

    def to_json(self) -> dict[str, Any]:
        """For `halfmask predict`."""
        body: dict[str, Any] = {"box": [round(float(side), 2) for side in self.box], "score": round(self.score, 4)}
        if len(self.landmarks):
            seen = self.visible if len(self.visible) else np.ones(len(self.landmarks))
            body["landmarks"] = [
                {"x": round(float(x), 2), "y": round(float(y), 2), "visible": round(float(v), 3)}
                for (x, y), v in zip(self.landmarks, seen, strict=True)
            ]
        if self.pose is not None:
            body["pose"] = dict(zip(("roll", "pitch", "yaw"), (round(float(angle), 2) for angle in self.pose), strict=True))
        if self.attribute is not None:
            body["attribute"] = round(self.attribute, 4)
        return body


def find_faces(
    model: HyperFace,
    image: np.ndarray,
    device: torch.device | str = "cpu",
    box: tuple[float, float, float, float] | None = None,
) -> list[Found]:
    """All faces of a photograph, the surest first.

    Args:
        image: H×W×3 bytes, red first.
        box: look at this region alone, cut to the photograph, and take it to show a face.
    """
    if box is not None:
        height, width = image.shape[:2]
        problem = box_problem(box, (height, width))
        if problem:
            raise HalfmaskError(f"{','.join(f'{side:g}' for side in box)} is {problem}: expected one inside its {width}×{height} pixels")
        boxes = _inside(np.array([box], float), (height, width))
        return [_found(model, boxes[0], _look(model, image, boxes, device), 0)]
    boxes = _plausible(np.concatenate([propose(image).astype(float), _squares(image.shape[:2])]))
    if not len(boxes):
        return []
    scores = _look(model, image, boxes, device)["score"]
    likely = np.argsort(-scores, kind="stable")[:_LOOKED_AT_AGAIN]
    boxes = boxes[likely[scores[likely] > _SURE]]
    if not len(boxes):
        return []
    said = _look(model, image, boxes, device)
    if "landmarks" in said:
        fitted = _fitted(said["landmarks"], image.shape[:2])
        kept = (fitted[:, 2:] >= _SMALLEST).all(1)
        boxes = fitted[kept] if kept.any() else boxes
        said = _look(model, image, boxes, device)
    return _one_of_many(model, boxes, said)


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How much of both a box shares with each of the others."""
    shared = _shared(box, others)
    return shared / np.maximum(box[2] * box[3] + others[:, 2:].prod(1) - shared, 1e-9)


def _shared(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[:2] + box[2:], others[:, :2] + others[:, 2:])
    return np.clip(high - low, 0, None).prod(1)


def _squares(size: tuple[int, int]) -> np.ndarray:
    """Squares of some sizes all over a photograph: selective search leaves out a face that looks like what is behind it."""
    found = []
    for share in _SHARES:
        side = share * min(size)
        ys, xs = (np.linspace(0, length - side, max(2, round(4 * (length - side) / side) + 1)) for length in size)
        found += [(x, y, side, side) for y in ys for x in xs]
    return np.array(found)


def _plausible(boxes: np.ndarray) -> np.ndarray:
    sides = boxes[:, 2:]
    fits = (sides.min(1) >= _SMALLEST) & (sides.max(1) <= _LONGEST * sides.min(1))
    return boxes[fits]


@torch.no_grad()
def _look(model: HyperFace, image: np.ndarray, boxes: np.ndarray, device: torch.device | str) -> dict[str, np.ndarray]:
    """What the network says of some regions, in pixels of the photograph; what is cut are whole pixels, as in training."""
    side, whole = model.shape.input_size, _whole(boxes, image.shape[:2])
    parts = []
    for start in range(0, len(whole), 128):
        pixels = np.stack([cut(image, box, side) for box in whole[start : start + 128].tolist()])
        parts.append({name: value.float().cpu().numpy() for name, value in model(torch.from_numpy(pixels).to(device)).items()})
    said = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    said["score"] = expit(said["detection"]) if "detection" in said else np.ones(len(boxes))
    if "landmarks" in said:
        said["landmarks"] = out_of_region(said["landmarks"], whole)
    return said


def _inside(boxes: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """What of boxes lies in a photograph of so many rows and columns; one that has nothing there has no area."""
    edges = np.array([size[1], size[0]], float)
    low, high = np.clip(boxes[:, :2], 0, edges), np.clip(boxes[:, :2] + boxes[:, 2:], 0, edges)
    return np.concatenate([low, high - low], 1)


def _whole(boxes: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Boxes in whole pixels of the photograph, one at least: slices have no halves, and a region without pixels cannot be looked at."""
    edges = np.array([size[1], size[0]])
    low = np.clip(np.round(boxes[:, :2]), 0, edges - 1).astype(int)
    high = np.clip(np.round(boxes[:, :2] + boxes[:, 2:]), low + 1, edges).astype(int)
    return np.concatenate([low, high - low], 1)


def _fitted(landmarks: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The boxes of faces with these landmarks: as high again above the brows as a forehead is."""
    low, high = landmarks.min(1), landmarks.max(1)
    sides = high - low
    low = low - sides * np.array([0.05, 0.25])
    high = high + sides * 0.05
    return _inside(np.concatenate([low, high - low], 1), size)


def _one_of_many(model: HyperFace, boxes: np.ndarray, said: dict[str, np.ndarray]) -> list[Found]:
    """One face of all regions that overlap; the face that most regions speak for first, and none inside or round one that was found."""
    left = np.flatnonzero(said["score"] > _SURE)
    faces = []
    while len(left):
        alike = np.stack([overlap(boxes[place], boxes[left]) > _SAME_FACE for place in left])
        together = left[alike[np.argmax(alike @ said["score"][left])]]
        merged = {name: np.median(values[together], axis=0)[None] for name, values in said.items()}
        merged["score"] = said["score"][together].max(keepdims=True)
        box = np.median(boxes[together], axis=0)
        if merged["score"][0] >= _CERTAIN:
            faces.append(_found(model, box, merged, 0))
        smaller = np.minimum(box[2] * box[3], boxes[left][:, 2:].prod(1))
        same = np.isin(left, together) | (_shared(box, boxes[left]) > _INSIDE * smaller)
        left = left[~same]
    return sorted(faces, key=lambda face: -face.score)


def _found(model: HyperFace, box: np.ndarray, said: dict[str, np.ndarray], place: int) -> Found:
    nothing = np.zeros((0, 2))
    return Found(
        box=(float(box[0]), float(box[1]), float(box[2]), float(box[3])),
        score=float(said["score"][place]),
        landmarks=said["landmarks"][place] if "landmarks" in model.subtasks else nothing,
        visible=np.clip(said["visibility"][place], 0, 1) if "visibility" in model.subtasks else nothing[:, 0],
        pose=np.rad2deg(said["pose"][place]) if "pose" in model.subtasks else None,
        attribute=float(expit(said["attribute"][place])) if "attribute" in model.subtasks else None,
    )
