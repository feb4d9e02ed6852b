"""What somebody does on a video, over time: windows slid along it, a label for each moment, and frames that say so.

A network knows clips of a few frames. Here it is shown one window of the video after the other, each made into a clip as those of a
dataset are. Every frame gets the mean of what was said of the windows that hold it, and frames of one label in a row are a segment.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from halfmask.data.clip_frames import pick
from halfmask.errors import HalfmaskError
from halfmask.report import canvas

Report = Callable[[str, int, int], None]
SECONDS = 2.0
_TOP = 3
_NARROWEST = 480
_BAR, _STRIP = 40, 26
_DARK: canvas.Colour = (30, 30, 30)


def windows(count: int, fps: float, seconds: float = SECONDS, stride: float | None = None) -> list[tuple[int, int]]:
    """First frame and end of each window: `seconds` long, `stride` seconds apart (half a window by default).

    The last one ends with the video, and a video shorter than a window is one.

    >>> windows(10, 2.0, seconds=2.0)
    [(0, 4), (2, 6), (4, 8), (6, 10)]
    >>> windows(9, 2.0, seconds=2.0), windows(3, 2.0, seconds=2.0)
    ([(0, 4), (2, 6), (4, 8), (5, 9)], [(0, 3)])
    """
    length, step = _in_frames(fps, seconds, stride)
    if count <= length:
        return [(0, count)] if count else []
    starts = list(range(0, count - length + 1, step))
    if starts[-1] + length < count:
        starts.append(count - length)
    return [(start, start + length) for start in starts]


def label_over_time(
    classify: Callable[[np.ndarray], np.ndarray],
    frames: Iterable[np.ndarray],
    fps: float,
    classes: Sequence[str],
    shrink: Callable[[np.ndarray], np.ndarray],
    length: int,
    seconds: float | None = None,
    stride: float | None = None,
    batch: int = 8,
    report: Report | None = None,
) -> dict[str, Any]:
    """Label every moment of a video; what comes back is ready for JSON, with times in seconds.

    Frames are gone through once, and no more of them are held than a window has.

    Args:
        classify: probabilities N×K of clips N×T×3×S×S, bytes.
        frames: H×W×3 bytes, red first.
        shrink: a frame as the network sees it, S×S×3 bytes: what the loader of the datasets makes of it.
        length: T, the frames of a clip.
        seconds, stride: as in `windows`.
        batch: how many windows are looked at together.
    """
    seconds = SECONDS if seconds is None else seconds
    spans: list[tuple[int, int]] = []
    said: list[np.ndarray] = []
    waiting: list[np.ndarray] = []

    def look() -> None:
        if waiting:
            said.extend(np.asarray(classify(np.stack(waiting)), float))
            waiting.clear()

    # A file's header says how many there should be; it may be wrong, and only progress goes by it.
    count, expected = 0, int(getattr(frames, "expected", 0))
    for start, stop, held in _windowed(frames, shrink, *_in_frames(fps, seconds, stride)):
        spans.append((start, stop))
        clip = np.stack([held[place] for place in pick(stop - start, length)])
        waiting.append(np.ascontiguousarray(clip.transpose(0, 3, 1, 2)))
        count = max(count, stop)
        if len(waiting) >= batch:
            look()
        if report is not None:
            report("frames looked at", count, max(expected, count))
    look()
    if not spans:
        raise HalfmaskError("the video has no frames: there is nothing to label")
    if report is not None:
        report("frames looked at", count, count)
    probabilities = np.stack(said)
    if probabilities.shape != (len(spans), len(classes)):
        raise HalfmaskError(
            f"the network tells {probabilities.shape[-1]} classes apart and {len(classes)} have names: they do not belong together"
        )
    each = _of_frames(count, spans, probabilities)
    return {
        "fps": round(fps, 4),
        "frames": count,
        "duration": _time(count, fps),
        "window_seconds": seconds,
        "classes": list(classes),
        "segments": segments(each, fps, classes),
        "windows": [
            {"start": _time(start, fps), "end": _time(stop, fps)} | _told(row, classes)
            for (start, stop), row in zip(spans, probabilities, strict=True)
        ],
    }


def segments(probabilities: np.ndarray, fps: float, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Runs of frames with one label: start and end in seconds, and the mean probability of that label and of the likeliest."""
    best = probabilities.argmax(1)
    cuts = [0, *(np.flatnonzero(np.diff(best)) + 1).tolist(), len(best)]
    found = []
    for start, stop in itertools.pairwise(cuts):
        told = _told(probabilities[start:stop].mean(0), classes, int(best[start]))
        found.append({"start": _time(start, fps), "end": _time(stop, fps)} | told)
    return found


def annotate(frames: Iterable[np.ndarray], found: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """Frames with a bar that says what is being done and how sure that is, and below all of the video's labels with a mark at the moment.

    Small frames are enlarged, so that the words can be read; widths and heights are even, as codecs want them.

    Args:
        found: what `label_over_time` returned of these frames.
    """
    runs, classes, fps, duration = found["segments"], list(found["classes"]), found["fps"], found["duration"]
    strip: np.ndarray | None = None
    place = 0
    for number, frame in enumerate(frames):
        moment = (number + 0.5) / fps
        while place + 1 < len(runs) and moment >= runs[place]["end"]:
            place += 1
        scale = max(1, math.ceil(_NARROWEST / frame.shape[1]))
        width, height = (side * scale // 2 * 2 for side in (frame.shape[1], frame.shape[0]))
        if strip is None:
            strip = _strip(runs, classes, width, duration)
        below = strip.copy()
        x = width * min(1.0, moment / max(duration, 1e-9))
        canvas.draw_line(below, (x, 0), (x, _STRIP), canvas.WHITE, 5)
        canvas.draw_line(below, (x, 0), (x, _STRIP), canvas.INK, 2)
        shown = frame if (width, height) == frame.shape[1::-1] else cv2.resize(frame, (width, height), interpolation=cv2.INTER_LINEAR)
        yield np.concatenate([_bar(runs[place], classes, width), shown, below])


def summary_of(found: Mapping[str, Any]) -> str:
    """The first few segments in words."""
    runs = found["segments"]
    words = [f"{run['label']} {run['start']:.1f}–{run['end']:.1f} s" for run in runs[:_TOP]]
    return ", ".join(words) + (f" and {len(runs) - _TOP} more" if len(runs) > _TOP else "")


def _in_frames(fps: float, seconds: float, stride: float | None) -> tuple[int, int]:
    if not (math.isfinite(seconds) and seconds > 0) or (stride is not None and not (math.isfinite(stride) and stride > 0)):
        raise HalfmaskError(
            f"windows of {seconds:g} seconds, {stride if stride is None else f'{stride:g}'} apart: expected numbers above 0"
        )
    length = max(1, round(seconds * fps))
    return length, max(1, round((seconds / 2 if stride is None else stride) * fps))


def _windowed(
    frames: Iterable[np.ndarray], shrink: Callable[[np.ndarray], np.ndarray], length: int, step: int
) -> Iterator[tuple[int, int, Sequence[np.ndarray]]]:
    """The windows of `windows`, each as soon as its last frame is there, with its frames."""
    held: deque[np.ndarray] = deque(maxlen=length)
    count, last = 0, 0
    for frame in frames:
        held.append(shrink(frame))
        count += 1
        if count >= length and (count - length) % step == 0:
            last = count
            yield count - length, count, list(held)
    if last < count:
        yield max(0, count - length), count, list(held)


def _of_frames(count: int, spans: Sequence[tuple[int, int]], probabilities: np.ndarray) -> np.ndarray:
    """Of each frame the mean over the windows that hold it. Where windows leave gaps, a frame between two has what the nearest says."""
    total, several = np.zeros((count, probabilities.shape[1])), np.zeros(count)
    for (start, stop), row in zip(spans, probabilities, strict=True):
        total[start:stop] += row
        several[start:stop] += 1
    covered = np.flatnonzero(several)
    nearest = covered[np.round(np.interp(np.arange(count), covered, np.arange(len(covered)))).astype(int)]
    return np.asarray(total[nearest] / several[nearest, None])


def _told(probabilities: np.ndarray, classes: Sequence[str], best: int | None = None) -> dict[str, Any]:
    order = np.argsort(-probabilities, kind="stable")
    chosen = int(order[0]) if best is None else best
    top = [{"label": classes[place], "probability": round(float(probabilities[place]), 4)} for place in order[:_TOP]]
    return {"label": classes[chosen], "probability": round(float(probabilities[chosen]), 4), "top": top}


def _time(frame: int, fps: float) -> float:
    return round(frame / fps, 4)


def colour_of(place: int, known: int) -> canvas.Colour:
    """A colour for a class: the house's while they last, else hues apart from each other."""
    if known <= len(canvas.PALETTE):
        return canvas.PALETTE[place]
    # Steps of the golden section: neighbours in the list are far apart in hue.
    hue = int(180 * (place * 0.618034 % 1))
    pixel = cv2.cvtColor(np.array([[[hue, 150 + 70 * (place % 2), 150 + 30 * (place % 3)]]], np.uint8), cv2.COLOR_HSV2RGB)[0, 0]
    return int(pixel[0]), int(pixel[1]), int(pixel[2])


def _bar(run: Mapping[str, Any], classes: Sequence[str], width: int) -> np.ndarray:
    """The label, its probability as a number and as a length, and what else it might be."""
    bar = np.full((_BAR, width, 3), _DARK, np.uint8)
    canvas.fill_box(bar, (0, 0), (8, _BAR), colour_of(list(classes).index(run["label"]), len(classes)))
    words = f"{run['label']}  {run['probability']:.2f}"
    size = min(0.7, 0.7 * 0.6 * width / max(1, canvas.text_size(words, 0.7)[0]))
    canvas.draw_text(bar, words, (18, 16), size, canvas.WHITE)
    canvas.fill_box(bar, (18, 32), (18 + 0.3 * width, 36), (90, 90, 90))
    canvas.fill_box(bar, (18, 32), (18 + 0.3 * width * run["probability"], 36), canvas.WHITE)
    others = [one for one in run["top"] if one["label"] != run["label"]][: _TOP - 1]
    for row, one in enumerate(others):
        canvas.draw_text(bar, f"{one['label']} {one['probability']:.2f}", (width - 10, 12 + 17 * row), 0.38, (200, 200, 200), align="right")
    return bar


def _strip(runs: Sequence[Mapping[str, Any]], classes: Sequence[str], width: int, duration: float) -> np.ndarray:
    """All segments along the width of the frame, named where there is room."""
    strip = np.full((_STRIP, width, 3), _DARK, np.uint8)
    for run in runs:
        left, right = (width * run[end] / max(duration, 1e-9) for end in ("start", "end"))
        colour = colour_of(list(classes).index(run["label"]), len(classes))
        canvas.fill_box(strip, (left, 2), (right, _STRIP), colour)
        if canvas.text_size(run["label"], 0.4)[0] + 8 < right - left:
            light = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 140
            canvas.draw_text(
                strip, run["label"], ((left + right) / 2, _STRIP / 2 + 1), 0.4, canvas.INK if light else canvas.WHITE, align="centre"
            )
    return strip
