"""Masks by motion: what moves before a still camera is taken for the person.

The background is the median of the film's frames (`median`), or a mixture that OpenCV learns (`mog2`, `knn`); what differs from it moves.
This is an **estimate**. Whoever stands still becomes part of the background, wholly or in part: who waves has arms, and hardly a body. It
errs in both directions, and which of them is harmless depends on what is protected:

- `protect: background`: the person is public, so only what surely moves counts as the person: a high threshold, specks and shadows taken
  away, nothing filled in. A body that stands still stays protected with the background, which costs accuracy and no privacy.
- `protect: person`: the person is protected, so whatever might be them counts: a low threshold, gaps closed, holes filled, and the hull of
  each moving part. A body that stands still all the time is **not** found: use `files` or `boxes` where people do.

`data.mask_margin` grows the protected part besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.clip_masks import with_mask
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError, unknown_name

MOTION = ("median", "mog2", "knn")
# Frames the median is taken of, at most, evenly over the film.
_SAMPLED = 96
# In units of the film's own noise, and in grey levels at least: what differs by less may be noise or the codec.
_SURE, _LIKELY = (10.0, 18.0), (5.0, 8.0)
# Of the frame's height: how wide a speck may be that is taken away, and a gap that is closed.
_SPECK, _GAP = 0.012, 0.04
# Parts smaller than this share of the largest one are not the person; nor is anything smaller than this share of the frame.
_OF_LARGEST, _OF_FRAME = 0.1, 0.0008


@dataclass(frozen=True)
class MotionMasks:
    """What moves, by background subtraction."""

    protect: str
    way: str = "median"
    blended: int = 1
    kind = "motion"

    def __post_init__(self) -> None:
        if self.protect == "mask":
            raise HalfmaskError("data.masks is motion and data.protect is mask: what moves is a person; protect person or background")
        if self.way not in MOTION:
            raise unknown_name("way to find what moves (data.motion)", self.way, MOTION)

    @property
    def words(self) -> str:
        """For the certificate."""
        way = "the median frame" if self.way == "median" else f"OpenCV's {self.way.upper()}"
        return f"an estimate by motion: what differs from {way} of a still camera counts as the person"

    @property
    def key(self) -> str:
        """What decides what masks look like."""
        return f"motion/{self.protect}/{self.way}/{self.blended}/{_SURE}/{_LIKELY}/{_SPECK}/{_GAP}/{_OF_LARGEST}/{_OF_FRAME}/1"

    def __call__(self, take: Take, film: Film) -> Film:
        """The film with what moves as the person."""
        return with_mask(film, moving(film.frames, self.protect == "person", self.way), self.protect, self.blended)

    def stamp(self, take: Take) -> str:
        """The film's own stamp tells."""
        return ""


def moving(frames: np.ndarray, generous: bool, way: str = "median") -> np.ndarray:
    """F×H×W: what moves.

    Args:
        generous: whether what may be moving counts, or only what surely is.
    """
    found = _by_median(frames, generous) if way == "median" else _by_learning(frames, way)
    return np.stack([_cleaned(one, generous) for one in found])


def _by_median(frames: np.ndarray, generous: bool) -> list[np.ndarray]:
    sampled = frames[np.unique(np.linspace(0, len(frames) - 1, min(len(frames), _SAMPLED)).round().astype(int))]
    background = np.median(sampled, axis=0).astype(np.uint8)
    differences = [cv2.GaussianBlur(cv2.absdiff(frame, background), (0, 0), 1.0).max(2) for frame in frames]
    # Most of a frame is background, so the typical difference is noise.
    noise = float(np.median([np.median(one) for one in differences]))
    times, least = _LIKELY if generous else _SURE
    return [one > max(least, times * noise) for one in differences]


def _by_learning(frames: np.ndarray, way: str) -> list[np.ndarray]:
    mixture = way == "mog2"
    learner: cv2.BackgroundSubtractor = (
        cv2.createBackgroundSubtractorMOG2(len(frames), 25, True) if mixture else cv2.createBackgroundSubtractorKNN(len(frames), 600, True)
    )
    # Twice over: the first frames are judged by a background that has seen the last ones.
    for frame in frames:
        learner.apply(frame)
    # 255 is what moves; 127 is its shadow.
    return [learner.apply(frame, learningRate=0) == 255 for frame in frames]


def _cleaned(mask: np.ndarray, generous: bool) -> np.ndarray:
    height, width = mask.shape
    speck = _disc(round(_SPECK * height))
    cleaned = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, speck)
    if generous:
        cleaned = cv2.morphologyEx(cleaned, cv2.MORPH_CLOSE, _disc(round(_GAP * height)))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(cleaned, connectivity=8)
    areas = stats[1:, cv2.CC_STAT_AREA]
    if not len(areas):
        return np.zeros(mask.shape, bool)
    large = 1 + np.flatnonzero((areas >= _OF_LARGEST * areas.max()) & (areas >= _OF_FRAME * height * width))
    kept = np.isin(labels, large)
    if not generous:
        return kept
    filled = np.zeros(mask.shape, np.uint8)
    outlines, _ = cv2.findContours(kept.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    for outline in outlines:
        cv2.fillConvexPoly(filled, cv2.convexHull(outline), 1)
    return filled.astype(bool) | kept


def _disc(radius: int) -> np.ndarray:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * max(1, radius) + 1,) * 2)
