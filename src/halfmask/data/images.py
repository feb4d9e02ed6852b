"""Image files as pixels, and the crop of a person: the one way from a file to a network's input."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from halfmask.errors import HalfmaskError


def crop_transform(box: tuple[float, float, float, float], size: tuple[int, int], grow: float = 1.25) -> np.ndarray:
    """The 2×3 affine map from image pixels to crop pixels: the box, grown, in the crop's aspect ratio, centred."""
    x, y, width, height = box
    rows, columns = size
    scale = grow * max(width / columns, height / rows)
    if not scale > 0:
        raise HalfmaskError("a person's box has no area: expected a width and a height above 0")
    centre = (x + width / 2 - 0.5, y + height / 2 - 0.5)
    return np.array(
        [
            [1 / scale, 0, (columns - 1) / 2 - centre[0] / scale],
            [0, 1 / scale, (rows - 1) / 2 - centre[1] / scale],
        ],
        np.float64,
    )


def crop_picture(image: np.ndarray, box: tuple[float, float, float, float] | None, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The crop of a person on a picture, and the map that took it: by their box, or of the whole picture."""
    height, width = image.shape[:2]
    # A box is grown as in training; a whole picture is taken to be cropped with its margin already.
    transform = crop_transform((0, 0, width, height), size, grow=1.0) if box is None else crop_transform(box, size)
    return cv2.warpAffine(image, transform, (size[1], size[0]), flags=cv2.INTER_LINEAR), transform


def to_image(points: np.ndarray, transform: np.ndarray) -> np.ndarray:
    """Crop pixels back to image pixels."""
    return np.asarray((points - transform[:, 2]) @ np.linalg.inv(transform[:, :2]).T)


def read_image(path: Path) -> np.ndarray:
    """An image file as RGB bytes, turned the way its camera says it was held."""
    if not path.is_file():
        raise HalfmaskError(f"no image at {path}: check the path")
    return decode_image(path.read_bytes(), str(path))


def decode_image(data: bytes, name: str) -> np.ndarray:
    """The same of a file's bytes; `name` is what an error calls them."""
    try:
        # OpenCV 4 fills what a JPEG lacks with grey: half a person would pass for a whole one.
        whole = data and not _is_jpeg_cut_short(data)
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if whole else None
    except cv2.error:
        pixels = None
    if pixels is None:
        raise HalfmaskError(f"{name} cannot be read as an image: the file is corrupt, empty or of another format")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _is_jpeg_cut_short(data: bytes) -> bool:
    """Look for the end marker after the last scan begins, which skips the thumbnail in a camera's header."""
    return data.startswith(b"\xff\xd8") and data.find(b"\xff\xd9", max(data.rfind(b"\xff\xda"), 0)) < 0
