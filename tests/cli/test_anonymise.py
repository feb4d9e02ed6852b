"""`halfmask data anonymise`: the real command on clips that were drawn, and on a folder of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.clip_folder import read_clip_folder, write_clip
from halfmask.data.clips import Film
from halfmask.data.figures.clips import Clips
from halfmask.data.images import read_image

DRAWN = ("--frames", 4, "--size", 64)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clips with masks and joints, as a data holder has them."""
    folder = tmp_path_factory.mktemp("ward")
    clips, joints = Clips("private", size=(64, 64), frames=4), {}
    for number in range(2):
        drawn = clips.clip(number)
        write_clip(folder, f"anna{number}", Film(drawn.frames, drawn.person))
        joints[f"anna{number}"] = drawn.joints
    (folder / "clips.csv").write_text("clip,label,split,video,subject\nanna0,walk,private,,\nanna1,sit,test,,\n")
    np.savez(folder / "joints.npz", **joints)
    return folder


def test_drawn_clips_become_a_folder_and_a_sheet(halfmask, tmp_path: Path) -> None:
    out, before = tmp_path / "out", tmp_path / "before.png"
    result = halfmask("data", "anonymise", "figures:private:5", out, *DRAWN, "--sheet", 2, "--before", before)
    assert result.code == 0, result.err
    assert "5 clips" in result.out and str(out / "contact-sheet.png") in result.out and "it shows real people" in result.out
    clips = read_clip_folder(out)
    film = clips.takes[0].read()
    assert len(clips.takes) == 5 and film.frames.shape == (4, 64, 64, 3) and film.blended == 0
    assert film.person is not None and film.person.any()
    assert read_image(out / "contact-sheet.png").shape[0] > 100 and read_image(before).shape[0] > 100


def test_poses_of_drawn_clips_are_those_they_were_drawn_in(halfmask, tmp_path: Path) -> None:
    drawn = Clips("private", size=(64, 64), frames=4)
    halfmask("data", "anonymise", "figures:private:3", tmp_path / "out", *DRAWN)
    for number, take in enumerate(read_clip_folder(tmp_path / "out").takes):
        mask, avatar = drawn.clip(number).person, take.read().person
        assert (mask & avatar).sum() > 0.4 * mask.sum()


def test_a_folder_of_ones_own_with_joints_from_a_file(halfmask, ward: Path, tmp_path: Path) -> None:
    result = halfmask("data", "anonymise", ward, tmp_path / "out", "--joints", ward / "joints.npz", "--avatar-by", "clip", "--json")
    body = json.loads(result.out)
    assert body["clips"] == 2 and body["left_out"] == {} and 0 < body["avatar_share"] < 0.6
    assert {split: set(names) for split, names in read_clip_folder(tmp_path / "out").splits.items()} == {
        "private": {"anna0"},
        "test": {"anna1"},
    }


def test_nobody_to_draw_removes_people_only_if_it_is_asked_to(halfmask, ward: Path, tmp_path: Path) -> None:
    refused = halfmask("data", "anonymise", ward, tmp_path / "out")
    assert "--joints FILE" in refused.error and "--avatar none" in refused.error and not (tmp_path / "out").exists()
    result = halfmask("data", "anonymise", ward, tmp_path / "out", "--avatar", "none", "--room", "frames", "--json")
    assert json.loads(result.out)["avatar_share"] == 0
    assert not read_clip_folder(tmp_path / "out").takes[0].read().person.any()


def test_clips_without_poses_are_left_out_aloud(halfmask, ward: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", anna1=np.load(ward / "joints.npz")["anna1"])
    result = halfmask("data", "anonymise", ward, tmp_path / "out", "--joints", tmp_path / "one.npz")
    assert result.code == 0 and "left out: 1 with no pose of the person" in result.err
    assert "anna" not in result.err + result.out
    assert [take.name for take in read_clip_folder(tmp_path / "out").takes] == ["anna1"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--joints", "a.npz", "--pose", "embedded"), "both --joints and --pose"),
        (("--joints", "a.npz"), "no joints at"),
        (("--masks", "none", "--avatar", "none"), "nobody could be removed"),
        (("--masks", "files", "--avatar", "none"), "where they are"),
        (("--masks", "eyes", "--avatar", "none"), "unknown source of masks"),
        (("--avatar", "none", "--room", "glue"), "unknown way to fill in the room"),
        (("--avatar", "none", "--method", "glue"), "unknown way of inpainting"),
        (("--avatar", "smpl", "--pose", "embedded"), "unknown avatar"),
        (("--avatar", "none", "--avatar-by", "subject"), "nobody says whom a clip shows"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(halfmask, ward: Path, tmp_path: Path, options, told: str) -> None:
    assert told in halfmask("data", "anonymise", ward, tmp_path / "out", *options).error
    assert not (tmp_path / "out").exists()


def test_real_people_are_not_shown_inside_the_folder(halfmask, ward: Path, tmp_path: Path) -> None:
    result = halfmask("data", "anonymise", ward, tmp_path / "out", "--avatar", "none", "--before", tmp_path / "out" / "a.png")
    assert "shows real people" in result.error and not (tmp_path / "out").exists()


def test_a_bad_name_of_drawn_clips_is_refused(halfmask, tmp_path: Path) -> None:
    for source in ("figures:private:none", "figures:private:0", "figures:private:3:4"):
        assert "figures:POPULATION:COUNT" in halfmask("data", "anonymise", source, tmp_path / "out").error
    assert "unknown population" in halfmask("data", "anonymise", "figures:nobody:3", tmp_path / "out").error
