"""Looking at a dataset of clips: counts, damage, units, masks, and filmstrips with the protected part tinted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from halfmask.cli.app import app
from halfmask.cli.inspection_clips import look_at_clips
from halfmask.data.clip_masks import mask_source
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.inspect_clips import (
    ALL_HIDDEN,
    DAMAGED,
    GONE,
    MASK_DAMAGED,
    MASK_DIFFERS,
    NONE_HIDDEN,
    Protection,
    inspect_clips,
    sheet_of_clips,
)
from halfmask.data.inspectors import INSPECTORS, find_out_format
from halfmask.data.video_sets import VIDEO_FORMATS, read_video_set
from halfmask.errors import HalfmaskError
from halfmask.report.filmstrip import filmstrip

Video = Callable[..., Path]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For whom the accountant was asked; a stand-in answers, at once."""
    whom: list[tuple[int, int]] = []

    def cost(people: int, most: int) -> dict[int, float]:
        whom.append((people, most))
        return {size: float(size) for size in range(1, min(most, 6) + 1)} if most > 1 else {}

    monkeypatch.setattr("halfmask.data.inspect_clips.image_cost", cost)
    return whom


@pytest.fixture
def folder(tmp_path: Path, video: Video) -> Path:
    """UCF101 with two classes; one clip is damaged, and one is in no list."""
    lists = tmp_path / "lists"
    lists.mkdir()
    clips = [f"{label}/v_{label}_g0{group}_c0{clip}.avi" for label in ("Archery", "Yoga") for group in (1, 2) for clip in (1, 2)]
    for number, clip in enumerate(clips):
        video(tmp_path / clip, 4 + 6 * number, seed=number)
    video(tmp_path / "Yoga" / "v_Yoga_g07_c01.avi", 9)
    (tmp_path / clips[1]).write_bytes(b"nothing")
    (lists / "trainlist01.txt").write_text("\n".join(f"{clip} 1" for clip in clips if "Yoga" not in clip or "g01_c01" in clip))
    (lists / "testlist01.txt").write_text("\n".join(clip for clip in clips if "Yoga" in clip and "g01_c01" not in clip))
    return tmp_path


def clips_of(masks: list[dict[str, Any]], frames: int = 6) -> ClipSet:
    """A clip for each mask, of bright frames."""

    def read(fields: dict[str, Any]) -> Callable[[], Film]:
        return lambda: Film(np.full((frames, 20, 24, 3), 200, np.uint8), **fields)

    takes = tuple(Take(f"clip {number}", "abc"[number % 3], read(fields), f"v{number}") for number, fields in enumerate(masks))
    return ClipSet("own", takes, tuple(sorted({take.label for take in takes})), masks="drawn")


def square(frames: int = 6, height: int = 20, width: int = 24) -> np.ndarray:
    mask = np.zeros((frames, height, width), bool)
    mask[:, 5:15, 6:16] = True
    return mask


def test_what_is_there_and_what_is_wrong(folder: Path, asked: list[tuple[int, int]]) -> None:
    look = look_at_clips(folder, "ucf101", open_images=True, pictured=0)
    train, test = look.body["parts"]["train"], look.body["parts"]["test"]
    assert look.body["clips"] == 9 and look.body["in_no_split"] == 1 and look.body["classes"] == ["Archery", "Yoga"]
    assert (train["clips"], train["units"]) == (5, {"clip": 4, "video": 3, "subject": None})
    assert train["classes"] == {"Archery": 3, "Yoga": 1} and test["classes_missing"] == ["Archery"]
    assert train["left_out"] == {DAMAGED: 1} and train["bad_clips"] == [{"clip": "Archery/v_Archery_g01_c02.avi", "reason": DAMAGED}]
    assert train["frames"] == {"fewest": 4, "median": 19, "most": 28} and test["rows"] == {"fewest": 24, "median": 24, "most": 24}
    assert train["shorter_than"] == {"8": 1, "16": 1, "32": 4}
    assert look.body["in_several_splits"] == {"video": 1}, "Yoga_g01 is on both sides"
    assert train["masks"] == {"clips": 0, "protected_share": None}
    assert asked[0] == (4, 2), "for the clips that can be learnt, and the video with most of them"
    text = "\n".join(line for line in look.lines if isinstance(line, str))
    for told in (
        "1 clips are in none of the dataset's own splits",
        "1 × video cannot be read",
        "v_Archery_g01_c02.avi",
        "test: no clip of 1 of 2 classes: Archery",
        "1 videos have clips in several splits",
        "no clip has a mask",
        "train with --unit video",
        "nobody says who is who",
    ):
        assert told in text, told


def test_files_that_go_between_reading_and_opening(tmp_path: Path, video: Video) -> None:
    for who in ("ido", "ira"):
        video(tmp_path / "walk" / f"{who}_walk.avi")
    clips = read_video_set(tmp_path)
    (tmp_path / "walk" / "ira_walk.avi").unlink()
    found = inspect_clips(clips, tmp_path, "weizmann")
    (part,) = found.parts
    assert [(one.image, one.reason) for one in part.bad] == [("walk/ira_walk.avi", GONE)]
    assert (part.name, part.subjects, part.opened) == ("all", (1,), 1)
    assert len(sheet_of_clips(clips, 2)) < 150, "one strip is left"
    (tmp_path / "walk" / "ido_walk.avi").unlink()
    with pytest.raises(HalfmaskError, match="no clip can be read"):
        sheet_of_clips(clips)


def test_quick_opens_nothing(folder: Path) -> None:
    look = look_at_clips(folder, "ucf101", open_images=False, pictured=0)
    train = look.body["parts"]["train"]
    assert train["units"]["clip"] == 5 and train["frames"] is None and not train["bad_clips"]
    assert any("were not opened" in line for line in look.lines if isinstance(line, str))


def test_masks_are_measured_and_those_that_do_not_fit_are_named() -> None:
    masks: list[dict[str, Any]] = [
        {"person": square(), "blended": 0},
        {"person": square(5)},
        {"person": square(width=25)},
        {"person": np.zeros((6, 20, 24), bool)},
        {"protected": np.zeros((6, 20, 24), bool)},
        {},
        {"protected": square()},
    ]
    found = inspect_clips(clips_of(masks), Path("somewhere"), "clips")
    (part,) = found.parts
    assert [(one.image, one.reason) for one in part.odd] == [
        ("clip 1", MASK_DIFFERS),
        ("clip 2", MASK_DIFFERS),
        ("clip 3", ALL_HIDDEN),
        ("clip 4", NONE_HIDDEN),
    ]
    outside, inside = 1 - 100 / 480, 100 / 480
    assert part.masked == 4 and part.hidden == pytest.approx((outside + 1 + 0 + inside) / 4, abs=1e-4)
    assert found.masks == "drawn" and found.to_json()["masks"] == "drawn"


def test_what_is_protected_is_what_training_would_protect() -> None:
    film = Film(np.zeros((6, 20, 24, 3), np.uint8), person=square(), protected=~square(), blended=1)
    background, person, mask = (Protection(protect).hidden(film) for protect in ("background", "person", "mask"))
    # The outline is protected on whichever side it lies.
    assert (~background[0]).sum() == 8 * 8 and person[0].sum() == 12 * 12 and (~mask[0]).sum() == 100
    assert Protection("person", margin=2).hidden(film)[0].sum() == 16 * 16
    np.testing.assert_array_equal(Protection().hidden(film), background)
    np.testing.assert_array_equal(Protection().hidden(replace(film, person=None)), mask)
    assert Protection("person").hidden(replace(film, person=None)) is None


def test_a_mask_that_cannot_be_read_is_its_own_fault() -> None:
    class Broken:
        kind, words, key = "files", "files", "files"

        def __call__(self, take: Take, film: Film) -> Film:
            if take.name == "clip 1":
                raise HalfmaskError("damaged")
            return replace(film, person=square())

        def stamp(self, take: Take) -> str:
            return ""

    found = inspect_clips(clips_of([{}, {}, {}]), Path("somewhere"), "clips", protection=Protection("background", Broken()))
    (part,) = found.parts
    assert [(one.image, one.reason) for one in part.odd] == [("clip 1", MASK_DAMAGED)] and part.masked == 2 and found.masks == "files"


def test_the_sheet_tints_what_is_protected_and_shows_every_class() -> None:
    clips = clips_of([{"person": square(), "blended": 0}] * 7)
    page = sheet_of_clips(clips, 3, height=20)
    strip = filmstrip(np.full((6, 20, 24, 3), 200, np.uint8), ~square())
    tops = [top for top in range(len(page) - 20) if (page[top : top + 20, 8 : 8 + strip.shape[1]] == strip).all()]
    assert len(tops) == 3
    assert page.shape == sheet_of_clips(clips, 3, height=20).shape
    assert sheet_of_clips(clips, 50, height=20).shape[0] > 2 * len(page), "as many as there are"
    bare = sheet_of_clips(clips_of([{}]), height=20)
    assert not ((bare[..., 0].astype(int) - bare[..., 1]) > 60).any(), "nothing is tinted where nothing is known"


def test_every_format_of_clips_can_be_inspected(folder: Path, tmp_path: Path) -> None:
    assert {"clips", *VIDEO_FORMATS} <= set(INSPECTORS)
    assert find_out_format(folder) == "ucf101"
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(HalfmaskError, match=r"Of faces: .*Of clips: clips\.csv.*ucf101"):
        find_out_format(empty)


def test_the_command(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "out" / "strips.png"
    command = ["data", "inspect", str(folder), "--sheet", str(picture), "--people", "4", "--masks", "motion", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert body["format"] == "ucf101" and body["sheet"] == str(picture) and "estimate by motion" in body["masks"]
    assert cv2.imread(str(picture)) is not None
    plain = CliRunner().invoke(app, ["data", "inspect", str(folder), "--quick"])
    assert plain.exit_code == 0 and "Clips of each class" in plain.stdout


def test_options_of_clips_are_refused_elsewhere(tmp_path: Path, lsp_folder: Callable[..., Path]) -> None:
    result = CliRunner().invoke(app, ["data", "inspect", str(lsp_folder()), "--masks", "motion", "--protect", "person"])
    assert result.exit_code != 0
    assert "is for clips" in str(result.exception) + result.output


def test_unknown_masks_are_refused(folder: Path) -> None:
    with pytest.raises(HalfmaskError, match="source of masks"):
        look_at_clips(folder, "ucf101", open_images=False, pictured=0, masks="magic")
    with pytest.raises(HalfmaskError, match="part to protect"):
        look_at_clips(folder, "ucf101", open_images=False, pictured=0, masks="motion", protect="hats")


def test_the_real_thing(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("weizmann")
    everything = read_video_set(folder)
    some = replace(everything, takes=everything.takes[::10])
    protection = Protection("person", mask_source("motion", "person"), 2)
    (part,) = inspect_clips(some, folder, "weizmann", protection=protection).parts
    assert (part.opened, len(part.videos), part.frames is not None, part.bad) == (9, 9, True, ())
    assert part.masked == 9 and part.hidden is not None and 0.02 < part.hidden < 0.2
    assert sheet_of_clips(some, 3, protection).shape[0] > 300
