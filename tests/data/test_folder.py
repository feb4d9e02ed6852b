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
    body = {"image": image, "split": split, "box": [10, 20, 40, 50], "joints": joints, "head_box": [20, 20, 10, 12]}
    return body | changes


def write(folder: Path, *records: dict, version: object = None, **pictures: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    said = {} if version is None else {"version": version}
    (folder / "annotations.json").write_text(json.dumps(said | {"records": list(records)}))
    grey = np.full((100, 80, 3), 90, np.uint8)
    for name in {one["image"] for one in records if isinstance(one.get("image"), str) and not one["image"].startswith(("/", ".."))}:
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
        record("a.png", subject="y", box=[11, 20, 40, 50]),
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
        ({"image": "../a.png"}, "'image' is no path inside the folder"),
        ({"image": "/etc/a.png"}, "'image' is no path inside the folder"),
        ({"joints": [[20, 30, 7]] * 16}, r"'joints' has a visibility that is not 0 \(not labelled\), 1 \(hidden\) or 2"),
        ({"box": ["10", 20, 40, 50]}, "'box' has numbers written as texts, expected 4 finite numbers"),
        ({"joints": [["20", "30", 2]] * 16}, "'joints' has numbers written as texts, expected 16×3 finite numbers"),
        ({"head_box": [20, 20, -10, 12]}, "'head_box' has no area: expected x, y and a width and a height above 0"),
        ({"head_box": None}, "'head_box' is nothing, expected 4 finite numbers"),
        ({"subject": None}, "'subject' is nothing, expected a text or a whole number"),
        ({"subject": ["x"]}, "'subject' is a list of 1 text, expected a text or a whole number"),
        ({"subject": True}, "'subject' is a truth value"),
        ({}, "the same image, box and joints as an earlier record: one person would count as two"),
    ],
)
def test_records_that_are_refused(tmp_path, changes, message) -> None:
    with pytest.raises(HalfmaskError, match=f"annotations.json: 1 of 2 records cannot be used: 1 × .*{message}"):
        folder_records(write(tmp_path / "d", record(), record(**changes)), SIZE)


def test_everything_wrong_is_told_at_once(tmp_path) -> None:
    spoilt = record("b.png", "train", box=[0, 0, 0, 5], joints=[[1, 2, 3]] * 16, subject=None)
    with pytest.raises(HalfmaskError) as caught:
        folder_records(write(tmp_path / "d", record(), spoilt, record("c.png", head_box=[1, 2])), SIZE)
    message = str(caught.value)
    assert "2 of 3 records cannot be used" in message
    for words in (
        "'split' is another word",
        "'box' has no area",
        "a visibility that is not",
        "'subject' is nothing",
        "'head_box' is a list of 2",
    ):
        assert words in message
    assert len(caught.value.details) == 5 and "record 1, image 'b.png'" in caught.value.details[0]


def placed(head: tuple[float, float, float, float], at: tuple[float, float] = (200, 100), **changes: object) -> dict:
    """Somebody of 60×160 pixels whose head is 20 pixels wide, 24 high, with its middle at 230, 112 if they stand at 200, 100."""
    joints = [[at[0] + 30.0, at[1] + 40.0 + 6 * i, 2] for i in range(16)]
    joints[8], joints[9] = [at[0] + 30, at[1] + 24, 2], [at[0] + 30, at[1], 2]
    return record(box=[*at, 60, 160], joints=joints, head_box=list(head)) | changes


def test_a_head_box_is_x_y_width_and_height_and_optional(tmp_path) -> None:
    wide = np.full((300, 320, 3), 90, np.uint8)
    folder = write(tmp_path / "d", placed((220, 100, 20, 24)), a=wide)
    people = folder_records(folder, (256, 192))["private"]
    (x1, y1, x2, y2), scale = people.head_boxes[0], people.head_boxes[0, 2] - people.head_boxes[0, 0]
    assert x2 > x1 and (y2 - y1) / scale == pytest.approx(24 / 20)
    # Neck and top of the head are on its middle line, at its lower and upper edge.
    np.testing.assert_allclose(people.joints[0, 9], [(x1 + x2) / 2, y1], atol=1)
    np.testing.assert_allclose(people.joints[0, 8], [(x1 + x2) / 2, y2], atol=1)
    bare = {name: value for name, value in placed((0, 0, 1, 1)).items() if name != "head_box"}
    assert np.isnan(folder_records(write(tmp_path / "e", bare, a=wide), (256, 192))["private"].head_boxes).all()


@pytest.mark.parametrize("version", [None, 2])
def test_a_head_box_of_two_corners_is_refused(tmp_path, version) -> None:
    wrong = "'head_box' is where x1, y1, x2, y2 would be on the head: expected x, y, width, height"
    with pytest.raises(HalfmaskError, match=wrong):
        folder_records(write(tmp_path / "d", placed((220, 100, 240, 124)), version=version))
    # Without neck and head the person's box tells.
    hidden = placed((220, 100, 240, 124))["joints"]
    hidden[8][2] = 0
    with pytest.raises(HalfmaskError, match=wrong):
        folder_records(write(tmp_path / "e", placed((220, 100, 240, 124), joints=hidden), version=version))


def test_a_head_box_that_can_be_read_both_ways_needs_the_version(tmp_path) -> None:
    # Near the corner of the picture, with nothing labelled on the head: corners, or sides half as long again.
    joints = [[30.0, 40.0 + 6 * i, 0 if i in (8, 9) else 2] for i in range(16)]
    entry = placed((5, 4, 25, 28), at=(1, 1), joints=joints)
    with pytest.raises(HalfmaskError, match='say "version": 2 beside "records" if it is the first'):
        folder_records(write(tmp_path / "d", entry))
    wide = np.full((300, 320, 3), 90, np.uint8)
    people = folder_records(write(tmp_path / "e", entry, version=2, a=wide))["private"]
    assert np.isfinite(people.head_boxes).all()
    with pytest.raises(HalfmaskError, match='"version" is a number, expected 2'):
        folder_records(write(tmp_path / "f", entry, version=1))


def test_a_byte_order_mark_is_accepted(tmp_path) -> None:
    folder = write(tmp_path / "d", record())
    path = folder / "annotations.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(folder_records(folder, SIZE)["private"]) == 1


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
