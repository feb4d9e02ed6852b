"""From a film to the frames a network sees, and which of their pixels anything protected has a part in.

Masks act at stored resolution, before any resampling. A pixel of the network's frame is a mixture of stored ones, so one that lies well
inside the public part may still hold a little of what is protected beside it. Here two frames are made of each stored one: as it is, and
with its protected pixels painted over. Where nothing protected has a part the second is taken, and what is public is then a function of
public stored pixels and of the mask alone: not by a bound on rounding, but because nothing else went into it.

Frames are picked, never blended in time: a mixture of two frames would show what is protected in one through what is public in the other.
"""

from __future__ import annotations

import cv2
import numpy as np

from halfmask.data.clips import PROTECT, Film
from halfmask.errors import HalfmaskError, unknown_name

FIT = ("crop", "squeeze", "person")
SHORT = ("refuse", "repeat", "skip")
SMALLEST = 16
# What protected pixels are painted over with before the public part is resampled; any constant will do.
COVER = 127
# How much larger than the person a window around them is, and how small it may be, of a frame's shorter side: a mask by motion may show an
# arm alone. Somebody who stays within so many of their own sizes is looked at through one window that stands still.
_ROOM, _SMALLEST_WINDOW, _STAYS = 1.2, 0.5, 1.4

# Rows and columns of a frame: first row, first column, height, width.
Window = tuple[int, int, int, int]


def pick(stored: int, wanted: int) -> np.ndarray:
    """Which of the stored frames are shown: each the middle one of as many equal stretches. With fewer stored, some are shown again.

    >>> pick(10, 4).tolist(), pick(3, 4).tolist()
    ([1, 3, 6, 8], [0, 1, 1, 2])
    """
    # Whole numbers: ((k + ½) · stored) / wanted, rounded down, and no float decides which frame it is.
    return (2 * np.arange(wanted) + 1) * stored // (2 * wanted)


def widened(mask: np.ndarray, pixels: int) -> np.ndarray:
    """F×H×W: with everything that lies within so many pixels of it, across, down or aslant."""
    return _grown(mask, pixels)


def narrowed(mask: np.ndarray, pixels: int) -> np.ndarray:
    """F×H×W: without everything that lies within so many pixels of its outline. A frame's edge is no outline: nothing lies beyond it."""
    return ~_grown(~mask, pixels)


def protected_pixels(film: Film, protect: str, margin: int = 0) -> np.ndarray:
    """F×H×W: the stored pixels that are protected.

    Pixels that mix person and background, at the outline and where a picture was filled in, are protected on whichever side they lie.

    Args:
        margin: pixels by which the protected part grows besides.
    """
    if protect not in PROTECT:
        raise unknown_name("part to protect (data.protect)", protect, PROTECT)
    mask = film.protected if protect == "mask" else film.person
    if mask is None:
        raise HalfmaskError(
            f"data.protect is {protect} and there is no mask of {'what is protected' if protect == 'mask' else 'the person'}: say with "
            "data.masks where the masks come from (files, boxes, or motion for a still camera), or that there are none (data.masks=none)"
        )
    mask = np.asarray(mask, bool)
    if protect == "background":
        return ~narrowed(mask, film.blended + margin)
    return widened(mask, margin + (film.blended if protect == "person" else 0))


def windows_of(shape: tuple[int, ...], fit: str = "crop", person: np.ndarray | None = None) -> list[Window]:
    """What of each frame the network is shown; all windows of a clip are of one size.

    Args:
        shape: F, H, W.
        fit: the central square (`crop`), the whole frame (`squeeze`), or the square around the `person`, which follows those who walk. It
            is a function of the mask, which is public as the certificate says, and of nothing else.
        person: F×H×W, for the last.
    """
    count, height, width = shape
    if fit not in FIT:
        raise unknown_name("way to fit frames (data.fit)", fit, FIT)
    if fit == "squeeze":
        return [(0, 0, height, width)] * count
    side = min(height, width)
    if fit == "person" and person is None:
        raise HalfmaskError("data.fit is person and no mask shows where the person is: say with data.masks where masks come from")
    boxes = _boxes(person) if fit == "person" and person is not None else None
    if boxes is None:
        return [((height - side) // 2, (width - side) // 2, side, side)] * count
    extents = boxes[:, 2:] - boxes[:, :2]
    side = int(np.clip(np.ceil(_ROOM * extents.max()), np.ceil(_SMALLEST_WINDOW * side), side))
    whole = np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])
    if (whole[2:] - whole[:2]).max() <= _STAYS * extents.max():
        boxes = np.tile(whole, (count, 1))
        side = int(np.clip(np.ceil(_ROOM * (whole[2:] - whole[:2]).max()), side, min(height, width)))
    corners = (boxes[:, :2] + boxes[:, 2:] - side) // 2
    return [(int(top), int(left), side, side) for top, left in np.clip(corners, 0, [height - side, width - side])]


def fitted(frames: np.ndarray, size: int, windows: list[Window] | str = "crop") -> np.ndarray:
    """F×H×W(×3) seen through windows, or as one of `FIT` says, resampled to F×size×size(×3)."""
    windows = windows_of(frames.shape[:3], windows) if isinstance(windows, str) else windows
    cut = [frame[top : top + height, left : left + width] for frame, (top, left, height, width) in zip(frames, windows, strict=True)]
    if not _resampled(size, windows):
        return np.stack(cut)
    # Averages where a frame shrinks; else every stored pixel that falls between two others would be lost, or flicker.
    smaller = size <= min(windows[0][2:])
    way = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.stack([cv2.resize(np.ascontiguousarray(frame), (size, size), interpolation=way) for frame in cut])


def network_frames(
    frames: np.ndarray, protected: np.ndarray | None, size: int, windows: list[Window] | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The frames at the network's size (F×3×size×size bytes), and which of their pixels anything protected has a part in.

    Formal guarantee: `hidden`, and every pixel that is not hidden, is a function of `windows`, of `protected` and of the stored pixels that
    are not protected.

    Args:
        frames: F×H×W×3 bytes, as they were stored.
        protected: F×H×W; nothing where no mask is known, and then nothing is hidden.
        windows: what of each frame is shown (`windows_of`); the central square if not given.
    """
    windows = windows or windows_of(frames.shape[:3])
    shown = fitted(frames, size, windows)
    if protected is None:
        return np.ascontiguousarray(shown.transpose(0, 3, 1, 2)), None
    covered = fitted(np.where(protected[..., None], np.uint8(COVER), frames), size, windows)
    hidden = fitted(protected.astype(np.float32), size, windows) > 0
    if _resampled(size, windows):
        # A weight too small for a float is still a part.
        hidden = _grown(hidden, 1)
    clip = np.where(hidden[..., None], shown, covered)
    return np.ascontiguousarray(clip.transpose(0, 3, 1, 2)), hidden


def _resampled(size: int, windows: list[Window]) -> bool:
    return windows[0][2:] != (size, size)


def _boxes(person: np.ndarray) -> np.ndarray | None:
    """F×4: top, left, bottom, right of the person in each frame, or in the nearest frame that shows them; None if none does."""
    present = np.flatnonzero(person.any(axis=(1, 2)))
    if not len(present):
        return None
    nearest = present[np.abs(np.arange(len(person))[:, None] - present).argmin(1)]
    found = []
    for frame in nearest:
        rows, columns = np.flatnonzero(person[frame].any(1)), np.flatnonzero(person[frame].any(0))
        found.append((rows[0], columns[0], rows[-1] + 1, columns[-1] + 1))
    return np.array(found)


def _grown(mask: np.ndarray, pixels: int) -> np.ndarray:
    if pixels < 1:
        return mask
    square = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    grown = [cv2.dilate(one, square) for one in np.ascontiguousarray(mask, np.uint8)]
    return np.stack(grown).astype(bool) if grown else mask
