"""Video files as frames, and a file as a clip's `read`.

OpenCV decodes. A long or large video is thinned while it is read, so that memory stays bounded whatever a file holds: every frame is kept,
or every second, every fourth …, always from the first. No error names the file: its name can be a person's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from halfmask.data.clips import Film
from halfmask.data.people import file_stamp
from halfmask.errors import HalfmaskError

VIDEO_SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv")

# Of one video, at most: so many frames, and so many bytes unless that were fewer than a network needs.
MOST_FRAMES = 512
_MOST_BYTES = 256 * 2**20
_FEWEST = 32
# A header may miss the count by some frames, and estimates it where the container has none; half a film is no film.
_BROKEN_OFF = 0.5


@dataclass(frozen=True)
class VideoFacts:
    """What a video's header says, nothing decoded; `frames` is 0 where it does not say, and may be wrong."""

    frames: int
    size: tuple[int, int]
    rate: float


@dataclass(frozen=True)
class VideoFile:
    """A clip's file, opened when it is called. What is made of it is made again when the file changes, or the way it is read.

    Attributes:
        start, stop: the frames of it that are the clip, as in a slice.
        gamma: brightens dark videos (see `brightened`); 1 leaves them as they are.
        most: at most so many frames are kept.
    """

    path: Path
    start: int = 0
    stop: int | None = None
    gamma: float = 1.0
    most: int = MOST_FRAMES

    def __call__(self) -> Film:
        """The film, without masks: a file of frames has none."""
        frames = read_video(self.path, self.start, self.stop, self.most)
        return Film(frames if self.gamma == 1 else brightened(frames, self.gamma))

    @property
    def stamp(self) -> str:
        """Changes when the file does, or the way it is read."""
        return f"{file_stamp(self.path)}:{self.start}:{self.stop}:{self.gamma}:{self.most}"


def read_video(path: Path | str, start: int = 0, stop: int | None = None, most: int = MOST_FRAMES) -> np.ndarray:
    """The frames of a video, F×H×W×3 bytes, red first.

    Args:
        start, stop: as in a slice.
        most: of longer videos every second frame is kept, or every fourth …, so that there are no more; fewer yet if frames are large.
    """
    frames, _ = read_thinned(path, start, stop, most)
    return frames


def read_thinned(path: Path | str, start: int = 0, stop: int | None = None, most: int = MOST_FRAMES) -> tuple[np.ndarray, int]:
    """As `read_video`, with the stride: the frames are `start`, `start + stride`, … of the file. Masks of the same frames fit."""
    if start < 0 or most < 1 or (stop is not None and stop <= start):
        raise HalfmaskError(
            f"frames {start} to {stop} of a video were asked for, at most {most}: expected 0 ≤ start < stop, and one at least"
        )
    kept: list[np.ndarray] = []
    stride, number, bound = 1, 0, most
    capture = _opened(Path(path))
    try:
        said = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        while (stop is None or number < stop) and capture.grab():
            place, number = number - start, number + 1
            if place < 0 or place % stride:
                continue
            frame = _retrieved(capture)
            if frame is None:
                number -= 1
                break
            if not kept:
                bound = min(most, max(_FEWEST, _MOST_BYTES // frame.nbytes))
            elif frame.shape != kept[0].shape:
                raise HalfmaskError("a video changes its size on the way: expected frames of one size. Convert it, or take it out")
            if len(kept) == bound:
                kept, stride = kept[::2], 2 * stride
                if place % stride:
                    continue
            kept.append(frame)
    finally:
        capture.release()
    if not kept:
        raise HalfmaskError("a video has no frames that can be read: the file is damaged, empty or of another format. Restore it")
    wanted = said if stop is None else min(said, stop)
    if number < _BROKEN_OFF * wanted:
        raise HalfmaskError(
            f"a video breaks off after {number:,} of {wanted:,} frames: the file is damaged or was not copied whole. Restore it"
        )
    return np.stack(kept), stride


def video_facts(path: Path | str) -> VideoFacts:
    """What a video's header says."""
    capture = _opened(Path(path))
    try:
        rows, columns = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
        return VideoFacts(max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT))), (rows, columns), float(capture.get(cv2.CAP_PROP_FPS)))
    finally:
        capture.release()


def iterate_video(path: Path | str) -> Iterator[np.ndarray]:
    """All frames of a video, one after another: for whoever has no need of all at once."""
    capture = _opened(Path(path))
    try:
        empty = True
        while capture.grab():
            frame = _retrieved(capture)
            if frame is None:
                break
            empty = False
            yield frame
    finally:
        capture.release()
    if empty:
        raise HalfmaskError("a video has no frames that can be read: the file is damaged, empty or of another format. Restore it")


def brightened(frames: np.ndarray, gamma: float) -> np.ndarray:
    """Dark frames made visible: every value v of 0 … 255 becomes 255 · (v / 255)^gamma.

    It is one fixed map of each byte by itself, the same for everybody: nothing is measured on a clip, no pixel tells of another, and what
    is protected in a frame is protected in the brightened one.
    """
    if not gamma > 0:
        raise HalfmaskError(f"the gamma of a video is {gamma}; expected a number above 0, below 1 to brighten: such as 0.4")
    table = np.round(255 * (np.arange(256) / 255) ** gamma).astype(np.uint8)
    return np.asarray(cv2.LUT(frames.reshape(-1, frames.shape[-1]), table)).reshape(frames.shape)


def _opened(path: Path) -> cv2.VideoCapture:
    if not path.is_file():
        raise HalfmaskError("a video file is missing: restore it, or take its clip out of the dataset")
    # One thread: clips are short, and they are read several at a time. By name, other backends of OpenCV would print the file's name.
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    if not capture.isOpened():
        raise HalfmaskError("a video cannot be read: the file is damaged, empty or of another format. Restore it")
    return capture


def _retrieved(capture: cv2.VideoCapture) -> np.ndarray | None:
    whole, frame = capture.retrieve()
    return np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)) if whole else None
