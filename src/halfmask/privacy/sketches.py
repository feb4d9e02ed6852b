"""What of a picture survives being stored, resized, mirrored, brightened or cut another way.

A picture is scaled to one area and looked at through a ladder of blurs. Where a blurred picture has a peak or a hollow, the signs of the
lowest waves around it make a *word*: a number that most re-encodings leave as it is. Its place is found in the picture itself, so a cut
moves it and does not change it; words are turned to one of their two mirror images, so mirroring does not change them either. Words that
two pictures share say which pictures to compare, and where they stand says how one lies on the other; a *thumbnail* is what is compared
(see `halfmask.privacy.alignment`).

Pure functions of pixels. What they return shows a person, coarsely: nothing here is to be stored unless it is encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

# Pictures are brought to this many pixels squared before anything is looked at, whatever their size was: what a resize to 0.3 of a
# small photograph leaves is still there.
_SIDE = 72
# A panorama thinner than this is squeezed: a ladder of blurs has no room in a picture of a few rows.
_LARGEST_ASPECT = 4.0
# Blurs in pixels, a step of 1.15 apart: a cut of a fifth in both directions changes the scale by up to 1.25, so whatever was found at one
# rung is found within half a step of another.
_STEP = 1.15
_BLURS = tuple(1.35 * _STEP**rung for rung in range(10))
# How many words each rung may give, the strongest first: fewer where there is room for fewer.
_QUOTAS = (16, 16, 16, 14, 12, 10, 8, 8, 6, 6)
WORDS = sum(_QUOTAS)
# In grey levels. What is fainter is rounding: an empty frame has no words, else it would be a copy of every other one.
_FAINTEST = 0.05
# Samples around a place, in blurs from it: far enough out to tell places apart, near enough that a cut leaves most of them inside.
_REACH, _SAMPLES = 3.5, 8
# The waves (across, down) whose signs are a word's bits. The first is the one that decides between a patch and its mirror image.
_WAVES = ((1, 0), (0, 1), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0), (1, 3), (3, 1), (2, 2), (2, 3), (3, 2))
# Thumbnails have at most this many pixels: what 2 KB per picture leave room for. Someone a third of a picture high has a dozen of them
# from head to foot.
THUMBNAIL = 1400
# In pixels of the picture scaled to one area: smooth enough that between the pixels of a thumbnail one may interpolate. Without it, a
# picture cut by half a pixel differs from itself as much as two people do.
_THUMBNAIL_BLUR = 1.2
# Lifts the dark half: someone in dark clothes before a dark hedge is else lost beside a white wall.
_GAMMA = 0.7


@dataclass(frozen=True)
class Sketches:
    """Pictures, coarsely: one row each.

    Attributes:
        words: N×`WORDS` numbers below 2¹⁶, 0 where there is none.
        places: N×`WORDS`×3 bytes: a word's place (0 to 255 across and down the picture) and its rung, plus 128 if it was turned.
        sizes: N×2 bytes: height and width of the picture scaled to one area.
        thumbnails: N×`THUMBNAIL` bytes, row by row, then zeros; stretched to the picture's own range, because a dark room has only a few
            grey levels.
    """

    words: np.ndarray
    places: np.ndarray
    sizes: np.ndarray
    thumbnails: np.ndarray

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: np.ndarray) -> Sketches:
        """The sketches of some rows."""
        return Sketches(self.words[rows], self.places[rows], self.sizes[rows], self.thumbnails[rows])


def sketch(image: np.ndarray) -> Sketches:
    """Look at one picture (H×W×3 bytes, RGB): one row."""
    grey = _normalised(image)
    words, places = _words(grey)
    sizes = np.array(grey.shape, np.uint8)
    return Sketches(words[None], places[None], sizes[None], _thumbnail(grey)[None])


def blur_of(rung: np.ndarray) -> np.ndarray:
    """How wide a rung's blur is, in pixels of the picture scaled to one area."""
    return np.asarray(_BLURS, np.float32)[rung]


def thumbnail_shape(height: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the thumbnails of pictures of this size; their product is at most `THUMBNAIL`."""
    columns = np.ceil((THUMBNAIL * width / height) ** 0.5).astype(int)
    return THUMBNAIL // columns, columns


def _normalised(image: np.ndarray) -> np.ndarray:
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    # Halving is many times faster than any other reduction, and an average of averages is an average.
    while min(height, width) >= 4 * _SIDE:
        grey = cv2.resize(grey, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        height, width = grey.shape
    aspect = float(np.clip(width / height, 1 / _LARGEST_ASPECT, _LARGEST_ASPECT))
    size = (round(_SIDE * aspect**0.5), round(_SIDE / aspect**0.5))
    smaller = size[0] < width and size[1] < height
    # As floats: the average of a dark room's pixels is between two grey levels, and that is all there is to see in it.
    return cv2.resize(grey.astype(np.float32), size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)


def _waves() -> np.ndarray:
    steps = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
    cosines = np.cos(np.pi * np.arange(4)[:, None] * steps)
    return np.stack([np.outer(cosines[down], cosines[across]).ravel() for across, down in _WAVES], 1).astype(np.float32)


_BASIS = _waves()
# Which bits a mirror image has the other way round: the waves that go across an odd number of times.
_ODD = np.array([across % 2 == 1 for across, _ in _WAVES])
_WEIGHTS = (1 << np.arange(len(_WAVES))).astype(np.uint16)
_NEAR = np.ones((3, 3), np.uint8)
_GRID = (np.arange(_SAMPLES, dtype=np.float32) + 0.5) / _SAMPLES * 2 - 1


def _words(grey: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    height, width = grey.shape
    blurred, done = cv2.GaussianBlur(grey, (0, 0), _BLURS[0]), _BLURS[0]
    found = []
    for rung, (blur, quota) in enumerate(zip(_BLURS, _QUOTAS, strict=True)):
        if blur > done:
            blurred, done = cv2.GaussianBlur(blurred, (0, 0), (blur**2 - done**2) ** 0.5), blur
        contrast = blurred - cv2.GaussianBlur(blurred, (0, 0), blur)
        rows, columns, peaks = _extrema(contrast, int(blur), quota)
        if len(rows):
            found.append((rows, columns, peaks, _around(blurred, rows, columns, blur), np.full(len(rows), rung)))
    words, places = np.zeros(WORDS, np.uint16), np.zeros((WORDS, 3), np.uint8)
    if found:
        rows, columns, peaks, around, rungs = (np.concatenate(part) for part in zip(*found, strict=True))
        waves = around @ _BASIS
        turned = waves[:, 0] < 0
        bits = (waves > 0) ^ (_ODD & turned[:, None])
        bits[:, 0] = peaks  # in place of the first wave, which is always positive now
        words[: len(rows)] = bits @ _WEIGHTS + 1  # 0 says that there is no word
        places[: len(rows), 0] = np.round(columns / (width - 1) * 255)
        places[: len(rows), 1] = np.round(rows / (height - 1) * 255)
        places[: len(rows), 2] = rungs + 128 * turned
    return words, places


def _extrema(contrast: np.ndarray, margin: int, quota: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inside = contrast[margin:-margin, margin:-margin]
    peak = inside == cv2.dilate(contrast, _NEAR)[margin:-margin, margin:-margin]
    hollow = inside == cv2.erode(contrast, _NEAR)[margin:-margin, margin:-margin]
    rows, columns = np.nonzero((peak ^ hollow) & (np.abs(inside) > _FAINTEST))
    strength = np.abs(inside[rows, columns])
    if len(rows) > quota:
        best = np.argpartition(-strength, quota)[:quota]
        rows, columns = rows[best], columns[best]
    return rows + margin, columns + margin, peak[rows, columns]


def _around(blurred: np.ndarray, rows: np.ndarray, columns: np.ndarray, blur: float) -> np.ndarray:
    offsets = _GRID * np.float32(_REACH * blur)
    shape = (len(rows), _SAMPLES, _SAMPLES)
    across = np.broadcast_to(columns.astype(np.float32)[:, None, None] + offsets[None, None, :], shape)
    down = np.broadcast_to(rows.astype(np.float32)[:, None, None] + offsets[None, :, None], shape)
    flat = (len(rows), _SAMPLES**2)
    return cv2.remap(blurred, across.reshape(flat), down.reshape(flat), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)


def _thumbnail(grey: np.ndarray) -> np.ndarray:
    rows, columns = thumbnail_shape(*(np.array(side) for side in grey.shape))
    smooth = cv2.GaussianBlur(grey, (0, 0), _THUMBNAIL_BLUR)
    small = cv2.resize(smooth, (int(columns), int(rows)), interpolation=cv2.INTER_AREA)
    low, high = float(small.min()), float(small.max())
    out = np.zeros(THUMBNAIL, np.uint8)
    if high - low > _FAINTEST:
        out[: small.size] = np.round(255 * ((small - low) / (high - low)) ** _GAMMA).ravel()
    return out
