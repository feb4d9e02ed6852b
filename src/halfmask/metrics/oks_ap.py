"""Average precision and recall by object keypoint similarity (OKS), as COCO scores poses.

The scoring itself is COCO's own code (`pycocotools`), so that the ten numbers can be set beside published ones. What comes before is
custom too: a person's score is the detector's confidence in the box times the mean confidence of the joints the model is sure of, and
where a detector found somebody twice, the pose that nearly repeats a better one is dropped.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from pycocotools.coco import COCO as CocoIndex
from pycocotools.cocoeval import COCOeval

from halfmask.data.skeleton import COCO, Skeleton
from halfmask.errors import HalfmaskError

NAMES = ("ap", "ap50", "ap75", "ap-m", "ap-l", "ar", "ar50", "ar75", "ar-m", "ar-l")
# Joints below this confidence say nothing about whether the person is there.
_SURE = 0.2
_SAME_PERSON = 0.9


def keypoint_results(
    joints: np.ndarray, confidences: np.ndarray, image_ids: np.ndarray, box_scores: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Poses in image pixels (N×J×2) as COCO's result records."""
    boxes = np.ones(len(joints)) if box_scores is None else np.asarray(box_scores, np.float64)
    results = []
    for points, sure, image, box in zip(joints, confidences, image_ids, boxes, strict=True):
        certain = sure[sure > _SURE]
        score = float(box * certain.mean()) if len(certain) else 0.0
        # COCO's code would spread a NaN over the whole score; far away is as wrong, and stays with this person.
        placed = np.where(np.isfinite(points), points, -1e6)
        flat = np.column_stack([placed, sure]).ravel()
        results.append({"image_id": int(image), "category_id": 1, "keypoints": [float(value) for value in flat], "score": score})
    return results


def suppress(results: list[dict[str, Any]], sigmas: Sequence[float], threshold: float = _SAME_PERSON) -> list[dict[str, Any]]:
    """Drop poses that nearly repeat a better one on the same image: OKS non-maximum suppression."""
    by_image: dict[int, list[int]] = {}
    for place, result in enumerate(results):
        by_image.setdefault(result["image_id"], []).append(place)
    kept: list[int] = []
    for places in by_image.values():
        points = np.array([results[place]["keypoints"] for place in places]).reshape(len(places), -1, 3)
        waiting = sorted(range(len(places)), key=lambda i: -results[places[i]]["score"])
        while waiting:
            best = waiting.pop(0)
            kept.append(places[best])
            others = np.array(waiting, dtype=int)
            alike = similarity(points[best], points[others], sigmas)
            waiting = [int(i) for i in others[alike <= threshold]]
    return [results[place] for place in sorted(kept)]


def similarity(pose: np.ndarray, others: np.ndarray, sigmas: Sequence[float]) -> np.ndarray:
    """OKS between one predicted pose (J×3) and others (N×J×3), with the boxes round them for their sizes."""

    def area(points: np.ndarray) -> np.ndarray:
        return np.prod(points[..., :2].max(-2) - points[..., :2].min(-2), axis=-1)

    variances = (2 * np.asarray(sigmas, np.float64)) ** 2
    squared = ((others[..., :2] - pose[None, :, :2]) ** 2).sum(-1)
    size = (area(pose) + area(others)) / 2 + np.spacing(1)
    return np.exp(-squared / variances / size[:, None] / 2).mean(-1)


def average_precision(
    images: Sequence[int], annotations: Sequence[dict[str, Any]], results: list[dict[str, Any]], skeleton: Skeleton = COCO
) -> dict[str, float]:
    """The ten numbers, in percent. NaN for a size of person that does not occur.

    Args:
        images: every image that is scored, found people or not.
        annotations: all annotations of those images: people without joints and crowds are needed, to be ignored.
        results: poses in COCO's form, from `keypoint_results`.
    """
    if not skeleton.oks_sigmas:
        raise HalfmaskError(f"the {skeleton.name} skeleton has no OKS constants: score it by PCK, or map it to COCO's joints first")
    if not images:
        raise HalfmaskError("there are no images to score; expected at least one: check which split the evaluation reads")
    # COCO's code prints as it goes, and adds fields to what it is given.
    with contextlib.redirect_stdout(io.StringIO()):
        truth = CocoIndex()
        truth.dataset = {
            "info": {},
            "images": [{"id": int(image)} for image in images],
            "annotations": [dict(one) for one in annotations],
            "categories": [{"id": 1, "name": "person", "keypoints": list(skeleton.names)}],
        }
        truth.createIndex()
        if not results:
            return dict.fromkeys(NAMES, 0.0)
        found = truth.loadRes([dict(one) for one in results])
        evaluation = COCOeval(truth, found, "keypoints")
        evaluation.params.kpt_oks_sigmas = np.asarray(skeleton.oks_sigmas)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    values = [float(value) for value in evaluation.stats[: len(NAMES)]]
    # -1 is COCO's word for "there was nobody to find".
    return {name: 100.0 * value if value >= 0 else float("nan") for name, value in zip(NAMES, values, strict=True)}
