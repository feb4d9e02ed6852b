"""A video of the user's own, frame by frame, and frames written as a video.

Nothing here is a dataset: videos are gone through one frame at a time, as often as somebody asks, so that none need fit into memory, and
errors name the file, because whoever reads them has just named it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np

from halfmask.errors import HalfmaskError

# Where a file does not say how fast it is to be shown, or says what cannot be.
USUAL_FPS = 25.0
_FASTEST = 1000.0
# What OpenCV can be asked for, the smaller file first; the second is always there.
_WAYS = ((".mp4", "mp4v"), (".avi", "MJPG"))


class Footage:
    """The frames of a video file, H×W×3 bytes, red first; it can be gone through again.

    Attributes:
        fps: frames a second.
        assumed: whether that is a guess.
        expected: how many frames there should be, by the file's header: 0 where it does not say. It may be wrong.
    """

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise HalfmaskError(f"no video at {path}: check the path")
        capture = self._opened()
        said = float(capture.get(cv2.CAP_PROP_FPS))
        self.assumed = not (math.isfinite(said) and 0 < said <= _FASTEST)
        self.fps = USUAL_FPS if self.assumed else said
        self.expected = max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        capture.release()

    def __iter__(self) -> Iterator[np.ndarray]:
        capture = self._opened()
        count, shape = 0, None
        try:
            while True:
                whole, frame = capture.read()
                if not whole:
                    break
                if shape is not None and frame.shape != shape:
                    raise HalfmaskError(f"{self.path} changes its size on the way: expected frames of one size. Convert it first")
                count, shape = count + 1, frame.shape
                yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        finally:
            capture.release()
        if not count:
            raise self._unreadable()

    def _opened(self) -> cv2.VideoCapture:
        capture = cv2.VideoCapture(str(self.path), cv2.CAP_FFMPEG)
        if not capture.isOpened():
            raise self._unreadable()
        return capture

    def _unreadable(self) -> HalfmaskError:
        return HalfmaskError(f"{self.path} cannot be read as a video: the file is corrupt, empty or of another format")


class Camera:
    """The frames of a camera, as they come, until whoever looks stops.

    Attributes:
        fps: frames a second, as the camera says.
        expected: 0: nobody knows how many there will be.
    """

    expected = 0

    def __init__(self, number: int):
        self._capture = cv2.VideoCapture(number)
        if not self._capture.isOpened():
            raise HalfmaskError(f"there is no camera {number}, or it is in use: expected the number of one, from 0")
        said = float(self._capture.get(cv2.CAP_PROP_FPS))
        self.fps = said if math.isfinite(said) and 0 < said <= _FASTEST else USUAL_FPS

    def __iter__(self) -> Iterator[np.ndarray]:
        try:
            while True:
                whole, frame = self._capture.read()
                if not whole:
                    return
                yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        finally:
            self._capture.release()


def write_video(stem: Path, frames: Iterable[np.ndarray], fps: float) -> Path:
    """Write frames of one even size as a video beside `stem`; returns the file: .mp4 where OpenCV can write it, else .avi.

    A file that could not be written whole is removed.
    """
    rest = iter(frames)
    first = next(rest, None)
    if first is None:
        raise HalfmaskError("there are no frames to write as a video")
    size = (first.shape[1], first.shape[0])
    for suffix, code in _WAYS:
        path = stem.with_name(stem.name + suffix)
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG if suffix == ".mp4" else cv2.CAP_ANY, cv2.VideoWriter.fourcc(*code), fps, size)
        if writer.isOpened():
            break
        path.unlink(missing_ok=True)
    else:
        raise HalfmaskError(f"no video can be written in {stem.parent}: check that the folder can be written to")
    written = False
    try:
        writer.write(cv2.cvtColor(first, cv2.COLOR_RGB2BGR))
        for frame in rest:
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
        writer.release()
        # OpenCV says nothing when a disk is full: the file is as good as what can be read of it.
        written = cv2.VideoCapture(str(path)).isOpened()
    finally:
        writer.release()
        if not written:
            path.unlink(missing_ok=True)
    if not written:
        raise HalfmaskError(f"{path} could not be written: is there room on the disk?")
    return path
