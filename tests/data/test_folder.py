from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.folder import folder_records
from halfmask.errors import HalfmaskError

SIZE = (64, 48)


def record(image: str = "a.png", split: str = "private", **changes: object) -> dict:
    joints = [[20.0 + i, 30.0 + 2 * i, 2] for i in range(16)]
    body = {"image": image, "split": split, "box": [10, 20, 40, 50], "joints": joints, "head_box": [20, 20, 30, 32]}
    return body | changes


def write(folder: Path, *records: dict, **pictures: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "annotations.json").write_text(json.dumps({"records": list(records)}))
    grey = np.full((100, 80, 3), 90, np.uint8)
    for name in {one["image"] for one in records if isinstance(one.get("image"), str)}:
        cv2.imwrite(str(folder / name), pictures.get(Path(name).stem, grey))
    return folder


def test_joints_move_with_the_pixels(tmp_path) -> None:
    picture = np.zeros((100, 80, 3), np.uint8)
    cv2.circle(picture, (33, 47), 2, (255, 255, 255), -1)
    joints = [[33.0, 47.0, 2]] * 16
    people = folder_records(write(tmp_path / "d", record(joints=joints), a=picture), SIZE)["private"]
    assert people.images.shape == (1, 3, *SIZE)
    y, x = np.argwhere(people.images[0, 0] > 180).mean(0)
    np.testing.assert_allclose(people.joints[0, 0], [x, y], atol=0.5)


def test_colours_are_red_green_blue(tmp_path) -> None:
    red = np.zeros((100, 80, 3), np.uint8)
    red[..., 2] = 255
    people = folder_records(write(tmp_path / "d", record(), a=red), SIZE)["private"]
    assert people.images[0, 0].mean() > 200 > 10 > people.images[0, 2].mean()


def test_a_joint_outside_the_crop_or_without_label_is_not_labelled(tmp_path) -> None:
    joints = record()["joints"]
    joints[0], joints[1] = [2000.0, 3.0, 2], [20.0, 30.0, 0]
    joints[2] = [20.0, 30.0, 1]
    people = folder_records(write(tmp_path / "d", record(joints=joints)), SIZE)["private"]
    assert people.labelled[0, :3].tolist() == [False, False, True]


def test_splits_images_and_subjects(tmp_path) -> None:
    folder = write(
        tmp_path / "d",
        record("a.png", subject="x"),
        record("a.png", subject="y"),
        record("b.png", subject="x"),
        record("c.png", "test", subject="z"),
    )
    parts = folder_records(folder, SIZE)
    assert {split: len(part) for split, part in parts.items()} == {"private": 3, "test": 1}
    private = parts["private"]
    assert private.image_ids[0] == private.image_ids[1] != private.image_ids[2]
    assert private.subjects is not None
    assert private.subjects[0] == private.subjects[2] != private.subjects[1]
    assert parts["test"].key != private.key


def test_only_the_splits_asked_for_are_opened(tmp_path) -> None:
    folder = write(tmp_path / "d", record("a.png"), record("b.png", "test"))
    (folder / "a.png").write_bytes(b"unreadable")
    assert list(folder_records(folder, SIZE, ("test",))) == ["test"]
    with pytest.raises(HalfmaskError, match="an image file that cannot be read"):
        folder_records(folder, SIZE)


def test_a_changed_picture_is_read_again(tmp_path) -> None:
    folder = write(tmp_path / "d", record())
    before = folder_records(folder, SIZE)["private"]
    cv2.imwrite(str(folder / "a.png"), np.full((100, 80, 3), 200, np.uint8))
    after = folder_records(folder, SIZE)["private"]
    assert before.key != after.key and after.images.mean() > before.images.mean()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"split": "train"}, "'split' is another word than private, public, test"),
        ({"split": None}, "no valid 'split': found nothing, expected a text"),
        ({"box": [0, 0, 5]}, "'box' is a list of 3 numbers, expected 4 finite numbers"),
        ({"box": [0, 0, 0, 5]}, "has no area"),
        ({"box": [0, 0, float("nan"), 5]}, "'box' is a list of 4 numbers, not all of them finite, expected 4"),
        ({"head_box": ["a", 0, 1, 2]}, "'head_box' is a list of 4 things, expected 4 finite numbers"),
        ({"joints": [[0, 0, 2]]}, "'joints' is a list of 1 list, expected 16×3 finite numbers"),
        ({"image": 5}, "no valid 'image': found a number"),
    ],
)
def test_records_that_are_refused(tmp_path, changes, message) -> None:
    with pytest.raises(HalfmaskError, match=f"annotations.json: 1 of 2 records cannot be used: 1 × .*{message}"):
        folder_records(write(tmp_path / "d", record(), record(**changes)), SIZE)


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"records": [', "not valid JSON"),
        ("[]", 'no list "records"'),
        ('{"records": {}}', 'no list "records"'),
        ('{"records": []}', "the dataset is empty"),
        ('{"records": [3]}', "found a number, expected an object"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_annotations_that_are_refused(tmp_path, text, message) -> None:
    (tmp_path / "annotations.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HalfmaskError, match=message):
        folder_records(tmp_path)


def test_folders_that_are_refused(tmp_path) -> None:
    with pytest.raises(HalfmaskError, match="no folder at"):
        folder_records(tmp_path / "none")
    with pytest.raises(HalfmaskError, match=r"no annotations\.json"):
        folder_records(tmp_path)
