from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.anonymise import Pipeline, anonymise, no_avatar
from halfmask.data.anonymised import NO_MASK, NO_POSE, avatar_key, sheet_of_stages, write_anonymised
from halfmask.data.clip_folder import read_clip_folder
from halfmask.data.clip_masks import OwnMasks
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.figures.clips import Clips
from halfmask.errors import HalfmaskError


class Poses:
    words = "made up"

    def __init__(self) -> None:
        self.clips: dict[str, np.ndarray | None] = {}

    def __call__(self, take: Take, film: Film) -> np.ndarray | None:
        return self.clips[take.name]


@pytest.fixture(scope="module")
def made() -> tuple[ClipSet, dict[str, np.ndarray]]:
    world, takes, joints = Clips("private", size=(64, 64), frames=4), [], {}
    for number in range(4):
        drawn = world.clip(number)
        film = Film(drawn.frames, drawn.person)
        name = f"ward/{number}"
        takes.append(Take(name, ("walk", "sit")[number % 2], lambda film=film: film, f"video{number // 2}", f"anna{number}"))
        joints[name] = drawn.joints.astype(float)
    splits = {"private": frozenset(["ward/0", "ward/1"]), "test": frozenset(["ward/2"])}
    return ClipSet("ward", tuple(takes), ("walk", "sit", "lie"), splits, masks="exact"), joints


def poses(joints: dict[str, np.ndarray]) -> Poses:
    source = Poses()
    source.clips.update(joints)
    return source


def test_a_folder_holds_what_anonymise_makes_bit_for_bit(made, tmp_path: Path) -> None:
    clips, joints = made
    written = write_anonymised(clips, tmp_path / "out", OwnMasks("exact"), poses(joints), shown=2)
    assert written.clips == 4 and written.avatars == 2 and not written.left_out and len(written.shown) == 2
    found = read_clip_folder(tmp_path / "out")
    assert found.name == "ward" and found.classes == clips.classes and dict(found.splits) == dict(clips.splits)
    assert "avatar covers a pixel wholly" in found.masks and "made up" in found.masks
    for take, original in zip(found.takes, clips.takes, strict=True):
        assert (take.name, take.label, take.video, take.subject) == (original.name, original.label, original.video, original.subject)
        film, expected = take.read(), anonymise(original.read(), joints[original.name], original.video)
        np.testing.assert_array_equal(film.frames, expected.frames)
        np.testing.assert_array_equal(film.person, expected.person)
        assert film.blended == 0
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["mask"] == "person"
    # Nothing else is left beside it.
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_clips_without_a_mask_or_a_pose_are_left_out_and_counted(made, tmp_path: Path) -> None:
    clips, joints = made
    film = clips.takes[0].read()
    nobody = replace(clips.takes[0], read=lambda: replace(film, person=None))
    empty = replace(clips.takes[1], read=lambda: replace(film, person=np.zeros_like(film.person)))
    some = replace(clips, takes=(nobody, empty, *clips.takes[2:]))
    source = poses(joints | {"ward/2": np.full((4, 16, 2), np.nan)})
    written = write_anonymised(some, tmp_path / "out", OwnMasks("exact"), source)
    assert written.left_out == {NO_MASK: 2, NO_POSE: 1}
    assert [take.name for take in read_clip_folder(tmp_path / "out").takes] == ["ward/3"]
    assert not (tmp_path / "out" / "frames" / "ward" / "2").exists()
    source.clips["ward/3"] = None
    with pytest.raises(HalfmaskError, match="not one clip could be anonymised"):
        write_anonymised(some, tmp_path / "none", OwnMasks("exact"), source)
    assert not (tmp_path / "none").exists()


def test_people_can_be_removed_without_an_avatar(made, tmp_path: Path) -> None:
    clips, _ = made
    written = write_anonymised(clips, tmp_path / "out", OwnMasks("exact"), None, Pipeline(draw=no_avatar))
    assert written.clips == 4 and written.covered == 0
    film = read_clip_folder(tmp_path / "out").takes[0].read()
    assert film.person is not None and not film.person.any()


def test_nothing_is_written_over_and_a_failure_leaves_nothing(made, tmp_path: Path) -> None:
    clips, joints = made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    with pytest.raises(HalfmaskError, match="not empty: nothing was written"):
        write_anonymised(clips, tmp_path / "full", OwnMasks("exact"), poses(joints))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]

    def broken() -> Film:
        raise HalfmaskError("a video cannot be read")

    bad = replace(clips, takes=(*clips.takes, replace(clips.takes[0], name="ward/9", read=broken)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(HalfmaskError, match="cannot be read"):
        write_anonymised(bad, tmp_path / "empty", OwnMasks("exact"), poses(joints))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"] and not any((tmp_path / "empty").iterdir())
    write_anonymised(clips, tmp_path / "empty", OwnMasks("exact"), poses(joints))
    assert len(read_clip_folder(tmp_path / "empty").takes) == 4


def test_avatars_go_by_video_subject_or_clip(made) -> None:
    take = made[0].takes[3]
    assert [avatar_key(take, by) for by in ("video", "subject", "clip")] == ["video1", "anna3", "ward/3"]
    with pytest.raises(HalfmaskError, match="nobody says whom a clip shows"):
        avatar_key(replace(take, subject=None), "subject")
    with pytest.raises(HalfmaskError, match="unknown way to give avatars"):
        avatar_key(take, "label")


def test_a_sheet_shows_real_people_only_if_it_is_asked_to(made, tmp_path: Path) -> None:
    clips, joints = made
    shown = write_anonymised(clips, tmp_path / "out", OwnMasks("exact"), poses(joints), shown=3).shown
    others = [(replace(film, frames=255 - film.frames), stages) for film, stages in shown]
    np.testing.assert_array_equal(sheet_of_stages(shown, real=False), sheet_of_stages(others, real=False))
    assert (sheet_of_stages(shown, real=True) != sheet_of_stages(others, real=True)).any()
