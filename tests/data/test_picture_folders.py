"""Folders of pictures: who is on each by their names, and what is wrong with them in numbers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfmask.data.files import BadAnnotations
from halfmask.data.picture_folders import (
    NOBODY,
    NOT_NAMED_SO,
    action_name,
    detect_picture_format,
    read_cad60,
    read_market1501,
    read_picture_folder,
)
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

MARKET = Path(__file__).parents[3] / "shared" / "data" / "market1501"
NAME = "jane-roe"


def market(folder: Path, photo, people: int = 3, frames: int = 2) -> Path:
    for person in range(people):
        for frame in range(frames):
            photo(folder / "bounding_box_train" / f"{2 + 5 * person:04}_c1s1_{frame:06}_01.jpg", seed=10 * person + frame)
    return folder


def cad60(folder: Path, photo, frames: int = 2) -> Path:
    for seed, (person, activity) in enumerate((person, activity) for person in ("p2", "p10") for activity in ("Drinking water", "phone")):
        for frame in range(frames):
            photo(folder / person / activity / f"RGB_{9 + frame}.png", seed=10 * seed + frame)
    return folder


def test_names_of_market_say_who_it_is(tmp_path, photo) -> None:
    folder = market(tmp_path, photo)
    assert detect_picture_format(folder) == "market1501"
    found = read_picture_folder(folder)
    assert (found.format, found.subjects, found.actions, found.usual, len(found.pictures)) == (
        "market1501",
        ("0002", "0007", "0012"),
        (),
        {},
        6,
    )
    assert found.pictures[0].name == "0002_c1s1_000000_01.jpg" and found.pictures[0].joints is None and not found.pictures[0].action
    assert found.pictures[0].read().shape == (120, 90, 3) and found.pictures[0].read.stamp


def test_other_names_and_junk_are_counted(tmp_path, photo) -> None:
    folder = market(tmp_path, photo)
    for name in ("-1_c1s1_000000_01.jpg", "0000_c1s1_000000_01.jpg", f"{NAME}.jpg", "0002_c1s1_000000.jpg", "0002_c1s1_000000_01.png"):
        (folder / "bounding_box_train" / name).write_bytes(b"")
    found = read_market1501(folder)
    assert len(found.pictures) == 6 and found.left_out == {NOBODY: 2, NOT_NAMED_SO: 3}


def test_a_folder_without_anybody_is_refused_without_names(tmp_path, photo) -> None:
    with pytest.raises(HalfmaskError, match="bounding_box_train"):
        read_market1501(tmp_path)
    photo(tmp_path / "bounding_box_train" / f"{NAME}.jpg")
    with pytest.raises(HalfmaskError, match=r"1 × a file whose name is not.*IIII_cCsS") as told:
        read_market1501(tmp_path)
    assert NAME not in str(told.value)
    with pytest.raises(HalfmaskError, match="no known format of pictures"):
        detect_picture_format(tmp_path)
    with pytest.raises(HalfmaskError, match="market1501"):
        read_picture_folder(tmp_path, "market1502")


def test_the_usual_division_needs_enough_people(tmp_path) -> None:
    place = tmp_path / "bounding_box_train"
    place.mkdir()
    for person in range(1, 104):
        (place / f"{person:04}_c1s1_000001_01.jpg").write_bytes(b"")
    assert read_market1501(tmp_path).usual == {"public": "1-100", "private": "101-103"}


def test_frames_by_person_and_activity(tmp_path, photo) -> None:
    folder = cad60(tmp_path, photo)
    assert detect_picture_format(folder) == "cad60"
    found = read_picture_folder(folder)
    assert found.subjects == ("p2", "p10"), "by number"
    assert found.actions == ("drinking-water", "phone") and len(found.pictures) == 8
    assert [one.name for one in found.pictures[:2]] == ["p2/Drinking water/RGB_9.png", "p2/Drinking water/RGB_10.png"]
    assert all(one.joints is None for one in found.pictures)


def test_the_releases_numbers_are_told_by_their_labels_and_depth_is_no_picture(tmp_path, photo) -> None:
    for name in ("RGB_1.png", "Depth_1.png"):
        photo(tmp_path / "data1" / "0512164529" / name)
    (tmp_path / "data1" / "activityLabel.txt").write_text("0512164529,talking on the phone,\nEND\n")
    (found,) = read_cad60(tmp_path).pictures
    assert (found.name, found.action, found.subject) == ("data1/0512164529/RGB_1.png", "talking-on-the-phone", "data1")
    assert action_name(" Writing_on  Whiteboard") == "writing-on-whiteboard"


def test_joints_in_a_file_beside_the_frames(tmp_path, photo) -> None:
    folder = cad60(tmp_path, photo)
    place = folder / "p2" / "phone"
    (place / "joints.csv").write_text("file,left_knee_x,left_knee_y,r_wrist_x,r_wrist_y\nRGB_9.png,10,20.5,,\nRGB_10.png,1,2,3,4\n")
    by_name = {one.name: one.joints for one in read_cad60(folder).pictures}
    first, second = by_name["p2/phone/RGB_9.png"], by_name["p2/phone/RGB_10.png"]
    assert first[MPII.index("left_knee")].tolist() == [10, 20.5, 1] and first[:, 2].sum() == 1
    assert second[MPII.index("right_wrist")].tolist() == [3, 4, 1] and second[:, 2].sum() == 2
    assert by_name["p10/phone/RGB_9.png"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("file,left_knee_x,left_knee_y\nRGB_9.png,ten,20\n", "1 of 1 rows.*no number"),
        ("file,left_knee_x,left_knee_y\nRGB_9.png,nan,20\n", "1 of 1 rows.*no number"),
        ("frame,left_knee_x\nRGB_9.png,10\n", "other columns"),
        ("", "other columns"),
    ],
)
def test_bad_joints_are_refused_without_the_persons_name(tmp_path, photo, text, told) -> None:
    photo(tmp_path / NAME / "phone" / "RGB_9.png")
    (tmp_path / NAME / "phone" / "joints.csv").write_text(text)
    with pytest.raises(BadAnnotations, match=told) as caught:
        read_cad60(tmp_path)
    assert NAME not in str(caught.value) and NAME in " ".join(caught.value.details)


def test_empty_and_missing_folders_are_refused(tmp_path) -> None:
    (tmp_path / "p1" / "phone").mkdir(parents=True)
    with pytest.raises(HalfmaskError, match="holds no frame"):
        read_cad60(tmp_path)
    with pytest.raises(HalfmaskError, match="no folder"):
        read_cad60(tmp_path / "none")


@pytest.mark.skipif(not MARKET.is_dir(), reason="the real pictures are not here")
def test_the_real_folder_is_read_whole() -> None:
    found = read_market1501(MARKET)
    assert not found.left_out and len(found.subjects) > 100 and found.usual["public"] == "1-100"
    assert found.pictures[0].read().shape == (128, 64, 3) and np.ptp(found.pictures[0].read()) > 20
