"""Videos of one's own, there and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.data import footage
from halfmask.data.footage import Footage, write_video
from halfmask.errors import HalfmaskError


def frames(count: int = 12) -> Iterator[np.ndarray]:
    for number in range(count):
        frame = np.zeros((48, 64, 3), np.uint8)
        frame[:, :, 0] = 20 * number
        yield frame


@pytest.mark.parametrize("ways", [footage._WAYS, footage._WAYS[1:]])
def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: tuple) -> None:
    monkeypatch.setattr(footage, "_WAYS", ways)
    path = write_video(tmp_path / "some.body", frames(), 12.5)
    assert path.parent == tmp_path and path.stem == "some.body"
    found = Footage(path)
    assert found.fps == pytest.approx(12.5, rel=0.01) and not found.assumed and found.expected == 12
    for _ in range(2):
        reds = [frame[..., 0].mean() for frame in found]
        assert np.allclose(reds, 20 * np.arange(12), atol=6), "red first, and gone through as often as asked"


def test_without_the_smaller_format_there_is_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footage, "_WAYS", ((".mp4", "none"), footage._WAYS[1]))
    assert write_video(tmp_path / "a", frames(), 10).suffix == ".avi"


def test_a_file_that_does_not_say_how_fast_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a", frames(), 10)
    real = cv2.VideoCapture

    class Silent:
        def __init__(self, *given: object):
            self.real = real(*given)

        def get(self, key: int) -> float:
            return 0.0

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    monkeypatch.setattr(footage.cv2, "VideoCapture", Silent)
    found = Footage(path)
    assert found.assumed and found.fps == 25 and found.expected == 0 and len(list(found)) == 12


def test_what_is_no_video(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no video at"):
        Footage(tmp_path / "none.mp4")
    for body in (b"", b"RIFF no video at all", b"\0" * 4096):
        (tmp_path / "bad.avi").write_bytes(body)
        with pytest.raises(HalfmaskError, match="cannot be read as a video"):
            list(Footage(tmp_path / "bad.avi"))


def test_what_cannot_be_written_is_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no frames"):
        write_video(tmp_path / "a", iter(()), 10)

    def stops() -> Iterator[np.ndarray]:
        yield from frames(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_video(tmp_path / "a", stops(), 10)
    with pytest.raises(HalfmaskError, match="no video can be written"):
        write_video(tmp_path / "nowhere" / "a", frames(), 10)
    assert list(tmp_path.iterdir()) == []
