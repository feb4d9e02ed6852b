from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from halfmask.data.images import read_image
from halfmask.serve import pictures
from halfmask.serve.answers import Refused


async def coming(*pieces: bytes, pause: float = 0) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(pause)
        yield piece


def test_pieces_are_put_together(awaited: Callable[[Any], Any]) -> None:
    assert awaited(pictures.receive(None, coming(b"ab", b"", b"c"))) == b"abc"
    assert awaited(pictures.receive("3", coming(b"abc"))) == b"abc"


@pytest.mark.parametrize("announced", ["17000000", "-1", "1e3", "١", "9" * 30])
def test_lengths_that_are_refused_before_reading(announced: str, awaited: Callable[[Any], Any]) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("it was read")
        yield b""

    with pytest.raises(Refused) as refused:
        awaited(pictures.receive(announced, never()))
    assert refused.value.status == 413


def test_a_length_that_lies(monkeypatch: pytest.MonkeyPatch, awaited: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(pictures, "LARGEST_BYTES", 10)
    taken = []

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            taken.append(4)
            yield b"1234"

    with pytest.raises(Refused):
        awaited(pictures.receive("3", endless()))
    assert sum(taken) == 12


def test_a_picture_that_trickles_in(monkeypatch: pytest.MonkeyPatch, awaited: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(pictures, "_SECONDS", 0.02)
    with pytest.raises(Refused) as refused:
        awaited(pictures.receive(None, coming(b"a", b"b", pause=0.5)))
    assert refused.value.status == 408


@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "bmp"])
def test_pixels_are_those_that_predict_reads(tmp_path: Path, ending: str, picture: bytes) -> None:
    path = tmp_path / f"photo.{ending}"
    cv2.imwrite(str(path), cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR))
    assert np.array_equal(pictures.decode(path.read_bytes()), read_image(path))


def test_pixels_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch, picture: bytes) -> None:
    monkeypatch.setattr(pictures, "LARGEST_PIXELS", 90 * 120)
    assert pictures.decode(picture).shape == (120, 90, 3)
    monkeypatch.setattr(pictures, "LARGEST_PIXELS", 90 * 120 - 1)
    monkeypatch.setattr(pictures, "decode_image", lambda *_: pytest.fail("pixels were made"))
    with pytest.raises(Refused) as refused:
        pictures.decode(picture)
    assert refused.value.status == 413
