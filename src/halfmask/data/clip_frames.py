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

FIT = ("crop", "squeeze")
SHORT = ("refuse", "repeat", "skip")
SMALLEST = 16
# What protected pixels are painted over with before the public part is resampled; any constant will do.
COVER = 127


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


def fitted(frames: np.ndarray, size: int, fit: str) -> np.ndarray:
    """F×H×W(×3) resampled to F×size×size(×3): the central square of each, or all of it, squeezed."""
    cut = _cut(frames, fit)
    if cut.shape[1:3] == (size, size):
        return np.ascontiguousarray(cut)
    # Averages where a frame shrinks; else every stored pixel that falls between two others would be lost, or flicker.
    smaller = size <= cut.shape[1] and size <= cut.shape[2]
    way = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
    return np.stack([cv2.resize(frame, (size, size), interpolation=way) for frame in np.ascontiguousarray(cut)])


def network_frames(frames: np.ndarray, protected: np.ndarray | None, size: int, fit: str = "crop") -> tuple[np.ndarray, np.ndarray | None]:
    """The frames at the network's size (F×3×size×size bytes), and which of their pixels anything protected has a part in.

    Formal guarantee: `hidden`, and every pixel that is not hidden, is a function of `protected` and of the stored pixels that are not
    protected.

    Args:
        frames: F×H×W×3 bytes, as they were stored.
        protected: F×H×W; nothing where no mask is known, and then nothing is hidden.
    """
    shown = fitted(frames, size, fit)
    if protected is None:
        return np.ascontiguousarray(shown.transpose(0, 3, 1, 2)), None
    covered = fitted(np.where(protected[..., None], np.uint8(COVER), frames), size, fit)
    hidden = fitted(protected.astype(np.float32), size, fit) > 0
    if _cut(frames, fit).shape[1:3] != (size, size):
        # A weight too small for a float is still a part.
        hidden = _grown(hidden, 1)
    clip = np.where(hidden[..., None], shown, covered)
    return np.ascontiguousarray(clip.transpose(0, 3, 1, 2)), hidden


def _cut(frames: np.ndarray, fit: str) -> np.ndarray:
    if fit not in FIT:
        raise unknown_name("way to fit frames (data.fit)", fit, FIT)
    if fit == "squeeze":
        return frames
    height, width = frames.shape[1:3]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return frames[:, top : top + side, left : left + side]


def _grown(mask: np.ndarray, pixels: int) -> np.ndarray:
    if pixels < 1:
        return mask
    square = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    grown = [cv2.dilate(one, square) for one in np.ascontiguousarray(mask, np.uint8)]
    return np.stack(grown).astype(bool) if grown else mask
