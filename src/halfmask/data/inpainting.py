"""What the room looks like where somebody stood.

A camera that stands still sees most of the room at one time or another: the median of the frames in which nobody hides a pixel. What is
never seen is filled in from around it, which nobody may take for the room; neither may a model: every pixel that is filled is protected.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from halfmask.errors import unknown_name

Inpaint = Callable[[np.ndarray, np.ndarray], np.ndarray]

_RADIUS = 3.0
# Frames that a median is taken of: more of them show hardly more of the room.
_MOST = 64
_PLANES = 32
METHODS = {"telea": cv2.INPAINT_TELEA, "navier-stokes": cv2.INPAINT_NS}
# A camera stands still if, of what two frames show, half differs by no more than this, in steps of 255, and nine tenths by no more than
# three times as much; averaged over so many pixels that grain, which is new in every frame, does not count.
_STILL = 4.0
_GRAIN = (5, 5)


def inpaint_frames(frames: np.ndarray, holes: np.ndarray, method: str = "telea") -> np.ndarray:
    """Fill the holes (F×H×W) of each frame (F×H×W×3) from around them."""
    filled = frames.copy()
    for frame in np.flatnonzero(holes.any(axis=(1, 2))).tolist():
        filled[frame] = _fill(frames[frame], holes[frame], method)
    return filled


def inpaint_still(frames: np.ndarray, holes: np.ndarray, method: str = "telea") -> np.ndarray:
    """Fill the holes with the median of the frames that show what is behind them, and what none shows from around it."""
    anywhere: np.ndarray = np.any(holes, axis=0)
    if not anywhere.any():
        return frames.copy()
    y0, y1, x0, x1 = _around(anywhere, margin=8)
    part, gaps = frames[:, y0:y1, x0:x1], holes[:, y0:y1, x0:x1]
    plate = part[0].copy()
    behind = gaps.any(axis=0)
    some = np.linspace(0, len(frames) - 1, min(len(frames), _MOST)).round().astype(int)
    plate[behind], seen = _medians(part[some][:, behind], gaps[some][:, behind])
    unseen = np.zeros_like(behind)
    unseen[behind] = ~seen
    if unseen.any():
        plate = _fill(plate, unseen, method)
    filled = frames.copy()
    inside = filled[:, y0:y1, x0:x1]
    np.copyto(inside, plate, where=gaps[..., None])
    return filled


def inpaint(frames: np.ndarray, holes: np.ndarray, method: str = "telea") -> np.ndarray:
    """`inpaint_still` if the camera stands still, else `inpaint_frames`."""
    if len(frames) > 1 and stands_still(frames, holes):
        return inpaint_still(frames, holes, method)
    return inpaint_frames(frames, holes, method)


def stands_still(frames: np.ndarray, holes: np.ndarray) -> bool:
    """Whether the room stays where it is between the first, the middle and the last frame."""
    for one, other in ((0, len(frames) // 2), (len(frames) // 2, len(frames) - 1)):
        gone = holes[one] | holes[other]
        if one == other or gone.all():
            continue
        # Both blacked out alike: what people do must not count.
        first, second = (cv2.blur(np.where(gone[:, :, None], np.uint8(0), frames[at]), _GRAIN) for at in (one, other))
        apart = cv2.absdiff(first, second).max(axis=2)[~gone]
        # A blank wall looks the same wherever the camera points: edges tell.
        if float(np.median(apart)) > _STILL or float(np.quantile(apart, 0.9)) > 3 * _STILL:
            return False
    return True


def grown(masks: np.ndarray, pixels: int) -> np.ndarray:
    """Masks (F×H×W) and what lies within some pixels of them."""
    if pixels <= 0:
        return masks.astype(bool)
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * pixels + 1, 2 * pixels + 1))
    wide = np.empty(masks.shape, bool)
    # OpenCV grows each channel on its own, so that many frames go in one call; not all of a long film.
    for start in range(0, len(masks), _PLANES):
        planes = np.ascontiguousarray(masks[start : start + _PLANES].astype(np.uint8).transpose(1, 2, 0))
        wide[start : start + _PLANES] = cv2.dilate(planes, disc).reshape(planes.shape).transpose(2, 0, 1)
    return wide


def _fill(picture: np.ndarray, holes: np.ndarray, method: str) -> np.ndarray:
    if method not in METHODS:
        raise unknown_name("way of inpainting", method, METHODS)
    if holes.all():
        # Nothing is left to fill it from.
        return np.full_like(picture, 128)
    y0, y1, x0, x1 = _around(holes, margin=8)
    filled = picture.copy()
    near = np.ascontiguousarray(picture[y0:y1, x0:x1])
    if holes[y0:y1, x0:x1].all():
        near, (y0, y1, x0, x1) = picture, (0, picture.shape[0], 0, picture.shape[1])
    # What is to be filled is blacked out first: nothing of the person may shine through, whatever OpenCV does.
    gaps = holes[y0:y1, x0:x1]
    near = np.where(gaps[:, :, None], np.uint8(0), near)
    filled[y0:y1, x0:x1] = cv2.inpaint(near, gaps.astype(np.uint8), _RADIUS, METHODS[method])
    return filled


def _medians(values: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The median of F×P×3 bytes over the frames in which each of P pixels is not missing, and which have one."""
    count = (~missing).sum(axis=0)
    # Beyond all bytes, so that what is missing is sorted to the end.
    ranked = np.where(missing[:, :, None], np.int16(256), values.astype(np.int16))
    ranked.sort(axis=0)
    middle = np.maximum(count - 1, 0) // 2
    chosen = np.take_along_axis(ranked, middle[None, :, None], axis=0)[0]
    seen = count > 0
    return np.where(seen[:, None], chosen, 0).astype(np.uint8), seen


def _around(mask: np.ndarray, margin: int) -> tuple[int, int, int, int]:
    """The box of a mask, and some pixels more."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    height, width = mask.shape
    return (
        max(0, int(rows[0]) - margin),
        min(height, int(rows[-1]) + 1 + margin),
        max(0, int(columns[0]) - margin),
        min(width, int(columns[-1]) + 1 + margin),
    )
