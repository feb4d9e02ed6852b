"""The screen is an output: no error about people's files or annotations says a name, a value or a place in the list.

Each format is spoilt in each way that is refused, with a name and a number planted where it is spoilt. Neither may be in the message; both
reach the data's holder, through `halfmask data inspect` alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import scipy.io

from halfmask.data.files import BadAnnotations
from halfmask.data.formats import read_annotations
from halfmask.data.reading import read_people
from halfmask.data.splits import SplitsConfig, divide
from halfmask.errors import HalfmaskError

NAME, NUMBER = "jane-roe", 73519
IMAGE = f"{NAME}.jpg"
# Where the spoilt entry is, among sound ones.
PLACE = 3


def spoilt(value: Any) -> str:
    """A test's id is in the paths of its folders, where the planted name would be found."""
    return "spoilt"


def nameless(attempt: Callable[[], Any], holder_sees: bool = True) -> HalfmaskError:
    with pytest.raises(HalfmaskError) as caught:
        attempt()
    message = str(caught.value)
    assert NAME not in message and str(NUMBER) not in message, message
    assert not re.search(r"(record|annotation|person|image|detection|row|line|entry|char|column) \d", message), message
    if holder_sees:
        assert isinstance(caught.value, BadAnnotations), message
        told = " ".join(caught.value.details)
        assert NAME in told or str(NUMBER) in told, told
    return caught.value


def folder_of(place: Path, spoil: dict[str, Any] | Any) -> Path:
    """Your own images: six people, the one at PLACE spoilt."""
    place.mkdir()
    joints = [[20.0 + i, 30.0 + 2 * i, 2] for i in range(16)]
    records: list[Any] = []
    for number in range(6):
        image = IMAGE if number == PLACE else f"{number}.jpg"
        cv2.imwrite(str(place / image), np.full((100, 80, 3), 90 + number, np.uint8))
        box = [10, 20, 40, 50]
        records.append({"image": image, "split": "private", "box": box, "joints": joints, "head_box": [20, 20, 10, 12], "subject": NAME})
    records[PLACE] = records[PLACE] | spoil if isinstance(spoil, dict) else spoil
    (place / "annotations.json").write_text(json.dumps({"records": records}))
    return place


@pytest.mark.parametrize(
    "spoil",
    [
        NAME,
        [NAME, NUMBER],
        {"image": [NAME]},
        {"image": {NAME: NUMBER}},
        {"split": NAME},
        {"split": NUMBER},
        {"box": [NUMBER, 2, 3]},
        {"box": [NUMBER, 2, 0, 5]},
        {"box": [NUMBER, 2, NAME, 5]},
        {"box": f"{NAME} {NUMBER}"},
        {"head_box": [NUMBER] * 5},
        {"head_box": None},
        {"joints": [[NUMBER, NUMBER, 2]] * 5},
        {"joints": [[NUMBER, float("nan"), 2]] * 16},
        {"joints": {NAME: [NUMBER]}},
    ],
    ids=spoilt,
)
def test_your_own_images(tmp_path, spoil) -> None:
    nameless(lambda: read_annotations(folder_of(tmp_path / "people", spoil)))


@pytest.mark.parametrize("body", [f'{{"records": [{{"image": "{NAME}", "box": [{NUMBER},', f'{{"{NAME}": [{NUMBER}]}}'], ids=spoilt)
def test_files_that_are_not_as_expected(tmp_path, body) -> None:
    (tmp_path / "annotations.json").write_text(body)
    nameless(lambda: read_annotations(tmp_path), holder_sees=False)
    for format in ("coco", "humanart", "mpii"):
        nameless(lambda format=format: read_annotations(tmp_path, format), holder_sees=False)
        nameless(lambda format=format: read_annotations(tmp_path, format, ("annotations.json",)), holder_sees=False)


def test_a_folder_of_nothing_known(tmp_path) -> None:
    (tmp_path / IMAGE).write_bytes(b"")
    (tmp_path / f"scan.{NAME}").write_bytes(b"")
    (tmp_path / NAME).mkdir()
    nameless(lambda: read_annotations(tmp_path), holder_sees=False)


@pytest.mark.parametrize("damage", ["missing", "garbage", "empty", "folder", "denied"])
def test_image_files(tmp_path, damage, monkeypatch) -> None:
    folder = folder_of(tmp_path / "people", {})
    path = folder / IMAGE
    if damage in ("missing", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    if damage in ("garbage", "empty"):
        path.write_bytes(NAME.encode() if damage == "garbage" else b"")
    if damage == "denied":
        real = Path.read_bytes
        denied = PermissionError(13, "Permission denied", str(path))
        monkeypatch.setattr(Path, "read_bytes", lambda one: (_ for _ in ()).throw(denied) if one == path else real(one))
    read = read_annotations(folder)
    nameless(lambda: read_people(read, read.parts["private"], (64, 48)), holder_sees=False)
    records, left_out = read_people(read, read.parts["private"], (64, 48), on_bad="skip")
    assert len(records) == 5 and [one.image for one in left_out] == [IMAGE]


@pytest.mark.parametrize("image", [NAME * 100, f"{NAME}\0"], ids=spoilt)
def test_names_that_no_disk_takes(tmp_path, coco_folder, mpii_folder, image) -> None:
    coco = spoil_coco(coco_folder(), "images", {"file_name": image}, first=True)
    mpii = mpii_folder()
    path = mpii / "annot/train.json"
    path.write_text(json.dumps([one | {"image": image} for one in json.loads(path.read_text())]))
    for folder, part in ((folder_of(tmp_path / "people", {"image": image}), "private"), (coco, "train"), (mpii, "train")):
        read = read_annotations(folder)
        nameless(lambda read=read, part=part: read_people(read, read.parts[part], (64, 48)), holder_sees=False)


def test_images_in_two_parts(tmp_path) -> None:
    read = read_annotations(folder_of(tmp_path / "people", {}))
    nameless(lambda: divide(read, SplitsConfig(private="private:1-6", test="private:6")), holder_sees=False)


def spoil_coco(folder: Path, part: str, spoil: dict[str, Any] | Any, first: bool = False) -> Path:
    path = folder / "annotations/person_keypoints_train2017.json"
    body = json.loads(path.read_text())
    # The sentinel is on the image, too, in whatever part the mistake is.
    body["images"][0]["file_name"] = IMAGE
    (folder / "train2017" / "000000000011.jpg").rename(folder / "train2017" / IMAGE)
    place = 0 if first else len(body[part]) - 1
    body[part][place] = body[part][place] | spoil if isinstance(spoil, dict) else spoil
    path.write_text(json.dumps(body))
    return folder


COCO_MISTAKES = [
    ("images", NAME),
    ("images", {"file_name": NUMBER}),
    ("images", {"id": NAME}),
    ("images", {"width": NAME}),
    ("images", {"height": [NUMBER]}),
    ("images", {"file_name": f"../{IMAGE}"}),
    ("annotations", NAME),
    ("annotations", {"image_id": NUMBER}),
    ("annotations", {"image_id": [NAME]}),
    ("annotations", {"image_id": NAME}),
    ("annotations", {"keypoints": [NUMBER] * 42}),
    ("annotations", {"keypoints": f"{NAME}"}),
    ("annotations", {"keypoints": NUMBER}),
    ("annotations", {"bbox": [NUMBER, 2]}),
    ("annotations", {"bbox": NAME}),
    ("annotations", {"bbox": {NAME: NUMBER}}),
    ("annotations", {"id": NAME}),
    ("annotations", {"area": NAME}),
]


@pytest.mark.parametrize("part, spoil", COCO_MISTAKES, ids=spoilt)
@pytest.mark.parametrize("format", ["coco", "humanart"])
def test_coco_and_its_kin(coco_folder, format, part, spoil) -> None:
    folder = spoil_coco(coco_folder(), part, spoil)
    nameless(lambda: read_annotations(folder, format))


@pytest.mark.parametrize("spoil", [NAME, [NUMBER], NUMBER], ids=spoilt)
def test_the_first_annotation_is_looked_at_to_tell_the_format(coco_folder, spoil) -> None:
    folder = spoil_coco(coco_folder(), "annotations", spoil, first=True)
    nameless(lambda: read_annotations(folder))


@pytest.mark.parametrize(
    "detections",
    [
        {NAME: NUMBER},
        [NAME],
        [{"image_id": NAME, "bbox": [1, 2, 3, 4], "score": 0.5}],
        [{"image_id": 21, "bbox": [NUMBER, 2, 3], "score": 0.5}],
        [{"image_id": 21, "bbox": NAME, "score": 0.5}],
        [{"image_id": 21, "bbox": [1, 2, 3, 4], "score": NAME}],
        [{"image_id": 21, NAME: NUMBER}],
    ],
    ids=spoilt,
)
def test_detections(coco_folder, detections) -> None:
    folder = coco_folder()
    (folder / "boxes.json").write_text(json.dumps(detections))
    nameless(lambda: read_annotations(folder, boxes="boxes.json"), holder_sees=isinstance(detections, list))


@pytest.mark.parametrize(
    "spoil",
    [
        NAME,
        {"image": [NAME]},
        {"center": [NUMBER]},
        {"center": NAME},
        {"scale": NAME},
        {"scale": -NUMBER},
        {"joints": [[NUMBER, 1]] * 14},
        {"joints": NAME},
        {"joints_vis": [NUMBER]},
        "without",
    ],
    ids=spoilt,
)
def test_mpii(mpii_folder, spoil) -> None:
    folder = mpii_folder()
    path = folder / "annot/train.json"
    people = json.loads(path.read_text())
    (folder / "images/b.jpg").rename(folder / "images" / IMAGE)
    people[2]["image"] = IMAGE
    if spoil == "without":
        del people[2]["scale"]
        people[2][NAME] = NUMBER
    else:
        people[2] = people[2] | spoil if isinstance(spoil, dict) else spoil
    path.write_text(json.dumps(people))
    nameless(lambda: read_annotations(folder, "mpii"))


def test_mpii_leads_out_of_its_folder(mpii_folder) -> None:
    folder = mpii_folder()
    path = folder / "annot/train.json"
    path.write_text(path.read_text().replace("b.jpg", f"../{IMAGE}"))
    nameless(lambda: read_annotations(folder, "mpii"))


def test_lsp(lsp_folder) -> None:
    folder = lsp_folder(4)
    scipy.io.savemat(folder / "joints.mat", {NAME.replace("-", "_"): np.full(3, NUMBER)})
    error = nameless(lambda: read_annotations(folder), holder_sees=False)
    assert isinstance(error, BadAnnotations) and "jane_roe" in error.details[0] and "jane_roe" not in str(error)
    scipy.io.savemat(folder / "joints.mat", {"joints": [NAME, NAME]})
    nameless(lambda: read_annotations(folder), holder_sees=False)
    (folder / "joints.mat").write_bytes(NAME.encode() * 50)
    nameless(lambda: read_annotations(folder), holder_sees=False)
