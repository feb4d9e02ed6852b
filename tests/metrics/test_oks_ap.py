"""OKS-AP: COCO's own numbers, whichever way they are asked for."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO as CocoIndex
from pycocotools.cocoeval import COCOeval

from halfmask.data.skeleton import COCO, LSP
from halfmask.errors import HalfmaskError
from halfmask.metrics.oks_ap import NAMES, average_precision, keypoint_results, similarity, suppress


def pose(left: float = 0.0, size: float = 100.0) -> np.ndarray:
    steps = np.arange(17)
    return np.column_stack([left + steps * 5 % 17 / 16 * size / 2, steps / 16 * size])


def truth(number: int, image: int, points: np.ndarray, **changes) -> dict:
    flat = np.column_stack([points, np.full(17, 2)]).ravel().tolist()
    left, top = points.min(0)
    width, height = points.max(0) - points.min(0)
    body = {"id": number, "image_id": image, "category_id": 1, "iscrowd": 0, "num_keypoints": 17, "keypoints": flat}
    return body | {"bbox": [left, top, width, height], "area": float(width * height)} | changes


def results(*poses: tuple[int, np.ndarray, float]) -> list[dict]:
    images, points, scores = zip(*poses, strict=True)
    return keypoint_results(np.array(points), np.ones((len(points), 17)), np.array(images), np.array(scores))


def test_perfect_poses_score_a_hundred_and_poses_elsewhere_nothing() -> None:
    annotations = [truth(1, 7, pose()), truth(2, 8, pose(30))]
    right = average_precision([7, 8], annotations, results((7, pose(), 1.0), (8, pose(30), 1.0)))
    assert list(right) == list(NAMES) and (right["ap"], right["ar"]) == pytest.approx((100, 100))
    assert math.isnan(right["ap-l"]) and right["ap-m"] == pytest.approx(100), "5,000 square pixels are a medium person"
    wrong = average_precision([7, 8], annotations, results((7, pose(5000), 1.0), (8, pose(5000), 1.0)))
    assert wrong["ap"] == wrong["ar"] == 0


def test_one_found_of_two_is_half_the_recall() -> None:
    annotations = [truth(1, 7, pose()), truth(2, 8, pose())]
    scores = average_precision([7, 8], annotations, results((7, pose(), 1.0)))
    assert scores["ar"] == pytest.approx(50) and 49 < scores["ap"] < 51.5


def test_a_known_similarity_passes_the_thresholds_below_it() -> None:
    """All joints moved so that OKS is 0.72 exactly: right at .50 … .70, five of ten thresholds."""
    area = 4000.0
    sigmas = np.array(COCO.oks_sigmas)
    moved = pose()
    moved[:, 0] += np.sqrt(-math.log(0.72) * 2 * area * (2 * sigmas) ** 2)
    scores = average_precision([7], [truth(1, 7, pose(), area=area)], results((7, moved, 1.0)))
    assert scores["ap"] == pytest.approx(50) and scores["ap50"] == pytest.approx(100) and scores["ap75"] == 0


def test_crowds_and_people_without_joints_are_ignored_not_missed() -> None:
    nobody = truth(2, 7, pose(300), keypoints=[0] * 51, num_keypoints=0)
    crowd = truth(3, 7, pose(600), iscrowd=1)
    scores = average_precision([7], [truth(1, 7, pose()), nobody, crowd], results((7, pose(), 1.0)))
    assert (scores["ap"], scores["ar"]) == pytest.approx((100, 100))


def test_a_persons_score_is_the_boxs_times_that_of_sure_joints() -> None:
    sure = np.array([[0.9, 0.5] + [0.1] * 15, [0.1] * 17])
    first, second = keypoint_results(np.stack([pose()] * 2), sure, np.array([3, 4]), np.array([0.5, 0.5]))
    assert first["score"] == pytest.approx(0.5 * 0.7) and second["score"] == 0 and first["image_id"] == 3


def test_a_pose_that_is_not_finite_is_wrong_alone() -> None:
    broken = pose()
    broken[3] = math.nan
    annotations = [truth(1, 7, pose()), truth(2, 8, pose())]
    scores = average_precision([7, 8], annotations, results((7, broken, 0.5), (8, pose(), 1.0)))
    assert scores["ar"] > 50 - 1e-6 and all(math.isfinite(scores[name]) for name in ("ap", "ap50", "ar"))


def test_suppression_drops_the_weaker_of_two_like_poses() -> None:
    near, other_image = pose(0.5), pose()
    found = results((7, pose(), 0.6), (7, near, 0.9), (7, pose(60), 0.5), (8, other_image, 0.1))
    kept = suppress(found, COCO.oks_sigmas)
    assert [one["score"] for one in kept] == [0.9, 0.5, 0.1]
    assert len(suppress(found, COCO.oks_sigmas, threshold=1.0)) == 4
    pair = np.array([one["keypoints"] for one in found]).reshape(4, 17, 3)
    assert similarity(pair[0], pair[:1], COCO.oks_sigmas)[0] == pytest.approx(1)
    assert similarity(pair[0], pair[1:2], COCO.oks_sigmas)[0] > 0.9 > similarity(pair[0], pair[2:3], COCO.oks_sigmas)[0]


def test_nothing_found_and_nothing_to_find() -> None:
    assert set(average_precision([7], [truth(1, 7, pose())], []).values()) == {0.0}
    with pytest.raises(HalfmaskError, match="no images to score"):
        average_precision([], [], [])
    with pytest.raises(HalfmaskError, match="lsp skeleton has no OKS constants"):
        average_precision([7], [], [], LSP)


def test_what_is_given_stays_as_it_is_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    annotations, found = [truth(1, 7, pose())], results((7, pose(), 1.0))
    before = copy.deepcopy((annotations, found))
    average_precision([7], annotations, found)
    assert (annotations, found) == before and capsys.readouterr().out == ""


def straight_from_pycocotools(path: Path, found: list[dict]) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()):
        index = CocoIndex(str(path))
        evaluation = COCOeval(index, index.loadRes(copy.deepcopy(found)), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [100 * value for value in evaluation.stats]


@pytest.mark.parametrize("name", ["coco_mini/annotations/person_keypoints_val2017.json", "format_samples/coco/test_coco.json"])
@pytest.mark.parametrize("noise", [0.0, 6.0, 25.0])
def test_the_numbers_are_pycocotools_own_on_real_annotations(shared_data, name: str, noise: float) -> None:
    path = shared_data(name.split("/")[0]).parent / name
    body = json.loads(path.read_text())
    people = [one for one in body["annotations"] if one["num_keypoints"]]
    rng = np.random.default_rng(0)
    points = np.array([one["keypoints"] for one in people], float).reshape(-1, 17, 3)[..., :2]
    points = points + rng.normal(0, 1, points.shape) * noise
    images = np.array([one["image_id"] for one in people])
    found = keypoint_results(points, rng.uniform(0.3, 1, points.shape[:2]), images)
    ours = average_precision([image["id"] for image in body["images"]], body["annotations"], found)
    np.testing.assert_allclose(list(ours.values()), straight_from_pycocotools(path, found), rtol=1e-12)
    assert ours["ap"] == pytest.approx(100) if noise == 0 else 0 < ours["ap"] < 95
