"""Our own folder of clips: what is written comes back bit for bit."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from halfmask.data.clip_folder import ClipFolderWriter, detect_clip_folder, read_clip_folder, write_clip
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError


def film_of(seed: int = 0, frames: int = 4) -> Film:
    rng = np.random.default_rng(seed)
    mask = np.zeros((frames, 24, 30), bool)
    mask[:, 6:20, 8 + seed : 16 + seed] = True
    return Film(rng.integers(0, 256, (frames, 24, 30, 3), dtype=np.uint8), person=mask, protected=~mask, blended=0)


@pytest.fixture
def folder(tmp_path):
    writer = ClipFolderWriter(tmp_path / "written", name="a source", masks="drawn by hand", blended=0, fps=10, classes=("run", "jump"))
    for number, split in enumerate(("private", "private", "test")):
        take = Take(
            f"{'ab'[number % 2]}/clip {number}.avi", ("jump", "run")[number % 2], film_of, f"video {number}", f"person {number % 2}"
        )
        writer.add(take, film_of(number), split)
    return writer.finish()


def test_what_was_written_comes_back_bit_for_bit(folder) -> None:
    assert detect_clip_folder(folder)
    clips = read_clip_folder(folder)
    assert (clips.name, clips.masks, clips.classes) == ("a source", "drawn by hand", ("run", "jump"))
    assert clips.splits == {"private": frozenset({"a/clip 0.avi", "b/clip 1.avi"}), "test": frozenset({"a/clip 2.avi"})}
    assert [(take.label, take.video, take.subject) for take in clips.takes][1] == ("run", "video 1", "person 1")
    for number, take in enumerate(clips.takes):
        film, expected = take.read(), film_of(number)
        np.testing.assert_array_equal(film.frames, expected.frames)
        np.testing.assert_array_equal(film.person, expected.person)
        assert film.blended == 0 and film.protected is None and film.frames.dtype == np.uint8
    about = json.loads((folder / "dataset.json").read_text())
    assert about["fps"] == 10 and about["mask"] == "person"


def test_masks_of_what_is_protected(tmp_path) -> None:
    writer = ClipFolderWriter(tmp_path, mask="protected")
    writer.add(Take("one", "run", film_of), film_of(3))
    film = read_clip_folder(writer.finish()).takes[0].read()
    np.testing.assert_array_equal(film.protected, film_of(3).protected)
    assert film.person is None and film.blended == 1


def test_more_than_a_thousand_frames_stay_in_order(tmp_path) -> None:
    frames = np.zeros((1002, 2, 2, 3), np.uint8)
    frames[:, 0, 0, 0], frames[:, 0, 0, 1] = np.arange(1002) % 256, np.arange(1002) // 256
    writer = ClipFolderWriter(tmp_path)
    writer.add(Take("long", "run", film_of), Film(frames))
    film = read_clip_folder(writer.finish()).takes[0].read()
    np.testing.assert_array_equal(film.frames, frames)
    assert film.person is None


def test_a_table_alone_is_enough_with_videos_and_masks_in_archives(tmp_path) -> None:
    (tmp_path / "clips.csv").write_text("clip,label\none,run\n")
    (tmp_path / "clips").mkdir()
    (tmp_path / "masks").mkdir()
    film = film_of()
    video = cv2.VideoWriter(str(tmp_path / "clips" / "one.avi"), cv2.VideoWriter_fourcc(*"FFV1"), 10, (30, 24))
    for frame in film.frames:
        video.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    video.release()
    np.savez_compressed(tmp_path / "masks" / "one.npz", mask=film.person)
    clips = read_clip_folder(tmp_path)
    (take,) = clips.takes
    assert (clips.name, clips.classes, take.video, take.subject, clips.splits) == (tmp_path.name, ("run",), "one", None, {})
    assert clips.masks == "mask files of the dataset"
    found = take.read()
    assert found.frames.shape == film.frames.shape
    np.testing.assert_array_equal(found.person, film.person)


def test_what_is_made_of_a_clip_is_made_again_when_a_file_of_it_changes(folder) -> None:
    take = read_clip_folder(folder).takes[0]
    before = take.read.stamp
    assert before == read_clip_folder(folder).takes[0].read.stamp
    cv2.imwrite(str(folder / "masks" / take.name / "000.png"), np.zeros((24, 30, 3), np.uint8))
    assert take.read.stamp != before
    for path in (folder / "frames" / take.name).iterdir():
        path.unlink()
    with pytest.raises(HalfmaskError, match="neither frames nor a video") as refused:
        take.read()
    assert "clip 0" not in str(refused.value)


def test_nothing_is_written_outside_the_folder_or_over_another_dataset(folder, tmp_path) -> None:
    for name in ("../out", "/out", "", "a\\b"):
        with pytest.raises(HalfmaskError, match="leads out of its dataset folder, or is empty"):
            write_clip(tmp_path / "other", name, film_of())
    assert not (tmp_path / "out").exists()
    with pytest.raises(HalfmaskError, match="holds clips already"):
        ClipFolderWriter(folder)
    with pytest.raises(HalfmaskError, match="expected person or protected"):
        ClipFolderWriter(tmp_path / "other", mask="face")


def test_tables_that_cannot_be_used_are_refused_without_a_name(tmp_path) -> None:
    with pytest.raises(HalfmaskError, match=r"has no clips\.csv"):
        read_clip_folder(tmp_path)
    (tmp_path / "clips.csv").write_text("name,label\na,run\n")
    with pytest.raises(HalfmaskError, match="lacks the columns clip"):
        read_clip_folder(tmp_path)
    (tmp_path / "clips.csv").write_text("clip,label\nJane,run\nJane,run\nJohn,\n../x,run\n")
    with pytest.raises(HalfmaskError, match="3 of 4 clips cannot be used: 1 × the name of another clip; 1 × no label") as refused:
        read_clip_folder(tmp_path)
    assert "Jane" not in str(refused.value) and "John" not in str(refused.value)
    (tmp_path / "clips.csv").write_text("clip,label\nJane,run\n")
    for about in ({"mask": "face"}, {"blended": -1}, {"blended": "wide"}, {"masks": 3}, {"classes": "run"}):
        (tmp_path / "dataset.json").write_text(json.dumps(about))
        with pytest.raises(HalfmaskError, match=f"{next(iter(about))} is .* that will not do: expected"):
            read_clip_folder(tmp_path)
