"""Masks by motion: what moves before a still camera is taken for the person.

The background is the median of the film's frames (`median`), or a mixture that OpenCV learns (`mog2`, `knn`); what differs from it moves.
This is an **estimate**. Whoever stands still becomes part of the background, wholly or in part: who waves has arms, and hardly a body; and
where a still body has left, the wall behind it differs from the median. Which error is harmless depends on what is protected:

- `protect: background`: the person is public, so only what surely moves counts as the person: a high threshold, specks taken away, nothing
  filled in, and only where the frame's own colours agree (GrabCut), which sorts out walls that somebody has just left. A body that stands
  still stays protected with the background: that costs accuracy and no privacy.
- `protect: person`: the person is protected, so whatever might be them counts: a low threshold, gaps closed, and all inside the outline
  around what moves, over the whole film if they stay where they are.

Drawn people, whose true masks are known (60 public clips of 32 frames at 144×144, one pixel blended and a margin of one):
with `background`, 5 % of what was public was background (20 % without asking the colours), and 11 % of the person was public; with
`person`, 31 % of the person was **not** covered, most of it of people who hardly move. Use `files` or `boxes` where that matters. OpenCV's
mixtures are for long films: in clips as short as these they learn the person as background (0.2 % of the person was public).

`hull` is another promise rather than an estimate: with `protect: background` all inside that outline is *declared* public, the wall
between somebody's legs included. Small people leave no public token otherwise: of weizmann's, 60 pixels high, a network of 96×96 with
patches of 7×7 has none with `median` and some tens with `hull` (with `data.fit: person`; half of what is public is then wall).
`data.mask_margin` grows the protected part besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.clip_masks import with_mask
from halfmask.data.clips import Film, Take
from halfmask.errors import HalfmaskError, unknown_name

LEARNT = ("mog2", "knn")
MOTION = ("median", *LEARNT, "hull")
# Frames the median is taken of, at most, evenly over the film.
_SAMPLED = 96
# In units of the film's own noise, and in grey levels at least: what differs by less may be noise or the codec.
_SURE, _LIKELY = (6.0, 12.0), (5.0, 8.0)
# Of the frame's height: how wide a speck may be that is taken away, a gap that is closed, and how far around what moves colours are asked.
_SPECK, _GAP, _AROUND = 0.012, 0.04, 0.12
# Parts smaller than this share of the largest one are not the person; nor is anything smaller than this share of the frame.
_OF_LARGEST, _OF_FRAME = 0.1, 0.0008
# Somebody stays where they are if the outline of a whole film is at most so many times as large as that of a frame.
_STAYS = 2.0
_ROUNDS = 2


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
        if self.way == "hull" and self.protect == "background":
            return "by motion before a still camera: all inside the outline around what moves is public, the background there too"
        way = f"OpenCV's {self.way.upper()}" if self.way in LEARNT else "the median frame"
        return f"an estimate by motion: what differs from {way} of a still camera counts as the person"

    @property
    def key(self) -> str:
        """What decides what masks look like."""
        settings = (_SURE, _LIKELY, _SPECK, _GAP, _AROUND, _OF_LARGEST, _OF_FRAME, _STAYS, _ROUNDS)
        return f"motion/{self.protect}/{self.way}/{self.blended}/{settings}/2"

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film with what moves as the person."""
        generous = self.protect == "person" or self.way == "hull"
        return with_mask(film, moving(film.frames, generous, self.way, picked), self.protect, self.blended)

    def stamp(self, take: Take) -> str:
        """The film's own stamp tells."""
        return ""


def moving(frames: np.ndarray, generous: bool, way: str = "median", picked: np.ndarray | None = None) -> np.ndarray:
    """F×H×W: what moves.

    Args:
        generous: whether what may be moving counts, with all inside the outline around it, or only what surely is.
        picked: frames that matter, where only those need be exact: colours are slow to ask. In the others nothing surely moves.
    """
    found = _by_median(frames, generous) if generous or way not in LEARNT else []
    if way in LEARNT:
        learnt = _by_learning(frames, way)
        # What a mixture has got used to may be somebody all the same.
        found = [one | other for one, other in zip(learnt, found, strict=True)] if generous else learnt
    cleaned = np.stack([_cleaned(one, generous) for one in found])
    if generous:
        return _outlined(cleaned)
    agreed = np.zeros(cleaned.shape, bool)
    for number in range(len(frames)) if picked is None else np.unique(picked):
        agreed[number] = _cleaned(cleaned[number] & _coloured(frames[number], cleaned[number]), generous)
    return agreed


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
    """Without specks, and only the largest parts."""
    height, width = mask.shape
    cleaned = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, _disc(_SPECK * height))
    if generous:
        cleaned = cv2.morphologyEx(cleaned, cv2.MORPH_CLOSE, _disc(_GAP * height))
    _, labels, stats, _ = cv2.connectedComponentsWithStats(cleaned, connectivity=8)
    areas = stats[1:, cv2.CC_STAT_AREA]
    if not len(areas):
        return np.zeros(mask.shape, bool)
    large = 1 + np.flatnonzero((areas >= _OF_LARGEST * areas.max()) & (areas >= _OF_FRAME * height * width))
    return np.asarray(np.isin(labels, large))


def _coloured(frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """What the frame's own colours say the person is, starting from what moves; nowhere, if there is nothing to start from."""
    around = cv2.dilate(mask.astype(np.uint8), _disc(_AROUND * len(mask))) > 0
    if not mask.any() or around.all():
        return np.zeros(mask.shape, bool)
    rows, columns = np.flatnonzero(around.any(1)), np.flatnonzero(around.any(0))
    # Of the rest of the frame, a rim around this part is enough to know the background by.
    part = tuple(slice(max(0, int(found[0]) - 4), int(found[-1]) + 5) for found in (rows, columns))
    guess = np.where(around[part], cv2.GC_PR_BGD, cv2.GC_BGD).astype(np.uint8)
    guess[mask[part]] = cv2.GC_PR_FGD
    try:
        # Its mixtures of colours begin at random; OpenCV's numbers are a thread's own, and the masks must be the same each time.
        cv2.setRNGSeed(0)
        models = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.grabCut(np.ascontiguousarray(frame[part]), guess, (0, 0, 1, 1), *models, _ROUNDS, cv2.GC_INIT_WITH_MASK)
    except cv2.error:
        # Too few pixels to tell colours by.
        return np.zeros(mask.shape, bool)
    found = np.zeros(mask.shape, bool)
    found[part] = (guess == cv2.GC_FGD) | (guess == cv2.GC_PR_FGD)
    return found


def _outlined(masks: np.ndarray) -> np.ndarray:
    """All inside the outline around what moves in a frame; in the whole film, where that is hardly larger: they stay where they are."""
    outlines = np.stack([_hull(one) for one in masks])
    shown = outlines[outlines.any(axis=(1, 2))]
    if not len(shown):
        return outlines
    whole = _hull(np.asarray(masks.any(0)))
    stays = whole.sum() <= _STAYS * np.median(shown.sum(axis=(1, 2)))
    return np.repeat(whole[None], len(masks), 0) if stays else outlines


def _hull(mask: np.ndarray) -> np.ndarray:
    filled = np.zeros(mask.shape, np.uint8)
    if mask.any():
        cv2.fillConvexPoly(filled, cv2.convexHull(np.argwhere(mask)[:, ::-1].astype(np.int32)), 1)
    return filled.astype(bool) | mask


def _disc(radius: float) -> np.ndarray:
    return np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * max(1, round(radius)) + 1,) * 2))
