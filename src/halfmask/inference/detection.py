"""Where people are on a photograph, found without any download.

Two ways, measured side by side by `benchmarks/detection.py`:

* `network`: the pose network itself, shown windows of some sizes all over the picture. It was never shown a picture without a person, so it
  sees some everywhere; where it is sure of most joints, somebody is likelier to be.
* `hog`: histograms of oriented gradients and a linear classifier (Dalal and Triggs, 2005), which come with OpenCV. It knows people who
  stand or walk and are seen whole; of others it finds few.

Neither is a detector as one is trained today. Boxes from a better one come in by `--boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from scipy.special import expit

from halfmask.data.images import crop_transform, to_image
from halfmask.data.people import Box
from halfmask.inference.people_given import overlap
from halfmask.inference.poses import PoseSeer

# Larger pictures are made smaller before anybody is looked for: people of fewer pixels show no joints anyway.
_LONGEST, _SHORTEST = 800, 256
# The classifier was trained on windows of 64×128 pixels with a margin round the person: so much of a window is the person.
_INNER_WIDTH, _INNER_HEIGHT = 0.62, 0.75
# Two boxes that share more than this are one person's.
SAME_PERSON = 0.3
# So much of both a person's box shares with that of the second look at them.
_AGAIN = 0.5
_AT_ONCE = 32
# Pixels of its edge put round a picture, for those whose whole window would not fit on it.
_PAD = 32


@dataclass(frozen=True)
class Detected:
    """Somebody who was found.

    Attributes:
        score: from 0 to 1; of use to rank, and no chance.
    """

    box: Box
    score: float


Detector = Callable[[np.ndarray], list[Detected]]
Look = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Hog:
    """OpenCV's detector of people.

    Args:
        surest: leaves out whom the classifier is less sure of: a distance from its margin, not a chance.
    """

    def __init__(self, surest: float = 0.2):
        self.surest = surest
        self._hog: Any = cv2.HOGDescriptor()
        self._hog.setSVMDetector(np.asarray(cv2.HOGDescriptor.getDefaultPeopleDetector()))

    def __call__(self, image: np.ndarray) -> list[Detected]:
        """Everybody on a picture (H×W×3 bytes, red first), the surest first."""
        scale = min(max(1.0, _SHORTEST / min(image.shape[:2])), _LONGEST / max(image.shape[:2]))
        size = tuple(max(1, round(side * scale)) for side in image.shape[1::-1])
        shown = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        padded = cv2.copyMakeBorder(shown, _PAD, _PAD, _PAD, _PAD, cv2.BORDER_REPLICATE)
        if min(padded.shape[0] // 2, padded.shape[1]) < 64:
            return []
        windows, margins = self._hog.detectMultiScale(
            padded, hitThreshold=self.surest, winStride=(8, 8), padding=(8, 8), scale=1.05, groupThreshold=0
        )
        found = []
        for (x, y, width, height), margin in zip(windows, np.ravel(margins), strict=True):
            inner = (
                (x - _PAD + width * (1 - _INNER_WIDTH) / 2) / scale,
                (y - _PAD + height * (1 - _INNER_HEIGHT) / 2) / scale,
                width * _INNER_WIDTH / scale,
                height * _INNER_HEIGHT / scale,
            )
            found.append(Detected(inner, float(expit(2 * (margin - 1)))))
        return one_of_many(inside(found, image.shape))


class ByNetwork:
    """A pose network, shown windows of the picture in its own aspect ratio; whoever it is sure of is found, with the box of their joints.

    Args:
        look: crops (N×3×H×W bytes) to joints (N×J×2) and scores (N×J).
        surest: the mean score of the joints below which a window shows nobody.
    """

    shares = (1.0, 0.7, 0.5, 0.35)

    def __init__(self, look: Look, input_size: tuple[int, int], surest: float = 0.3):
        self.look, self.input_size, self.surest = look, input_size, surest

    def __call__(self, image: np.ndarray) -> list[Detected]:
        """Everybody on a picture, the surest first."""
        first = one_of_many(
            [one for one in self._seen(image, windows(image.shape, self.input_size, self.shares)) if one.score >= self.surest]
        )
        # Once more, each in the middle of a window of their own: whoever is there is seen again, in the same place.
        again = self._seen(image, [one.box for one in first])
        found = [
            Detected(now.box, min(before.score, now.score))
            for before, now in zip(first, again, strict=True)
            if now.score >= self.surest and overlap(before.box, now.box) >= _AGAIN
        ]
        return one_of_many(inside(found, image.shape))

    def _seen(self, image: np.ndarray, boxes: Sequence[Box]) -> list[Detected]:
        """The box round the joints that the network sees in each window, and how sure it is."""
        found = []
        for start in range(0, len(boxes), _AT_ONCE):
            maps = [crop_transform(box, self.input_size) for box in boxes[start : start + _AT_ONCE]]
            crops = [cv2.warpAffine(image, one, self.input_size[::-1], flags=cv2.INTER_LINEAR) for one in maps]
            joints, scores = self.look(np.ascontiguousarray(np.stack(crops).transpose(0, 3, 1, 2)))
            for points, sure, transform in zip(joints, scores, maps, strict=True):
                placed = to_image(points, transform)
                low, high = placed.min(0), placed.max(0)
                # Joints end before hands, feet and the skin do.
                margin = 0.08 * (high - low).max()
                sides = np.maximum(high - low + 2 * margin, 1)
                box = (float(low[0] - margin), float(low[1] - margin), float(sides[0]), float(sides[1]))
                found.append(Detected(box, float(sure.mean())))
        return found


def finder(way: str, network: PoseSeer, film: bool) -> Detector | None:
    """Who finds people: `network`, `hog`, or nobody where a picture is one person's crop (`whole`).

    `auto` is the network, which finds more, for pictures, and OpenCV's detector for the many frames of a film, and for a network of whose
    scores nobody knows what they are worth.
    """
    if way == "whole":
        return None
    if way == "hog" or (way == "auto" and (film or not network.calibrated)):
        return Hog()
    # Mirror images are not looked at to find somebody: that would take twice as long.
    plain = getattr(network, "plain", lambda: network)()
    return ByNetwork(plain, network.input_size)


def windows(shape: tuple[int, ...], input_size: tuple[int, int], shares: Sequence[float]) -> list[Box]:
    """Boxes of people of some heights, as shares of the picture's, all over it, each overlapping the next by two thirds."""
    rows, columns = shape[:2]
    found: list[Box] = []
    for share in shares:
        height = rows * share
        width = height * input_size[1] / input_size[0]
        across = (
            np.linspace(0, columns - width, max(1, round(3 * (columns - width) / width) + 1))
            if columns > width
            else [(columns - width) / 2]
        )
        down = np.linspace(0, rows - height, max(1, round(3 * (rows - height) / height) + 1))
        found += [(float(x), float(y), float(width), float(height)) for y in down for x in across]
    return found


def one_of_many(found: Sequence[Detected], same: float = SAME_PERSON) -> list[Detected]:
    """Each person once, with the box that is surest; the surest first."""
    if not found:
        return []
    kept = cv2.dnn.NMSBoxes([one.box for one in found], [one.score for one in found], 0.0, same)
    return sorted((found[int(place)] for place in np.ravel(kept)), key=lambda one: -one.score)


def inside(found: Sequence[Detected], shape: tuple[int, ...]) -> list[Detected]:
    """With boxes cut to the picture; without those of which nothing is on it."""
    kept = []
    for one in found:
        x, y, width, height = one.box
        left, top, right, bottom = max(0.0, x), max(0.0, y), min(float(shape[1]), x + width), min(float(shape[0]), y + height)
        if right - left >= 2 and bottom - top >= 2:
            kept.append(Detected((left, top, right - left, bottom - top), one.score))
    return kept
