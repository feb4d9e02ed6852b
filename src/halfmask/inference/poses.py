"""The people of a picture: each box looked at by a pose network, all of them drawn on one picture, and told in COCO's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np

from halfmask.data.crops import box_problem
from halfmask.data.images import crop_picture, to_image
from halfmask.data.people import Box
from halfmask.data.skeleton import Skeleton
from halfmask.errors import HalfmaskError
from halfmask.report.overlay import draw_skeleton

# Joints that are likelier wrong than right are said to be guesses.
LIKELY = 0.5
# With no joint of anybody likelier than this, something is not as it should be.
LOW = 0.3
_AT_ONCE = 32


class PoseSeer(Protocol):
    """A pose network, wherever it runs."""

    @property
    def words(self) -> str:
        """What it is, in a line."""

    @property
    def skeleton(self) -> Skeleton:
        """What its joints are."""

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of a crop."""

    @property
    def calibrated(self) -> bool:
        """Whether its scores are chances."""

    def __call__(self, crops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Joints in pixels (N×J×2) and scores (N×J) of crops given as bytes (N×3×H×W)."""


@dataclass(frozen=True)
class Posed:
    """A person on a picture.

    Attributes:
        box: where they were looked for; None if the whole picture was taken for their crop.
        joints: J×2 in pixels of the picture.
        scores: of each joint.
        box_score: how sure the detector was; None for a box that was given.
    """

    box: Box | None
    joints: np.ndarray
    scores: np.ndarray
    box_score: float | None = None

    @property
    def score(self) -> float:
        """The mean of the joints': where scores are chances, the share of joints that is expected to be right."""
        return float(self.scores.mean())


def place_people(
    network: PoseSeer, image: np.ndarray, boxes: Sequence[Box | None], box_scores: Sequence[float] | None = None
) -> list[Posed]:
    """Whoever is in each box; None is the whole picture, taken to be one person's crop. A box outside of the picture is refused."""
    for box in boxes:
        problem = None if box is None else box_problem(box, image.shape[:2])
        if problem:
            rows, columns = image.shape[:2]
            assert box is not None
            told = ", ".join(f"{value:g}" for value in box)
            raise HalfmaskError(
                f"the box {told} is {problem.replace('a box ', '')}, which has {columns}×{rows} pixels: expected x, y, width and height of "
                "a part of the picture as it is displayed"
            )
    people: list[Posed] = []
    for start in range(0, len(boxes), _AT_ONCE):
        some = boxes[start : start + _AT_ONCE]
        crops, maps = zip(*(crop_picture(image, box, network.input_size) for box in some), strict=True)
        joints, scores = network(np.ascontiguousarray(np.stack(crops).transpose(0, 3, 1, 2)))
        for place, (box, points, sure, transform) in enumerate(zip(some, joints, scores, maps, strict=True), start):
            found = None if box_scores is None else float(box_scores[place])
            people.append(Posed(box, to_image(points, transform), np.asarray(sure, np.float64), found))
    return people


def draw_people(image: np.ndarray, people: Sequence[Posed], skeleton: Skeleton) -> np.ndarray:
    """All skeletons on one picture, each with lines as thick as the person is large, and boxes that were found or given."""
    picture = np.ascontiguousarray(image).copy()
    for one in people:
        side = max(picture.shape[:2]) if one.box is None else max(one.box[2:])
        if one.box is not None:
            x, y, width, height = (round(value) for value in one.box)
            cv2.rectangle(picture, (x, y), (x + width, y + height), (255, 255, 255), max(1, round(side / 300)), cv2.LINE_AA)
        picture = draw_skeleton(picture, one.joints, skeleton=skeleton, thickness=max(1, round(side / 90)))
    return picture


def coco_body(name: str, size: tuple[int, int], people: Sequence[Posed], network: PoseSeer, image_id: int = 1) -> dict[str, Any]:
    """One picture in COCO's form.

    Of each joint x, y and 2, or 1 where it is likelier wrong than right (where scores are chances); scores of joints stand beside them.

    Args:
        size: width and height.
    """
    skeleton = network.skeleton
    annotations = []
    for number, one in enumerate(people, 1):
        seen = np.where(one.scores >= LIKELY, 2, 1) if network.calibrated else np.full(len(one.scores), 2)
        flat = [
            value for (x, y), flag in zip(one.joints, seen, strict=True) for value in (round(float(x), 2), round(float(y), 2), int(flag))
        ]
        box = (0.0, 0.0, float(size[0]), float(size[1])) if one.box is None else one.box
        annotations.append(
            {
                "id": number,
                "image_id": image_id,
                "category_id": 1,
                "bbox": [round(float(value), 2) for value in box],
                "area": round(float(box[2] * box[3]), 1),
                "iscrowd": 0,
                "keypoints": flat,
                "num_keypoints": len(one.scores),
                "keypoint_scores": [round(float(value), 4) for value in one.scores],
                "score": round(one.score, 4),
                "box_score": None if one.box_score is None else round(one.box_score, 4),
            }
        )
    bones = [[a + 1, b + 1] for a, b in skeleton.edges]
    return {
        "info": {"description": f"poses by {network.words}", "scores": "chances" if network.calibrated else "uncalibrated"},
        "images": [{"id": image_id, "file_name": name, "width": size[0], "height": size[1]}],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person", "keypoints": list(skeleton.names), "skeleton": bones}],
    }
