"""Filmstrips: some frames of a clip side by side, the protected part tinted, and sheets of several clips."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.report import canvas

# A red that no common room has; what is under it stays readable.
TINT: canvas.Colour = (220, 30, 30)
_OPACITY = 0.55
_GAP = 2


def filmstrip(
    frames: np.ndarray, hidden: np.ndarray | None = None, tint: canvas.Colour = TINT, count: int = 8, height: int | None = None
) -> np.ndarray:
    """Frames of a clip from left to right.

    Args:
        frames: F×H×W×3 bytes, red first.
        hidden: F×H×W; these pixels are tinted. A mask is drawn as it is, pixel by pixel: it is not smoothed.
        count: at most so many frames, spread evenly from the first to the last.
        height: of the strip in pixels; that of the frames if not given.
    """
    frames = np.asarray(frames)
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8 or 0 in frames.shape:
        raise HalfmaskError(
            f"the frames of a filmstrip have shape {frames.shape} and type {frames.dtype}; expected (frames, height, width, 3) of uint8: "
            "convert them to RGB with values from 0 to 255"
        )
    if hidden is not None and np.shape(hidden) != frames.shape[:3]:
        raise HalfmaskError(
            f"the mask of a filmstrip has shape {np.shape(hidden)}; expected that of the frames, {frames.shape[:3]}: one mask for each "
            "frame, as large as it"
        )
    chosen = np.unique(np.linspace(0, len(frames) - 1, max(1, min(count, len(frames)))).round().astype(int))
    pictures = []
    for place in chosen:
        picture = frames[place]
        if hidden is not None:
            picture = tinted(picture, np.asarray(hidden[place]), tint)
        pictures.append(_resized(picture, height))
    gap = np.full((pictures[0].shape[0], _GAP, 3), 255, np.uint8)
    row = [gap] * (2 * len(pictures) - 1)
    row[::2] = pictures
    return np.concatenate(row, 1)


def tinted(picture: np.ndarray, hidden: np.ndarray, tint: canvas.Colour = TINT) -> np.ndarray:
    """A picture, H×W×3, with some of its pixels under a coloured glass; the others are as they were."""
    glass = np.round(picture * (1 - _OPACITY) + np.array(tint) * _OPACITY).astype(np.uint8)
    return np.where(hidden.astype(bool)[..., None], glass, picture)


def sheet(strips: Sequence[np.ndarray], titles: Sequence[str] | None = None) -> np.ndarray:
    """Strips below each other, each under its title, if it has one."""
    titles = [""] * len(strips) if titles is None else list(titles)
    if not strips or len(titles) != len(strips):
        raise HalfmaskError(
            f"a sheet was given {len(strips)} filmstrips and {len(titles)} titles; expected at least one strip, and as many titles: "
            "give an empty title where none is wanted"
        )
    text = 0.5
    line = round(canvas.text_size("H", text)[1] * 1.6)
    gap = 8
    heights = [(line if title else 0) + strip.shape[0] for strip, title in zip(strips, titles, strict=True)]
    # A title is never cut: the sheet is as wide as the widest of both.
    widths = [max(strip.shape[1], canvas.text_size(title, text)[0]) for strip, title in zip(strips, titles, strict=True)]
    page = canvas.blank(max(widths) + 2 * gap, sum(heights) + gap * (len(strips) + 1))
    top = gap
    for strip, title, height in zip(strips, titles, heights, strict=True):
        if title:
            canvas.draw_text(page, title, (gap, top + line / 2 - 1), text)
        start = top + (line if title else 0)
        page[start : start + strip.shape[0], gap : gap + strip.shape[1]] = strip
        top += height + gap
    return page


def _resized(picture: np.ndarray, height: int | None) -> np.ndarray:
    if height is None or height == picture.shape[0]:
        return picture
    width = max(1, round(picture.shape[1] * height / picture.shape[0]))
    how = cv2.INTER_AREA if height < picture.shape[0] else cv2.INTER_NEAREST
    return cv2.resize(np.ascontiguousarray(picture), (width, height), interpolation=how)
