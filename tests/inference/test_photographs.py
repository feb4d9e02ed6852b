"""Files of all kinds: read upright, written in their format, and nothing handed on but pixels."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.inference.photographs import SUFFIXES, open_photograph, packed

PIXELS = cv2.resize(np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8), (90, 60))
SECRET = b"52.5200 north, 13.4050 east"


def with_exif(jpeg: bytes, orientation: int = 1) -> bytes:
    """A JPEG with an orientation tag and a place in its header."""
    entries = struct.pack("<HHII", 0x0112, 3, 1, orientation) + struct.pack("<HHII", 0x010E, 2, len(SECRET) + 1, 38)
    tiff = b"II*\0" + struct.pack("<IH", 8, 2) + entries + struct.pack("<I", 0) + SECRET + b"\0"
    body = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + jpeg[2:]


def with_text(png: bytes) -> bytes:
    """A PNG with a comment."""
    chunk = b"tEXtComment\0" + SECRET
    return png[:33] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[33:]


def written(path: Path, pixels: np.ndarray) -> Path:
    assert cv2.imwrite(str(path), pixels)
    return path


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".JPG", ".Png"])
def test_a_file_keeps_its_size_and_format(tmp_path: Path, suffix: str) -> None:
    photograph = open_photograph(written(tmp_path / f"a{suffix}", PIXELS[:, :, ::-1]))
    assert photograph.pixels.shape == PIXELS.shape and not photograph.grey and photograph.notes == ()
    (tmp_path / f"b{suffix}").write_bytes(packed(photograph.pixels, suffix))
    magic = {".bmp": b"BM", ".jpeg": b"\xff\xd8", ".jpg": b"\xff\xd8", ".png": b"\x89PNG", ".webp": b"RIFF"}
    assert (tmp_path / f"b{suffix}").read_bytes().startswith(magic.get(suffix.lower(), (b"II", b"MM")))
    again = open_photograph(tmp_path / f"b{suffix}").pixels
    assert again.shape == PIXELS.shape and np.abs(again.astype(int) - PIXELS).mean() < 6


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_what_is_written_without_loss_is_what_was_painted(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(packed(PIXELS, suffix))
    np.testing.assert_array_equal(open_photograph(tmp_path / f"a{suffix}").pixels, PIXELS)


def test_a_photograph_is_turned_upright_and_its_place_is_dropped(tmp_path: Path) -> None:
    plain = cv2.imencode(".jpg", PIXELS)[1].tobytes()
    (tmp_path / "a.jpg").write_bytes(with_exif(plain, orientation=6))
    assert SECRET in (tmp_path / "a.jpg").read_bytes()
    photograph = open_photograph(tmp_path / "a.jpg")
    assert photograph.pixels.shape == (90, 60, 3)
    body = packed(photograph.pixels, ".jpg")
    assert SECRET not in body and b"Exif" not in body


def test_a_comment_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(with_text(packed(PIXELS, ".png")))
    assert SECRET in (tmp_path / "a.png").read_bytes()
    body = packed(open_photograph(tmp_path / "a.png").pixels, ".png")
    assert SECRET not in body and b"tEXt" not in body


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_grey_stays_grey(tmp_path: Path, suffix: str) -> None:
    photograph = open_photograph(written(tmp_path / f"a{suffix}", PIXELS[:, :, 0]))
    assert photograph.grey and photograph.pixels.shape == PIXELS.shape
    (tmp_path / f"b{suffix}").write_bytes(packed(photograph.pixels, suffix, grey=True))
    assert cv2.imread(str(tmp_path / f"b{suffix}"), cv2.IMREAD_UNCHANGED).shape[:2] == PIXELS.shape[:2]
    assert open_photograph(tmp_path / f"b{suffix}").grey


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_become_eight_and_it_is_said(tmp_path: Path, suffix: str, channels: int) -> None:
    deep = PIXELS[:, :, ::-1].astype(np.uint16) * 257
    photograph = open_photograph(written(tmp_path / f"a{suffix}", deep if channels == 3 else deep[:, :, 0]))
    assert photograph.notes == ("16 bits a channel became 8",) and photograph.pixels.dtype == np.uint8
    if channels == 3:
        assert np.abs(photograph.pixels.astype(int) - PIXELS).max() <= 1


@pytest.mark.parametrize("deep", [False, True])
def test_what_was_transparent_is_white_not_what_was_hidden_there(tmp_path: Path, deep: bool) -> None:
    share = np.full((*PIXELS.shape[:2], 1), 255, np.uint8)
    share[:, :30] = 0
    clear = np.concatenate([PIXELS[:, :, ::-1], share], 2)
    photograph = open_photograph(written(tmp_path / "a.png", clear.astype(np.uint16) * 257 if deep else clear))
    assert (photograph.pixels[:, :30] == 255).all()
    assert np.abs(photograph.pixels[:, 30:].astype(int) - PIXELS[:, 30:]).max() <= 1
    assert "what was transparent was laid on white" in photograph.notes


def test_files_that_cannot_be_done_say_why_and_not_where_they_are(tmp_path: Path) -> None:
    jpeg = cv2.imencode(".jpg", PIXELS)[1].tobytes()
    png = cv2.imencode(".png", np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8))[1].tobytes()
    bodies = {
        "empty.jpg": (b"", "cannot be read as an image"),
        "text.png": (b"no picture", "cannot be read as an image"),
        "short.jpg": (jpeg[: len(jpeg) // 2], "cannot be read as an image"),
        "short.png": (png[: len(png) // 2], "cannot be read as an image"),
        "film.gif": (b"GIF89a", "is not supported"),
    }
    for name, (body, reason) in bodies.items():
        (tmp_path / name).write_bytes(body)
        with pytest.raises(HalfmaskError, match=reason) as error:
            open_photograph(tmp_path / name)
        assert str(tmp_path) not in str(error.value)
    with pytest.raises(HalfmaskError, match="no such file"):
        open_photograph(tmp_path / "none.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(HalfmaskError, match="no such file"):
        open_photograph(tmp_path / "folder.png")
    assert cv2.imwrite(str(tmp_path / "float.tif"), PIXELS.astype(np.float32))
    with pytest.raises(HalfmaskError, match="8 or 16 bits"):
        open_photograph(tmp_path / "float.tif")
    assert cv2.imwritemulti(str(tmp_path / "pages.tif"), [PIXELS, PIXELS])
    with pytest.raises(HalfmaskError, match="holds 2 pictures"):
        open_photograph(tmp_path / "pages.tif")


def test_a_picture_that_a_format_has_no_room_for() -> None:
    with pytest.raises(HalfmaskError, match=r"20000×1 pixels cannot be written as .webp"):
        packed(np.zeros((1, 20000, 3), np.uint8), ".webp")
