"""Boxes and joints as people write them down, and every slip of the pen told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfmask.data.skeleton import COCO, LSP, MPII
from halfmask.errors import HalfmaskError
from halfmask.inference.people_given import Given, as_mpii, read_boxes, read_poses, with_poses

NAMES = ("a.jpg", "day 1/b.jpg", "day 2/b.jpg")


@pytest.fixture
def csv_of(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "boxes.csv") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def coco_of(tmp_path: Path) -> Callable[..., Path]:
    def write(annotations: list[dict[str, Any]], names: tuple[str, ...] = ("a.jpg",), **more: Any) -> Path:
        images = [{"id": number, "file_name": name, "width": 90, "height": 120} for number, name in enumerate(names)]
        body = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "person", "keypoints": list(COCO.names)}]}
        (tmp_path / "coco.json").write_text(json.dumps(body | more))
        return tmp_path / "coco.json"

    return write


def test_rows_with_and_without_names_of_columns(csv_of: Callable[..., Path]) -> None:
    rows = "a.jpg,1,2,3,4\nday 1/b.jpg,5,6.5,7,8\n\na.jpg,9,9,9,9\nday 2/b.jpg,,,,\n"
    expected = {"a.jpg": [(1, 2, 3, 4), (9, 9, 9, 9)], "day 1/b.jpg": [(5, 6.5, 7, 8)], "day 2/b.jpg": []}
    for text in (rows, f"file,x,y,w,h\n{rows}", f"\ufeffFile, X, Y, W, H\n{rows}"):
        assert {name: one.boxes for name, one in read_boxes(csv_of(text), NAMES).items()} == expected
    shuffled = csv_of("w,h,file,note,x,y\n3,4,a.jpg,someone,1,2\n")
    assert read_boxes(shuffled, NAMES)["a.jpg"].boxes == [(1, 2, 3, 4)]


def test_folders_before_a_name_may_be_more_or_fewer(csv_of: Callable[..., Path]) -> None:
    assert list(read_boxes(csv_of("photos/a.jpg,1,2,3,4\n.\\day 1\\b.jpg,1,2,3,4\n"), NAMES)) == ["a.jpg", "day 1/b.jpg"]
    with pytest.raises(HalfmaskError, match=r"'b.jpg' may mean day 1/b.jpg, day 2/b.jpg"):
        read_boxes(csv_of("b.jpg,1,2,3,4\n"), NAMES)
    with pytest.raises(HalfmaskError, match=r"'y/a.jpg' and 'x/a.jpg' both mean the image a\.jpg"):
        read_boxes(csv_of("x/a.jpg,1,2,3,4\ny/a.jpg,1,2,3,4\n"), NAMES)


def test_names_of_other_files_are_refused(csv_of: Callable[..., Path], coco_of: Callable[..., Path]) -> None:
    with pytest.raises(HalfmaskError, match=r"names 2 files that are not among the images given: aa\.jpg, day 3/b\.jpg"):
        read_boxes(csv_of("a.jpg,1,2,3,4\naa.jpg,1,2,3,4\naa.jpg,1,2,3,4\nday 3/b.jpg,1,2,3,4\n"), NAMES)
    with pytest.raises(HalfmaskError, match=r"names 1 file that is not among the images given: z\.jpg"):
        read_boxes(coco_of([], ("a.jpg", "z.jpg")), NAMES)


@pytest.mark.parametrize(
    "text,message",
    [
        ("a.jpg,1,2,,4\n", "line 1 .a.jpg.: the box is"),
        ("a.jpg,1,2,3\n", "line 1: ends after 4 cells"),
        ("a.jpg,1,2,3,4\nb.jpg\n", "line 2: ends after 1 cells"),
        ("file,score,x,y,w,h\na.jpg,1,,,\n", "line 2: ends after 5 cells"),
        ("file,x,y,w,h\na.jpg,1,2,0,4\n", "line 2 .a.jpg.: the box is"),
        ("a.jpg,1,2,3,nan\n", "the box is"),
        ("a.jpg,one,2,3,4\n", "the box is"),
        ("a.jpg,1,2,1e9,4\n", "the box is"),
        (",1,2,3,4\n", "line 1: names no file"),
        ("file,x,y\na.jpg,1,2\n", "has no column w, h"),
    ],
)
def test_boxes_that_are_none(csv_of: Callable[..., Path], text: str, message: str) -> None:
    with pytest.raises(HalfmaskError, match=message):
        read_boxes(csv_of(text), NAMES)


def test_files_that_are_of_another_kind(csv_of: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00a")
    for path, message in (
        (csv_of("", "boxes.txt"), "expected a .csv file"),
        (tmp_path / "none.csv", "cannot be read"),
        (tmp_path / "none.json", "cannot be read"),
        (tmp_path / "bytes.csv", "is no CSV file"),
        (csv_of("{", "bad.json"), "not valid JSON"),
        (csv_of("[1]", "list.json"), "is a list of 1 number: expected COCO's object"),
        (csv_of('{"images": [{}], "annotations": []}', "image.json"), "one of its images is an object of 0 fields"),
        (csv_of('{"images": [], "annotations": [{"image_id": 4}]}', "entry.json"), "annotation 0: it is of no image"),
    ):
        with pytest.raises(HalfmaskError, match=message):
            read_boxes(path, NAMES)
    with pytest.raises(HalfmaskError, match=r"expected a .json file"):
        read_poses(csv_of(""), NAMES)


def test_boxes_of_coco_are_those_of_people_and_crowds_are_people(coco_of: Callable[..., Path]) -> None:
    entry = {"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4]}
    path = coco_of([entry, entry | {"iscrowd": 1, "bbox": [5, 6, 7, 8]}, entry | {"category_id": 17, "bbox": [0, 0, 0, 0]}], NAMES[:2])
    found = read_boxes(path, NAMES)
    assert found["a.jpg"].boxes == [(1, 2, 3, 4), (5, 6, 7, 8)] and found["a.jpg"].size == (90, 120)
    # It is spoken of, and nobody is on it; the third is not spoken of at all.
    assert found["day 1/b.jpg"].boxes == [] and "day 2/b.jpg" not in found
    with pytest.raises(HalfmaskError, match="of 90×120 pixels, and it is displayed with 120×90"):
        found["a.jpg"].check_size(120, 90)
    found["a.jpg"].check_size(90, 120)
    Given().check_size(3, 4)


def test_poses_find_their_boxes(coco_of: Callable[..., Path], annotation: Callable[..., dict[str, Any]]) -> None:
    points = np.array(annotation(1, 0)["keypoints"]).reshape(17, 3)
    other = (points + np.array([200, 0, 0])).ravel().tolist()
    unlabelled = annotation(3, 0, keypoints=[0] * 51)
    path = coco_of([annotation(1, 0), annotation(2, 0, bbox=[215.0, 15, 50, 90], keypoints=other), unlabelled])
    poses = read_poses(path, NAMES)["a.jpg"]
    assert len(poses.boxes) == 2
    boxes = Given(boxes=[(220, 20, 50, 90), (400, 400, 50, 50), (10, 10, 60, 95), (12, 12, 60, 95)])
    found = with_poses(boxes, poses)
    assert [one is not None for one in found] == [True, False, True, False]
    assert found[0] is poses.joints[1] and with_poses(boxes, None) == [None] * 4
    # Joints whose annotation has no box are in the box round them.
    bare = annotation(1, 0)
    del bare["bbox"]
    given = read_poses(coco_of([bare]), NAMES)["a.jpg"]
    (left, top, width, height), joints = given.boxes[0], given.joints[0]
    assert joints is not None and (left, top) == tuple(joints[:, :2].min(0))
    assert (left + width, top + height) == pytest.approx(tuple(joints[:, :2].max(0)))


@pytest.mark.parametrize("keypoints", [[1, 2], "joints", [1.0, 2.0, None], [0.5] * 12])
def test_joints_that_are_none(coco_of: Callable[..., Path], keypoints: Any) -> None:
    with pytest.raises(HalfmaskError):
        read_poses(coco_of([{"image_id": 0, "category_id": 1, "bbox": [1, 2, 3, 4], "keypoints": keypoints}]), NAMES)


def standing() -> np.ndarray:
    """Somebody 1000 pixels high, as COCO annotates them; y is 0 at the feet and falls upwards."""
    heights = {"nose": 936, "eye": 936, "ear": 936, "shoulder": 818, "elbow": 630, "wrist": 485, "hip": 530, "knee": 285, "ankle": 39}
    side = {"left": 1, "right": -1, "nose": 0}
    return np.array([[100.0 * side[name.split("_")[0]], -heights[name.split("_")[-1]], 2] for name in COCO.names])


def test_a_head_is_put_on_the_shoulders_of_those_who_have_none() -> None:
    neck, top = MPII.index("upper_neck"), MPII.index("head_top")
    people = {
        "whole": standing(),
        "without ears": standing(),
        "from behind": standing(),
        "without hips": standing(),
        "one shoulder": standing(),
    }
    people["without ears"][3:5, 2] = 0
    people["from behind"][:5, 2] = 0
    people["without hips"][:5, 2] = people["without hips"][11:13, 2] = 0
    people["one shoulder"][5, 2] = 0
    for name, person in people.items():
        found = as_mpii(person, COCO)
        if name in ("without hips", "one shoulder"):
            assert not found[[neck, top]].any(), name
        else:
            np.testing.assert_allclose(found[[neck, top]], [[0, -870, 1], [0, -1000, 1]], atol=1e-6, err_msg=name)
    assert as_mpii(standing(), COCO)[:, 2].all()


def test_joints_of_other_skeletons() -> None:
    own = np.column_stack([np.arange(32.0).reshape(16, 2), np.ones(16)])
    own[3] = [np.nan, 1, 1]
    found = as_mpii(own, MPII)
    assert not found[3].any()
    np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(own, 3, 0))
    assert as_mpii(np.ones((14, 3)), LSP)[:, 2].sum() == 16
