"""Windows along a video, labels over time, and what is drawn of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.tasks.action_video import _windowed, annotate, colour_of, label_over_time, segments, summary_of, windows

CLASSES = ("dark", "grey", "bright")


def video(*levels: tuple[int, int], size: tuple[int, int] = (24, 32)) -> np.ndarray:
    """So many frames of each level of brightness."""
    return np.concatenate([np.full((count, *size, 3), level, np.uint8) for count, level in levels])


def by_brightness(clips: np.ndarray) -> np.ndarray:
    """Sure of dark, grey or bright by the mean of a clip."""
    assert clips.dtype == np.uint8 and clips.ndim == 5 and clips.shape[2] == 3
    apart = -np.abs(clips.reshape(len(clips), -1).mean(1)[:, None] - np.array([0, 128, 255])) / 16
    odds = np.exp(apart - apart.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def small(frame: np.ndarray) -> np.ndarray:
    return frame[:8, :8]


def labelled(frames: np.ndarray, **options: object) -> dict:
    return label_over_time(by_brightness, frames, 10.0, CLASSES, small, 4, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 3, 19, 20, 21, 29, 30, 35, 64])
@pytest.mark.parametrize("stride", [None, 0.3, 2.0, 3.0])
def test_windows_as_frames_come_are_those_of_the_whole(count: int, stride: float | None) -> None:
    expected = windows(count, 10.0, 2.0, stride)
    assert expected[-1][1] == count and expected[0][0] == 0
    step = 10 if stride is None else round(10 * stride)
    numbers = [np.full((1, 1, 3), number) for number in range(count)]
    found = list(_windowed(numbers, lambda frame: frame, 20, step))
    assert [(start, stop) for start, stop, _ in found] == expected
    assert all([int(frame[0, 0, 0]) for frame in held] == list(range(start, stop)) for start, stop, held in found)


def test_frames_are_picked_as_those_of_a_dataset() -> None:
    seen = []

    def classify(clips: np.ndarray) -> np.ndarray:
        seen.extend(clips[:, :, 0, 0, 0].tolist())
        return by_brightness(clips)

    numbered = video(*((1, number) for number in range(35)))
    label_over_time(classify, numbered, 10.0, CLASSES, small, 8)
    expected = [[start + int((k + 0.5) * (stop - start) / 8) for k in range(8)] for start, stop in windows(35, 10.0)]
    assert seen == expected and expected[-1][-1] > 30


def test_labels_change_where_the_video_does() -> None:
    found = labelled(video((40, 0), (40, 255), (40, 128)), seconds=1.0)
    runs = found["segments"]
    assert [run["label"] for run in runs if run["end"] - run["start"] > 1.5] == ["dark", "bright", "grey"]
    assert runs[0]["start"] == 0 and runs[-1]["end"] == found["duration"] == 12
    assert all(first["end"] == second["start"] for first, second in itertools.pairwise(runs))
    starts = {run["label"]: run["start"] for run in reversed(runs)}
    assert abs(starts["bright"] - 4) <= 0.5
    assert len(found["windows"]) == 23 and found["windows"][0]["label"] == "dark" and found["windows"][0]["probability"] > 0.99
    assert [one["label"] for one in found["windows"][0]["top"]] == ["dark", "grey", "bright"]


def test_a_video_shorter_than_a_window_or_a_clip_is_one_segment() -> None:
    found = labelled(video((3, 255)))
    assert [(run["start"], run["end"], run["label"]) for run in found["segments"]] == [(0.0, 0.3, "bright")]


def test_windows_that_leave_gaps_still_label_every_moment() -> None:
    found = labelled(video((40, 0), (40, 255)), seconds=1.0, stride=3.0)
    assert found["segments"][0]["start"] == 0 and found["segments"][-1]["end"] == 8
    assert [run["label"] for run in found["segments"]] == ["dark", "bright"]


def test_no_more_frames_are_held_than_a_window_has() -> None:
    alive: list[int] = []

    def frames() -> Iterator[np.ndarray]:
        for _ in range(200):
            yield np.zeros((8, 8, 3), np.uint8)

    def classify(clips: np.ndarray) -> np.ndarray:
        alive.append(clips.nbytes)
        return by_brightness(clips)

    label_over_time(classify, frames(), 10.0, CLASSES, small, 4, batch=2)
    assert len(alive) > 5 and max(alive) == 2 * 4 * 3 * 8 * 8


def test_segments_name_the_label_of_their_frames() -> None:
    each = np.array([[0.6, 0.4, 0], [0.9, 0.1, 0], [0.2, 0.5, 0.3]])
    first, second = segments(each, 1.0, CLASSES)
    assert (first["label"], first["probability"], first["start"], first["end"]) == ("dark", 0.75, 0, 2)
    assert (second["label"], second["probability"]) == ("grey", 0.5)


def test_mistakes() -> None:
    with pytest.raises(HalfmaskError, match="no frames"):
        labelled(np.zeros((0, 8, 8, 3), np.uint8))
    with pytest.raises(HalfmaskError, match="above 0"):
        labelled(video((3, 0)), seconds=0)
    with pytest.raises(HalfmaskError, match="3 classes apart and 2 have names"):
        label_over_time(by_brightness, video((3, 0)), 10.0, CLASSES[:2], small, 4)


def test_drawn_frames_are_enlarged_even_and_say_where_they_are() -> None:
    frames = video((40, 0), (40, 255), size=(25, 33))
    found = labelled(frames, seconds=1.0)
    drawn = list(annotate(iter(frames), found))
    assert len(drawn) == 80 and len({frame.shape for frame in drawn}) == 1
    height, width, _ = drawn[0].shape
    assert width >= 480 and width % 2 == height % 2 == 0
    # The mark moves along the strip; the bar has the colour of the label at its left end.
    marks = [int(np.flatnonzero((frame[-13] < 60).all(-1)).mean()) for frame in (drawn[5], drawn[70])]
    assert marks[0] == pytest.approx(width * 5.5 / 80, abs=3) and marks[1] == pytest.approx(width * 70.5 / 80, abs=3)
    assert tuple(drawn[0][20, 3]) == colour_of(0, 3) and tuple(drawn[79][20, 3]) == colour_of(2, 3)
    assert (drawn[0][60] == 0).all() and (drawn[79][60] == 255).all()


def test_many_classes_have_colours_of_their_own() -> None:
    assert len({colour_of(place, 101) for place in range(101)}) > 95


def test_words() -> None:
    assert summary_of(labelled(video((40, 0), (40, 255)), seconds=1.0)).startswith("dark 0.0–")
