"""Each format through the folder format and back: the same people, the same joints, the same pixels."""

from __future__ import annotations

import json

import numpy as np
import pytest

from halfmask.data.convert import convert_dataset
from halfmask.data.export import export_figures
from halfmask.data.folder import read_folder
from halfmask.data.formats import read_annotations
from halfmask.data.skeleton import COCO, LSP, MPII
from halfmask.data.splits import SplitsConfig
from halfmask.errors import HalfmaskError


def test_coco(coco_folder, annotation, tmp_path) -> None:
    first = annotation(1, 11)
    first["keypoints"][3 * COCO.index("left_knee") + 2] = 1
    crowd = annotation(9, 12, iscrowd=1)
    folder = coco_folder(train=[first, annotation(2, 11, bbox=[16.0, 15.0, 50.0, 90.0]), annotation(3, 12), crowd])
    done = convert_dataset(folder, tmp_path / "mine")
    assert done.people == {"private": 3, "public": 0, "test": 2} and done.images == 4
    assert done.left_out == {"a crowd, not a person": 1}
    assert done.unlabelled == ("pelvis", "thorax", "upper_neck", "head_top")
    people = read_folder(tmp_path / "mine").parts["private"].people
    source = read_annotations(folder).parts["train"].people[0]
    assert people[0].image == "images/private/000000000011.jpg" and people[0].box == source.box
    knee, hip = MPII.index("left_knee"), MPII.index("right_hip")
    np.testing.assert_allclose(people[0].joints[knee], source.joints[COCO.index("left_knee")], atol=0.01)
    assert people[0].joints[knee, 2] == 1 and people[0].joints[hip, 2] == 2
    assert not people[0].joints[[MPII.index(name) for name in done.unlabelled]].any()
    assert people[0].path.read_bytes() == source.path.read_bytes()


def test_mpii_keeps_head_boxes_and_says_who_is_there_twice(mpii_folder, tmp_path) -> None:
    done = convert_dataset(mpii_folder(), tmp_path / "mine", "mpii")
    # Its first training image has somebody twice.
    assert done.people == {"private": 2, "public": 0, "test": 2} and done.unlabelled == ()
    assert any("the same image, box and joints" in reason for reason in done.left_out)
    written = json.loads((tmp_path / "mine/annotations.json").read_text())["records"]
    assert [one.get("head_box") for one in written] == [None, None, [30.0, 20.0, 12.0, 16.0], [10.0, 10.0, 3.0, 4.0]]
    assert [one.head_box for one in read_folder(tmp_path / "mine").parts["test"].people] == [(30, 20, 42, 36), (10, 10, 13, 14)]


def test_lspet_is_private_but_for_who_is_named(lsp_folder, tmp_path) -> None:
    folder = lsp_folder(6)
    assert convert_dataset(folder, tmp_path / "all").people == {"private": 6, "public": 0, "test": 0}
    done = convert_dataset(folder, tmp_path / "some", splits=SplitsConfig(public="1-2", test="6"), link=True)
    assert done.people == {"private": 3, "public": 2, "test": 1}
    people = read_folder(tmp_path / "some").parts["test"].people
    neck = read_annotations(folder).parts["all"].people[5].joints[LSP.index("neck")]
    np.testing.assert_allclose(people[0].joints[MPII.index("upper_neck")], neck, atol=0.01)
    assert people[0].path.samefile(folder / "images/im00006.jpg")


def test_a_table(photo, tmp_path) -> None:
    photo(tmp_path / "src/images/a.jpg")
    photo(tmp_path / "src/b.jpg", seed=1)
    text = "image,split,subject,r_knee_x,r_knee_y,l_knee_x,l_knee_y\na.jpg,private,x,10,20,30,50\nb.jpg,test,y,10,20,40,60\n"
    (tmp_path / "src/people.csv").write_text(text, "utf-8-sig")
    done = convert_dataset(tmp_path / "src/people.csv", tmp_path / "mine")
    assert done.people == {"private": 1, "public": 0, "test": 1}
    (one,) = read_folder(tmp_path / "mine").parts["private"].people
    assert one.joints[MPII.index("right_knee")].tolist() == [10, 20, 2] and one.subject_name == "x"


def test_a_folder_from_before_version_2(tmp_path) -> None:
    """Its head boxes were corners: refused as it stands, whole after it was rewritten."""
    export_figures(tmp_path / "new", {"private": 4, "test": 3})
    body = json.loads((tmp_path / "new/annotations.json").read_text())
    truth = [one.head_box for one in read_folder(tmp_path / "new").parts["test"].people]
    for record in body["records"]:
        x, y, width, height = record["head_box"]
        record["head_box"] = [x, y, x + width, y + height]
    del body["version"]
    (tmp_path / "new/annotations.json").write_text(json.dumps(body))
    with pytest.raises(HalfmaskError, match="head_box"):
        read_folder(tmp_path / "new")
    convert_dataset(tmp_path / "new", tmp_path / "mended", head_boxes="corners")
    np.testing.assert_allclose([one.head_box for one in read_folder(tmp_path / "mended").parts["test"].people], truth, atol=0.02)


def test_files_of_one_name_stay_two(coco_folder, annotation, tmp_path) -> None:
    folder = coco_folder(train=[annotation(1, 11)], val=[annotation(2, 21)])
    for split, number in (("train", 11), ("val", 21)):
        path = folder / f"annotations/person_keypoints_{split}2017.json"
        body = json.loads(path.read_text())
        body["images"] = [one | {"file_name": "same.jpg"} for one in body["images"] if one["id"] == number]
        path.write_text(json.dumps(body))
        (folder / f"{split}2017/{number:012d}.jpg").rename(folder / f"{split}2017/same.jpg")
    convert_dataset(folder, tmp_path / "mine", splits=SplitsConfig(private="train,val"))
    one, other = (person.path.read_bytes() for person in read_folder(tmp_path / "mine").parts["private"].people)
    assert one != other


def test_what_is_refused(lsp_folder, coco_folder, tmp_path) -> None:
    folder = lsp_folder(3)
    (folder / "images/im00002.jpg").unlink()
    with pytest.raises(HalfmaskError, match="1 people are on images that are missing"):
        convert_dataset(folder, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    assert convert_dataset(folder, tmp_path / "mine", on_bad="skip").left_out == {"an image file that is missing": 1}
    with pytest.raises(HalfmaskError, match="already holds a dataset"):
        convert_dataset(folder, tmp_path / "mine")
    with pytest.raises(HalfmaskError, match="where the dataset itself is"):
        convert_dataset(folder, folder)
    with pytest.raises(HalfmaskError, match="unknown dataset format 'cocoa': did you mean 'coco'"):
        convert_dataset(folder, tmp_path / "other", "cocoa")
    with pytest.raises(HalfmaskError, match="unknown reading of head boxes"):
        convert_dataset(folder, tmp_path / "other", head_boxes="edges")
