"""Video files: their frames, how long ones are thinned, and what is said of damaged ones."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import halfmask.data.video as reading
from halfmask.data.video import VideoFile, brightened, iterate_video, read_thinned, read_video, video_facts
from halfmask.errors import HalfmaskError

NAME = "jane-roe"
Video = Callable[..., Path]


def greys(frames: np.ndarray) -> list[int]:
    """Which frames they are: each is brighter by 7 than the one before."""
    return [round(float(np.median(frame[12:])) / 7) for frame in frames]


def test_frames_come_in_order_and_red_first(video: Video, tmp_path: Path) -> None:
    frames = read_video(video(tmp_path / "a.avi", 10))
    assert frames.shape == (10, 24, 32, 3) and frames.dtype == np.uint8
    assert greys(frames) == list(range(10))
    red, green, blue = frames[5, 3, 3].astype(int)
    assert red > 200 and green < 60 and blue < 60
    np.testing.assert_array_equal(np.stack(list(iterate_video(tmp_path / "a.avi"))), frames)


def test_some_frames_of_a_video(video: Video, tmp_path: Path) -> None:
    path = video(tmp_path / "a.avi", 12)
    assert greys(read_video(path, 3, 8)) == [3, 4, 5, 6, 7]
    assert greys(read_video(path, 10)) == [10, 11]
    assert greys(VideoFile(path, 2, 5)().frames) == [2, 3, 4]
    with pytest.raises(HalfmaskError, match="start < stop"):
        read_video(path, 5, 5)
    with pytest.raises(HalfmaskError, match="no frames"):
        read_video(path, 50)


@pytest.mark.parametrize(("count", "most", "stride"), [(9, 9, 1), (10, 9, 2), (18, 9, 2), (19, 9, 4), (36, 9, 4), (37, 9, 8), (5, 1, 8)])
def test_long_videos_are_thinned_evenly(video: Video, tmp_path: Path, count: int, most: int, stride: int) -> None:
    frames, found = read_thinned(video(tmp_path / "a.avi", count), most=most)
    assert (found, greys(frames)) == (stride, list(range(0, count, stride)))
    assert len(frames) <= most


def test_thinning_counts_from_the_first_frame_asked_for(video: Video, tmp_path: Path) -> None:
    frames, stride = read_thinned(video(tmp_path / "a.avi", 20), 3, 17, most=8)
    assert (stride, greys(frames)) == (2, list(range(3, 17, 2)))


def test_large_frames_are_kept_in_smaller_numbers(video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = video(tmp_path / "a.avi", 30)
    monkeypatch.setattr(reading, "_MOST_BYTES", 10 * 24 * 32 * 3)
    monkeypatch.setattr(reading, "_FEWEST", 4)
    assert greys(read_video(path)) == list(range(0, 30, 4))
    monkeypatch.setattr(reading, "_FEWEST", 16)
    assert greys(read_video(path)) == list(range(0, 30, 2)), "a network needs some frames, however large they are"


def test_the_header_is_read_without_decoding(video: Video, tmp_path: Path) -> None:
    facts = video_facts(video(tmp_path / "a.avi", 7))
    assert (facts.frames, facts.size, facts.rate) == (7, (24, 32), 10)


def damaged(path: Path, how: str, video: Video) -> None:
    if how == "missing":
        return
    whole = video(path.with_name("whole.avi"), 40, (48, 64)).read_bytes()
    path.write_bytes({"empty": b"", "noise": np.random.default_rng(0).bytes(4000), "cut": whole[: len(whole) // 4]}[how])


@pytest.mark.parametrize("how", ["missing", "empty", "noise", "cut"])
def test_damage_is_told_without_a_name(video: Video, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str) -> None:
    path = tmp_path / f"{NAME}.avi"
    damaged(path, how, video)
    for read in (read_video, video_facts, lambda one: VideoFile(one)(), lambda one: list(iterate_video(one))):
        with pytest.raises(HalfmaskError, match=r"a video (file is missing|cannot be read|has no frames|breaks off).*[Rr]estore") as caught:
            read(path)
        assert NAME not in str(caught.value)
    # OpenCV prints by itself; not who it is.
    assert NAME not in "".join(capfd.readouterr())


def test_a_film_that_breaks_off_is_no_film(video: Video, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = video(tmp_path / "a.avi", 20)
    real = reading._retrieved
    told = iter(range(100))
    monkeypatch.setattr(reading, "_retrieved", lambda capture: real(capture) if next(told) < 6 else None)
    with pytest.raises(HalfmaskError, match="breaks off after 6 of 20 frames"):
        read_video(path)


def test_a_file_as_a_clips_read(video: Video, tmp_path: Path) -> None:
    path = video(tmp_path / "a.avi")
    file = pickle.loads(pickle.dumps(VideoFile(path)))
    film = file()
    np.testing.assert_array_equal(film.frames, read_video(path))
    assert film.person is None and film.protected is None
    before = file.stamp
    assert before == VideoFile(path).stamp
    # What is made of a file read otherwise is another thing.
    assert len({before, VideoFile(path, 1).stamp, VideoFile(path, gamma=0.4).stamp, VideoFile(path, most=3).stamp}) == 4
    os.utime(path, ns=(1, 1))
    assert file.stamp != before


def test_brightening_is_a_map_of_each_byte_by_itself(video: Video, tmp_path: Path) -> None:
    frames = np.arange(256, dtype=np.uint8).repeat(3).reshape(2, 8, 16, 3)
    bright = brightened(frames, 0.4)
    assert bright.shape == frames.shape and bright.dtype == np.uint8
    np.testing.assert_array_equal(bright[..., 0].ravel(), np.round(255 * (np.arange(256) / 255) ** 0.4))
    np.testing.assert_array_equal(brightened(frames, 1), frames)
    # Nothing is measured on a clip: a frame is brightened alike, whatever the others and its other pixels are.
    for elsewhere in (0, 255):
        other = frames.copy()
        other[1], other[0, :4] = elsewhere, elsewhere
        np.testing.assert_array_equal(brightened(other, 0.4)[0, 4:], bright[0, 4:])
    path = video(tmp_path / "a.avi")
    np.testing.assert_array_equal(VideoFile(path, gamma=0.4)().frames, brightened(read_video(path), 0.4))
    with pytest.raises(HalfmaskError, match="gamma"):
        brightened(frames, 0)
