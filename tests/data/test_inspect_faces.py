"""Looking at a folder of faces: counts, damage, units, regions, and a picture."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import halfmask.data.face_files as files
from halfmask.cli.inspection_faces import look_at_faces
from halfmask.data.face_sets import read_faces
from halfmask.data.face_sheet import sheet_of_faces
from halfmask.data.inspect_faces import inspect_faces
from halfmask.data.inspectors import INSPECTORS, find_out_format
from halfmask.data.people import MISSING, OUTSIDE, UNREADABLE
from halfmask.data.regions import SMALL
from halfmask.errors import HalfmaskError

LANDMARKS = np.column_stack([20 + 40 * (np.arange(68) * 7 % 68) / 67, 30 + 50 * np.arange(68) / 67])
COLUMNS = ["file", "subject", "video", "gender", "roll_derived", "pitch_derived", "yaw_derived"]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For whom the accountant was asked; a stand-in answers, at once."""
    whom: list[tuple[int, int]] = []

    def cost(people: int, most: int) -> dict[int, float]:
        whom.append((people, most))
        return {size: float(size) for size in range(1, min(most, 6) + 1)} if most > 1 else {}

    monkeypatch.setattr("halfmask.data.inspect_faces.image_cost", cost)
    return whom


@pytest.fixture
def frames(tmp_path: Path, photo) -> Callable[..., Path]:
    """Builds frames with 68 landmarks: by number, who is on each, and where their landmarks are moved to."""

    def build(subjects: str = "aaabbc", moved: dict[int, float] | None = None, shrunk: dict[int, float] | None = None) -> Path:
        folder = tmp_path / "frames"
        lines = [",".join([*COLUMNS, *(f"{axis}{point}" for point in range(68) for axis in "xy")])]
        for number, subject in enumerate(subjects):
            photo(folder / "images" / f"f{number}.png", seed=number)
            points = LANDMARKS * (shrunk or {}).get(number, 1) + (moved or {}).get(number, 0)
            cells = ["" if (number, place) == (0, 4) else f"{value:.2f}" for place, value in enumerate(points.ravel())]
            angles = ["", "", ""] if number == 1 else ["0", "10", "-5"]
            lines.append(",".join([f"f{number}.png", subject, "0", ("male", "female", "")[number % 3], *angles, *cells]))
        (folder / "labels.csv").write_text("\n".join(lines))
        return folder

    return build


@pytest.fixture
def aflw_json(tmp_path: Path, photo) -> Path:
    """Two splits that share a photograph, which the second one keeps as another file."""
    folder = tmp_path / "aflw-json"
    for split, seeds in (("train", (1, 2, 3)), ("test", (3, 4))):
        for seed in seeds:
            photo(folder / "images" / f"{split}{seed}.png", seed=seed)
        points = [value for k in range(19) for value in (20 + 2 * k, 30 + 3 * (k * 5 % 19), 1 + k % 2)]
        entries = [{"id": seed, "image_id": seed, "bbox": [15, 25, 50, 70], "keypoints": points} for seed in seeds]
        images = [{"id": seed, "file_name": f"{split}{seed}.png"} for seed in seeds]
        body = {"images": images, "annotations": entries}
        (folder / f"face_landmarks_aflw_{split}.json").write_text(json.dumps(body))
    return folder


def test_what_is_counted(frames) -> None:
    found = inspect_faces(read_faces(frames()), sampled=4)
    (part,) = found.parts
    assert (part.name, part.photographs, part.opened, part.with_faces, part.faces) == ("all", 6, 6, 6, 6)
    assert part.subjects == (1, 2, 3) and part.posed == 5 and part.attributes == (2, 2) and part.blank == 0
    assert part.annotated == part.visible == pytest.approx(1 - 1 / (6 * 68), abs=1e-4)
    assert part.sides == pytest.approx((44, 44, 44), abs=0.5) and part.small == 0 and not part.bad and not part.odd
    regions = found.regions
    assert regions is not None and regions.looked_at == 4 and sum(regions.showing.values()) == sum(regions.empty.values()) == 4
    assert 1 <= regions.mean[0] <= 3 and 0 <= regions.mean[1] <= 3 and regions.most <= 6 and not regions.left_out
    assert list(found.region_cost) == list(range(1, regions.most + 1)) and list(found.image_cost) == [1, 2, 3]
    body = json.loads(json.dumps(found.to_json()))
    assert body["landmarks"] == {"layout": "dlib68", "points": 68} and body["attribute"] == "gender"
    told = body["parts"]["all"]
    assert told["units"] == {"image": 6, "subject": 3} and told["photographs_per_subject"] == {"fewest": 1, "median": 2, "most": 3}
    assert told["attribute"] == {"0": 2, "1": 2, "not_known": 2}


def test_damaged_files_and_odd_boxes_are_named(frames) -> None:
    folder = frames(moved={0: 4000.0}, shrunk={3: 0.2})
    (folder / "images/f1.png").unlink()
    (folder / "images/f2.png").write_bytes(b"no image")
    found = inspect_faces(read_faces(folder))
    (part,) = found.parts
    assert [(one.image, one.reason) for one in part.bad] == [("f1.png", MISSING), ("f2.png", UNREADABLE)]
    assert [(one.image, one.reason) for one in part.odd] == [("f0.png", OUTSIDE), ("f3.png", SMALL)]
    assert (part.photographs, part.opened, part.with_faces, part.faces, part.small) == (6, 4, 2, 2, 1)
    assert part.subjects == (1, 1, 2) and part.sides is not None and part.sides[0] < 16
    assert found.regions is not None and found.regions.left_out == {OUTSIDE: 1, SMALL: 1} and found.regions.showing[0] == 2
    shown = look_at_faces(folder, "ytf68", open_images=True, pictured=0)
    text = "\n".join(line for line in shown.lines if isinstance(line, str))
    assert f"{folder / 'images/f1.png'}: {MISSING}" in text and f"all: 1 × {UNREADABLE}" in text
    assert "f3.png, box" in text and "2 of these photographs have no region with a face" in text and shown.sheet is None
    assert shown.body["parts"]["all"]["bad_files"] == [str(folder / "images/f1.png"), str(folder / "images/f2.png")]


def test_without_opening_no_image_is_opened(frames, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = frames(shrunk={3: 0.2})
    monkeypatch.setattr(files, "read_image", lambda path: pytest.fail(f"{path} was opened"))
    found = look_at_faces(folder, "ytf68", open_images=False, pictured=0)
    assert found.body["regions"] is None and not found.body["images_opened"] and found.body["parts"]["all"]["left_out"] == {SMALL: 1}
    assert any("images were not opened" in line for line in found.lines if isinstance(line, str))


def test_splits_that_share_a_photograph(aflw_json: Path) -> None:
    found = inspect_faces(read_faces(aflw_json))
    assert sorted((part.name, part.photographs) for part in found.parts) == [("test", 2), ("train", 3)]
    ((pair, overlap),) = found.overlaps.items()
    assert set(pair.split(" / ")) == {"train", "test"} and overlap.pictures >= 1 and overlap.subjects == 0
    assert all(part.subjects is None and part.posed == 0 and part.attributes == (0, 0) for part in found.parts)
    text = "\n".join(line for line in look_at_faces(aflw_json, "aflw-json", open_images=True, pictured=0).lines if isinstance(line, str))
    assert "cannot be private in one and public or test in the other" in text and "nobody says who is who" in text


def test_what_promises_are_worth(frames, asked) -> None:
    shown = look_at_faces(frames("aaaaaaaabc"), "ytf68", open_images=True, pictured=0)
    (regions, most), (photographs, of_one) = asked
    assert most == shown.body["regions"]["most"] and regions >= 10 and (photographs, of_one) == (10, 8)
    text = "\n".join(line for line in shown.lines if isinstance(line, str))
    assert f"where one region's ε is 1, that of a photograph with {most} regions is {most}" in text and "--unit image" in text
    assert "2 photographs 2" in text and "with 8 no number worth the name" in text and "--unit subject" in text


def test_the_picture_shows_everyone_asked_for(frames) -> None:
    folder = frames()
    read = read_faces(folder)
    wide, tall = sheet_of_faces(read, 6, columns=6, side=80), sheet_of_faces(read, 6, columns=2, side=80)
    assert wide.shape[1] > 6 * 60 and wide.shape[0] < 2 * 80 and tall.shape[0] > 3 * 80 and wide.dtype == np.uint8
    (folder / "images/f2.png").unlink()
    assert sheet_of_faces(read, 6, columns=6, side=80).shape[1] < wide.shape[1]
    for path in (folder / "images").iterdir():
        path.unlink()
    assert (sheet_of_faces(read, 6, side=80) == 255).all()


def test_landmarks_are_drawn_where_they_are(tmp_path: Path, frames) -> None:
    folder = frames("a")
    cv2.imwrite(str(folder / "images/f0.png"), np.zeros((120, 90, 3), np.uint8))
    sheet = sheet_of_faces(read_faces(folder), 1, side=224)
    green = np.argwhere((sheet == (0, 200, 140)).all(2))
    assert len(green) > 100 and np.ptp(green, axis=0).min() > 60


def test_formats_are_found_out(frames, aflw_json: Path, tmp_path: Path, photo, coco_folder) -> None:
    assert find_out_format(frames()) == "ytf68" and find_out_format(aflw_json) == "aflw-json"
    assert find_out_format(coco_folder()) == "coco"
    photo(tmp_path / "pts/a.jpg")
    (tmp_path / "pts/a.pts").write_text("n_points: 68\n{\n" + "\n".join(f"{x} {y}" for x, y in LANDMARKS) + "\n}\n")
    assert find_out_format(tmp_path / "pts") == "landmark-files"
    (tmp_path / "aflw").mkdir()
    sqlite3.connect(tmp_path / "aflw/aflw.sqlite").close()
    assert find_out_format(tmp_path / "aflw") == "aflw"
    (tmp_path / "empty").mkdir()
    with pytest.raises(HalfmaskError, match=r"in no known format \(found nothing\).*Of faces: labels\.csv"):
        find_out_format(tmp_path / "empty")
    assert {"ytf68", "aflw", "aflw-json", "landmark-files"} <= set(INSPECTORS)


def test_through_the_command(frames, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from halfmask.cli.app import main

    def said(*arguments: Any) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(["data", "inspect", *(str(one) for one in arguments)])
        assert not stopped.value.code
        return capsys.readouterr().out

    folder, sheet = frames(), tmp_path / "sheet.png"
    shown = said(folder, "--sheet", sheet, "--people", 2)
    for words in ("format ytf68", "units 'subject'", "gender 0 / 1 / not known", "2 / 2 / 2", "about", str(sheet)):
        assert words in shown
    assert sheet.is_file() and json.loads(said(folder, "--quick", "--json"))["parts"]["all"]["faces"] == 6


def test_rows_that_cannot_be_used_are_shown_to_their_holder(frames, capsys: pytest.CaptureFixture[str]) -> None:
    from halfmask.cli.app import main

    folder = frames()
    labels = folder / "labels.csv"
    labels.write_text(labels.read_text().replace("female", "jane-roe"))
    with pytest.raises(SystemExit) as stopped:
        main(["data", "inspect", str(folder)])
    told = capsys.readouterr()
    assert stopped.value.code == 2 and "'f1.png'" in told.out and "jane-roe" in told.out
    assert "jane-roe" not in told.err and "2 of 6 rows cannot be used" in told.err
