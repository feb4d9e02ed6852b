"""`halfmask data inspect`, and datasets in others' formats through the commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data.images import read_image
from halfmask.data.inspectors import INSPECTORS, Looked


def test_inspect_says_what_is_there(halfmask, coco_folder, tmp_path) -> None:
    sheet = tmp_path / "sheet.png"
    result = halfmask("data", "inspect", coco_folder(), "--sheet", sheet)
    assert result.code == 0, result.err
    for words in (
        "format coco, scored by OKS-AP",
        "person_keypoints_val2017.json",
        "units 'image'",
        "images with 2 people",
        "pelvis",
        "derived",
    ):
        assert words in result.out
    assert read_image(sheet).shape[1] > 4 * 192 and str(sheet) in result.out


def test_inspect_for_programs(halfmask, lsp_folder, monkeypatch) -> None:
    folder = lsp_folder(4)
    (folder / "images/im00003.jpg").write_bytes(b"no image")
    monkeypatch.setenv("HALFMASK_DATA", str(folder.parent))
    result = halfmask("data", "inspect", folder.name, "--json", "--skeleton", "coco")
    body = json.loads(result.out)
    assert body["format"] == "lspet" and body["metric"] == "pck" and body["mapping"]["to"] == "coco"
    assert body["parts"]["all"]["people"] == 3 and body["parts"]["all"]["bad_files"] == [str(folder / "images/im00003.jpg")]
    assert "sheet" not in body and sorted(path.name for path in folder.iterdir()) == ["images", "joints.mat"]
    named = halfmask("data", "inspect", folder).out
    assert "im00003.jpg" in named and "all: 1 × an image file that cannot be read" in named
    assert json.loads(halfmask("data", "inspect", folder, "--quick", "--json").out)["parts"]["all"]["people"] == 4


def test_inspect_names_people_whose_annotation_is_odd(halfmask, coco_folder, annotation) -> None:
    train = [
        annotation(1, 11),
        annotation(2, 12, bbox=[500, 10, 20, 50]),
        annotation(3, 13, iscrowd=1),
        annotation(4, 13, bbox=[1, 1, 0, 5]),
    ]
    folder = coco_folder(train)
    shown = halfmask("data", "inspect", folder).out
    assert "000000000012.jpg, annotation 1, box [500.0, 10.0, 20.0, 50.0]: a box outside the image" in shown
    assert "000000000013.jpg, annotation 3" in shown and "annotation 2" not in shown
    odd = json.loads(halfmask("data", "inspect", folder, "--json").out)["parts"]["train"]["odd_annotations"]
    assert [(one["image"], one["reason"]) for one in odd] == [
        ("000000000012.jpg", "a box outside the image"),
        ("000000000013.jpg", "a box without area"),
    ]


def test_inspect_of_your_own_images(halfmask, folder) -> None:
    body = json.loads(halfmask("data", "inspect", folder, "--json").out)
    assert body["format"] == "folder" and body["metric"] == "pckh" and body["parts"]["private"]["people"] == 10
    assert body["parts"]["private"]["units"]["subject"] >= 1


def test_all_problems_of_your_own_images_are_told_at_once(halfmask, folder) -> None:
    path = folder / "annotations.json"
    body = json.loads(path.read_text())
    spoilt = body["records"]
    spoilt[0]["joints"][3][2] = 7
    spoilt[1]["box"] = [str(value) for value in spoilt[1]["box"]]
    spoilt[2] = spoilt[3]
    spoilt[4]["joints"][5] = [1e6, 5.0, 2]
    cv2.imwrite(str(folder / spoilt[5]["image"]), np.zeros((1, 1, 3), np.uint8))
    spoilt[6]["headbox"] = spoilt[6].pop("head_box")
    path.write_text(json.dumps(body))
    result = halfmask("data", "inspect", folder)
    assert result.code == 2 and "3 of 31 records cannot be used" in result.err and "images/" not in result.err
    for words in (
        "record 0, by the schema: joints/3/2: 7 is not one of [0, 1, 2]",
        "a visibility that is not 0 (not labelled)",
        "'box' has numbers written as texts",
        "the same image, box and joints as an earlier record",
        "a labelled joint far outside the image (kept: look at it)",
        "an image too small to show anybody",
        "1 records have a field 'headbox', which is not read: is it 'head_box'?",
        "format folder, scored by",
    ):
        assert words in result.out, words
    seen = halfmask("data", "inspect", folder, "--json")
    body = json.loads(seen.out)
    assert seen.code == 2 and body["problems"] >= 2 and len(body["details"]) >= 6 and body["parts"]["private"]["people"] == 6


def test_strict_exits_with_two(halfmask, folder) -> None:
    assert halfmask("data", "inspect", folder, "--strict").code == 0
    cv2.imwrite(str(next((folder / "images/private").iterdir())), np.zeros((1, 1, 3), np.uint8))
    assert halfmask("data", "inspect", folder).code == 0
    result = halfmask("data", "inspect", folder, "--strict")
    assert result.code == 2 and "--strict lets none of them pass" in result.error
    assert halfmask("data", "inspect", folder, "--strict", "--json").code == 2


def test_convert(halfmask, coco_folder, tmp_path) -> None:
    result = halfmask("data", "convert", coco_folder(), tmp_path / "mine", "--public", "train:1")
    assert result.code == 0, result.err
    for words in ("2 private, 1 public, 2 test people on 5 images", "left out: 1 ×", "pelvis, thorax, upper_neck, head_top"):
        assert words in result.out
    body = json.loads(halfmask("data", "inspect", tmp_path / "mine", "--strict", "--json").out)
    assert body["metric"] == "pck" and body["parts"]["private"]["people"] == 2
    told = json.loads(halfmask("data", "convert", tmp_path / "mine", tmp_path / "again", "--json").out)
    assert told["people"] == {"private": 2, "public": 1, "test": 2} and told["left_out"] == {}
    assert "unknown way to treat bad images" in halfmask("data", "convert", tmp_path / "mine", tmp_path / "b", "--on-bad", "ignore").error


def test_mistakes_are_one_line(halfmask, tmp_path, coco_folder) -> None:
    (tmp_path / "empty").mkdir()
    assert "in no known format (found nothing)" in halfmask("data", "inspect", tmp_path / "empty").error
    assert "no dataset at" in halfmask("data", "inspect", tmp_path / "nowhere").error
    assert "unknown skeleton" in halfmask("data", "inspect", coco_folder(), "--skeleton", "dog").error
    assert "has no joints.mat" in halfmask("data", "inspect", coco_folder(), "--format", "lsp").error


@pytest.fixture
def own(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "copy"))


def test_a_run_is_scored_on_a_range_of_another_dataset(halfmask, own, lsp_folder) -> None:
    folder = lsp_folder(5)
    (folder / "images/im00001.jpg").write_bytes(b"nobody opens this")
    result = halfmask("evaluate", own, "--data", folder, "--images", "3-5", "--json")
    assert result.code == 0, result.err
    body = json.loads(result.out)
    assert body["people"] == 3 and set(body["metrics"]) >= {"pck@0.2", "pck@0.5"}
    table = halfmask("evaluate", own, "--data", folder, "--images", "3-5").out
    assert "PCK@0.2" in table and "Mean PCK@0.5" in table and "Knee" in table
    assert "say who is who with data.splits" in halfmask("evaluate", own, "--data", folder).error


def test_training_on_lspet_from_the_command(halfmask, recipe, lsp_folder, tmp_path) -> None:
    out = tmp_path / "run"
    settings = ["data.splits.private=1-16", "data.splits.public=17-20", "data.splits.test=21-24", "data.skeleton=mpii"]
    flags = [part for one in [*settings, "subspace.samples=2", "subspace.dim=2"] for part in ("--set", one)]
    result = halfmask("train", recipe, "--method", "dpsgd", "--data", lsp_folder(24), "--out", out, *flags)
    assert result.code == 0, result.err
    assert "PCK@0.2" in result.out and json.loads((out / "metrics.json").read_text())["metrics"]["pck@0.2"] >= 0
    again = json.loads(halfmask("evaluate", out, "--json").out)
    assert again["people"] == 4


def test_training_places_the_datasets_own_joints(halfmask, recipe, lsp_folder, tmp_path, photo) -> None:
    out = tmp_path / "run"
    settings = ["data.splits.private=1-16", "data.splits.public=17-20", "data.splits.test=21-24", "model.weights=null"]
    flags = [part for one in settings for part in ("--set", one)]
    result = halfmask("train", recipe, "--method", "dpsgd", "--data", lsp_folder(24), "--out", out, *flags)
    assert result.code == 0, result.err
    photo(tmp_path / "someone.jpg")
    assert halfmask("predict", out, tmp_path / "someone.jpg", "--out", tmp_path / "found", "--people", "whole").code == 0
    found = json.loads((tmp_path / "found/someone.json").read_text())
    assert found["categories"][0]["keypoints"][-2:] == ["neck", "head_top"] and found["annotations"][0]["num_keypoints"] == 14


def look_at_faces(folder, format, *, open_images, pictured, progress=None):
    """Stands for a function that looks at another kind of dataset."""
    body = {"format": format, "opened": open_images, "pictured": pictured}
    return Looked(body, [f"{format} in {folder.name}"], np.zeros((8, 8, 3), np.uint8) if pictured else None)


def test_formats_of_other_tasks_are_inspected_by_their_own(halfmask, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(INSPECTORS, "faces", f"{__name__}:look_at_faces")
    (tmp_path / "clinic").mkdir()
    sheet = tmp_path / "sheet.png"
    shown = halfmask("data", "inspect", tmp_path / "clinic", "--format", "faces", "--sheet", sheet)
    assert shown.code == 0 and "faces in clinic" in shown.out and sheet.is_file()
    body = json.loads(halfmask("data", "inspect", tmp_path / "clinic", "--format", "faces", "--quick", "--json").out)
    assert body == {"format": "faces", "opened": False, "pictured": 0}
    assert "did you mean 'faces'" in halfmask("data", "inspect", tmp_path / "clinic", "--format", "facez").error
    monkeypatch.setitem(INSPECTORS, "faces", f"{__name__}:nothing")
    assert "cannot be inspected" in halfmask("data", "inspect", tmp_path / "clinic", "--format", "faces").error
