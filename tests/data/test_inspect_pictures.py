"""Looking at a folder of pictures: who is there, how often, doing what, and what is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from halfmask.cli.inspection_pictures import look_at_pictures
from halfmask.data.inspect_pictures import inspect_pictures, sheet_of_pictures
from halfmask.data.inspectors import find_out_format, inspector_of
from halfmask.data.people import UNREADABLE
from halfmask.data.picture_folders import NOT_NAMED_SO, read_picture_folder
from halfmask.errors import HalfmaskError


@pytest.fixture(autouse=True)
def quick_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the accountant, which answers at once."""
    monkeypatch.setattr(
        "halfmask.data.inspect_pictures.image_cost", lambda people, most: {size: float(size) for size in range(1, most + 1)}
    )


@pytest.fixture
def market(tmp_path: Path, photo) -> Path:
    for person, frames in enumerate((1, 2, 4), start=1):
        for frame in range(frames):
            photo(tmp_path / "market" / "bounding_box_train" / f"{person:04}_c1s1_{frame:06}_01.jpg", seed=10 * person + frame)
    return tmp_path / "market"


@pytest.fixture
def care(tmp_path: Path, photo) -> Path:
    for seed, (person, activity) in enumerate((person, activity) for person in "ab" for activity in ("phone", "rest")):
        place = tmp_path / "care" / person / activity
        photo(place / "RGB_1.png", seed=seed)
        place.joinpath("joints.csv").write_text("file,head_top_x,head_top_y\nRGB_1.png,40,50\n")
    return tmp_path / "care"


def test_people_and_their_pictures_are_counted(market) -> None:
    found = inspect_pictures(read_picture_folder(market))
    assert (found.subjects, found.single, found.sizes, found.bad, found.recurring) == ((1, 2, 4), 1, {(120, 90): 7}, (), 0)
    assert found.image_cost == {1: 1, 2: 2, 3: 3, 4: 4} and not found.actions and not found.labelled
    body = json.loads(json.dumps(found.to_json()))
    assert body["pictures"] == 7 and body["pictures_of_a_subject"] == [1, 2, 4] and body["subjects_with_one_picture"] == 1
    assert not inspect_pictures(read_picture_folder(market), open_images=False).sizes


def test_damage_is_named_to_the_holder_and_copies_are_counted(market) -> None:
    place = market / "bounding_box_train"
    (place / "0003_c1s1_000003_01.jpg").write_bytes(b"no picture")
    (place / "somebody.jpg").write_bytes(b"")
    shutil.copy(place / "0001_c1s1_000000_01.jpg", place / "0003_c1s1_000000_01.jpg")
    seen = look_at_pictures(market, "market1501", open_images=True, pictured=0)
    text = "\n".join(line for line in seen.lines if isinstance(line, str))
    assert seen.body["left_out"] == {NOT_NAMED_SO: 1, UNREADABLE: 1} and seen.body["recurring_under_another_subject"] == 1
    assert "0003_c1s1_000003_01.jpg" in text and "recur under another subject" in text and "weaker for a subject" in text
    assert "not opened" in "\n".join(map(str, look_at_pictures(market, "market1501", open_images=False, pictured=0).lines))


def test_actions_and_joints_are_counted(care) -> None:
    seen = look_at_pictures(care, "cad60", open_images=True, pictured=3)
    assert seen.body["actions"] == {"phone": 2, "rest": 2} and seen.body["joints"]["head_top"] == 1 and seen.body["joints"]["l_knee"] == 0
    assert seen.sheet is not None and seen.sheet.ndim == 3


def test_a_sheet_shows_joints_also_where_a_network_has_to_find_them(market, care, monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("halfmask.data.inspect_pictures.pose_network", lambda named: lambda some: asked.append(1) or [read_joints(care)])
    (market / "bounding_box_train" / "0002_c1s1_000001_01.jpg").write_bytes(b"no picture")
    sheet = sheet_of_pictures(read_picture_folder(market), 7, columns=3)
    assert len(asked) == 6 and sheet.shape[0] > 2 * 256
    asked.clear()
    sheet_of_pictures(read_picture_folder(care), 4)
    assert not asked, "annotated joints are drawn as they are"


def read_joints(folder: Path):
    return read_picture_folder(folder).pictures[0].joints


def test_formats_are_found_out(market, care, tmp_path, photo) -> None:
    assert (find_out_format(market), find_out_format(care)) == ("market1501", "cad60")
    assert inspector_of("cad60") is look_at_pictures
    # Pictures two folders deep are not enough: people do the same.
    photo(tmp_path / "other" / "images" / "train2017" / "a.jpg")
    with pytest.raises(HalfmaskError, match=r"Market-1501.*CAD-60"):
        find_out_format(tmp_path / "other")
