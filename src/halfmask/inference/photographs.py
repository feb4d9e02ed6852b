"""Photographs as they come and as they go out again: of the same size and format, and without anything that is not a pixel.

Place, time and camera (EXIF), comments, thumbnails and colour profiles are not pixels: a file is written anew from its pixels alone, so
that none of them is handed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from halfmask.data.images import read_image
from halfmask.errors import HalfmaskError

# What OpenCV both reads and writes.
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
# Pictures and films all the same: somebody who gives a folder of these wants to hear that they were not done.
UNSUPPORTED = frozenset(
    {".arw", ".avif", ".cr2", ".cr3", ".dng", ".gif", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".orf", ".pgm", ".ppm", ".psd", ".raf"}
    | {".raw", ".rw2", ".svg", ".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv"}
)
_WRITTEN_WITH = {
    ".jpg": (cv2.IMWRITE_JPEG_QUALITY, 95),
    ".jpeg": (cv2.IMWRITE_JPEG_QUALITY, 95),
    ".webp": (cv2.IMWRITE_WEBP_QUALITY, 95),
}
_SEVERAL = (".png", ".tif", ".tiff", ".webp")
_WHITE = 255
_CORRUPT = "it cannot be read as an image: the file is corrupt, empty or of another format"


@dataclass(frozen=True)
class Photograph:
    """The pixels of a file.

    Attributes:
        pixels: H×W×3 bytes, red first, turned the way the camera says it was held.
        grey: whether the file holds no colours, and is to hold none.
        notes: what is not as it was in the file.
    """

    pixels: np.ndarray
    grey: bool = False
    notes: tuple[str, ...] = ()


def open_photograph(path: Path) -> Photograph:
    """Read a file; what cannot be done says why, without the path, which tells where the owner keeps things."""
    if path.suffix.lower() not in SUFFIXES:
        raise HalfmaskError(f"its format ({path.suffix or 'none'}) is not supported: expected {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise HalfmaskError("there is no such file")
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8)
        count = cv2.imcount(str(path)) if path.suffix.lower() in _SEVERAL else 1
    except OSError as error:
        raise HalfmaskError(f"it cannot be read: {error.strerror or type(error).__name__}") from None
    except cv2.error:
        raise HalfmaskError(_CORRUPT) from None
    stored = _as_stored(data)
    try:
        pixels = read_image(path)
    except HalfmaskError:
        raise HalfmaskError(_CORRUPT) from None
    if count > 1:
        raise HalfmaskError(f"it holds {count} pictures, of which one alone would be written: save them one by one")
    notes = ["16 bits a channel became 8"] if stored.dtype == np.uint16 else []
    if stored.ndim == 3 and stored.shape[2] == 4:
        pixels = _on_white(pixels, stored)
        notes.append("what was transparent was laid on white")
    return Photograph(pixels, stored.ndim == 2 or stored.shape[2] == 1, tuple(notes))


def _as_stored(data: np.ndarray) -> np.ndarray:
    """With as many bits and channels as the file has."""
    try:
        stored = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if len(data) else None
    except cv2.error:
        stored = None
    if stored is None:
        raise HalfmaskError(_CORRUPT)
    if stored.dtype not in (np.uint8, np.uint16):
        raise HalfmaskError(f"its pixels are numbers of kind {stored.dtype}: expected 8 or 16 bits a channel")
    return np.asarray(stored)


def _on_white(pixels: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Lay what is transparent on white: dropping transparency alone would show colours that nobody ever saw."""
    if stored.dtype == np.uint16:
        stored = (stored >> 8).astype(np.uint8)
    if pixels.shape[:2] != stored.shape[:2] or np.abs(pixels[:, :, ::-1].astype(np.int16) - stored[:, :, :3]).max(initial=0) > 1:
        raise HalfmaskError("it is transparent in places, and turned by a camera's tag: save it upright, or without transparency")
    share = stored[:, :, 3:].astype(np.float32) / _WHITE
    return np.asarray((pixels * share + _WHITE * (1 - share)).round().astype(np.uint8))


def packed(pixels: np.ndarray, suffix: str, grey: bool = False) -> bytes:
    """The bytes of a file of this format that holds these pixels and nothing else."""
    shown = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY if grey else cv2.COLOR_RGB2BGR)
    try:
        done, body = cv2.imencode(suffix.lower(), shown, _WRITTEN_WITH.get(suffix.lower(), ()))
    except cv2.error:
        done = False
    if not done:
        rows, columns = pixels.shape[:2]
        raise HalfmaskError(f"a picture of {columns}×{rows} pixels cannot be written as {suffix}: save it in another format first")
    return body.tobytes()
