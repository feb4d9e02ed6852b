"""COCO: people, crowds, boxes, detections, and files of other makes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from halfmask.data.coco import detect_coco, read_coco
from halfmask.data.people import CLAMPED, CROWD, NO_AREA, NO_JOINT, OUTSIDE
from halfmask.errors import HalfmaskError


def test_people_splits_and_images(coco_folder, person) -> None:
    read = read_coco(coco_folder())
    assert {name: (len(part.images), len(part.people)) for name, part in read.parts.items()} == {"train": (3, 4), "val": (2, 2)}
    first, second, third, _ = read.parts["train"].people
    assert first.image_id == second.image_id == 11 != third.image_id
    assert first.path.is_file() and first.path.parent.name == "train2017" and first.annotation_id == 1 and first.area == 2000
    np.testing.assert_allclose(first.joints[:, :2], person(17))


@pytest.mark.parametrize(
    "changes, reason, kept",
    [
        ({"iscrowd": 1}, CROWD, 0),
        ({"keypoints": [0.0] * 51}, NO_JOINT, 0),
        ({"bbox": [10, 10, 0, 50]}, NO_AREA, 0),
        ({"bbox": [500, 10, 20, 50]}, OUTSIDE, 0),
        ({"bbox": [-20, 15, 85, 90]}, CLAMPED, 1),
        ({"bbox": [-1, 15, 66, 90]}, None, 1),
    ],
)
def test_who_is_left_out_and_why(coco_folder, annotation, changes, reason, kept) -> None:
    part = read_coco(coco_folder([annotation(1, 11, **changes)])).parts["train"]
    assert [one.reason for one in part.left_out] == ([reason] if reason else [])
    assert len(part.people) == kept and len(part.images) == 3
    if kept:
        assert part.people[0].box == (0.0, 15.0, 65.0, 90.0)


def test_detected_boxes_replace_annotated_ones_where_they_are_of_the_images(coco_folder) -> None:
    folder = coco_folder()
    found = [{"image_id": 21, "category_id": 1, "bbox": [10.0, 10.0, 40.0, 80.0], "score": 0.9}]
    found += [{"image_id": 21, "category_id": 3, "bbox": [0.0, 0.0, 9.0, 9.0], "score": 0.9}]
    (folder / "boxes.json").write_text(json.dumps(found))
    read = read_coco(folder, boxes="boxes.json")
    (one,) = read.parts["val"].people
    assert one.detected and one.score == 0.9 and one.image_id == 21 and not one.joints.any()
    assert len(read.parts["train"].people) == 4 and not any(someone.detected for someone in read.parts["train"].people)
    truth = read.parts["val"].truth
    assert truth is not None and sum(map(len, truth.values())) == 2, "those whom the detector missed are still to be found"
    (folder / "boxes.json").write_text('{"boxes": 3}')
    with pytest.raises(HalfmaskError, match=r"boxes\.json is an object of 1 field: expected a list of detections"):
        read_coco(folder, boxes="boxes.json")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_id": 99}, "1 of 1 annotations cannot be used: 1 × 'image_id' is of no image in the file"),
        ({"keypoints": [1.0] * 42}, "'keypoints' is a list of 42 numbers, expected 51 finite numbers"),
        ({"bbox": [1, 2]}, "'bbox' is a list of 2 numbers, expected x, y, width and height"),
        ({"image_id": [11]}, "'image_id' is of no image"),
        ({"id": "one"}, "'id' is a text, expected a whole number"),
        ({"area": None}, "'area' is nothing, expected a finite number"),
    ],
)
def test_annotations_that_are_refused(coco_folder, annotation, changes, message) -> None:
    with pytest.raises(HalfmaskError, match=message):
        read_coco(coco_folder([annotation(1, 11) | changes]))


def test_files_of_other_makes(coco_folder, tmp_path) -> None:
    folder = coco_folder()
    path = folder / "annotations/person_keypoints_train2017.json"
    body = json.loads(path.read_text())
    other = folder / "annotations/other_train.json"
    other.write_text(json.dumps(body | {"categories": [{"keypoints": ["tail", "left_paw"]}]}))
    assert set(read_coco(folder).parts) == {"train", "val"}
    assert "other_train.json: found categories without COCO's keypoints" in read_coco(folder).passed_over[0]
    with pytest.raises(HalfmaskError, match=r"other_train\.json: found categories without COCO's keypoints"):
        read_coco(folder, ("annotations/other_train.json",))
    other.write_text(json.dumps(body))
    with pytest.raises(HalfmaskError, match=r"both hold the split 'train': choose with data\.annotations"):
        read_coco(folder)
    assert set(read_coco(folder, ("annotations/other_train.json",)).parts) == {"train"}
    other.write_text("{")
    assert "not valid JSON" in read_coco(folder).passed_over[0]
    (tmp_path / "empty").mkdir()
    assert not detect_coco(tmp_path / "empty")
    with pytest.raises(HalfmaskError, match="holds no COCO keypoint annotations"):
        read_coco(tmp_path / "empty")


def test_an_annotation_does_not_lead_out_of_its_dataset(coco_folder) -> None:
    folder = coco_folder()
    path = folder / "annotations/person_keypoints_train2017.json"
    path.write_text(path.read_text().replace("000000000011.jpg", "../../secret.jpg"))
    with pytest.raises(HalfmaskError, match="names an image outside the dataset folder: expected a path inside"):
        read_coco(folder)


def test_the_real_samples(shared_data) -> None:
    parts = read_coco(shared_data("coco_mini")).parts
    assert {name: (len(part.images), len(part.people)) for name, part in parts.items()} == {"train": (28, 86), "val": (32, 68)}
    assert all(one.path.is_file() for part in parts.values() for one in part.people)
    sample = shared_data("format_samples/coco")
    assert len(read_coco(sample).parts["test"].people) == 12
    assert len(read_coco(sample, boxes="test_coco_det_AP_H_56.json").parts["test"].people) == 118
