"""Fixtures of the tests on data: tiny videos, written on the fly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

Video = Callable[..., Path]


def write_video(path: Path, frames: int = 6, size: tuple[int, int] = (24, 32), seed: int = 0) -> Path:
    """A film of flat colours that brighten by 7 from frame to frame, and a red square in the upper left corner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (size[1], size[0]))
    assert writer.isOpened(), "OpenCV cannot write videos here"
    for number in range(frames):
        frame = np.full((*size, 3), (7 * number + 11 * seed) % 256, np.uint8)
        frame[:8, :8] = (0, 0, 255)
        writer.write(frame)
    writer.release()
    return path


@pytest.fixture
def video() -> Video:
    """Writes a tiny video: path, and how many frames of which size."""
    return write_video
