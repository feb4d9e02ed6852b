"""Sheets of pictures to be looked at: the same people hidden in every way, and beside generated pictures what they are most like.

The second shows training pictures, and is an unaccounted read of whoever is on them: it is for drawn people, or for whoever holds the
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.skeleton import MPII, Skeleton
from halfmask.errors import HalfmaskError
from halfmask.models.judge import Judge, check_pictures, shipped_judge
from halfmask.report import canvas
from halfmask.report.overlay import contact_sheet, draw_skeleton

_GROUND: canvas.Colour = (58, 60, 66)
_TALL = 168


def pose_pictures(joints: np.ndarray, size: tuple[int, int], skeleton: Skeleton = MPII) -> np.ndarray:
    """Poses drawn on a dark ground, all that a generator is told, as bytes N×3×H×W. They are large: fine lines need pixels.

    Args:
        joints: N×J×3 (x, y, whether it is there) in pixels of pictures of this size.
    """
    times = max(1, round(256 / size[0]))
    ground = np.full((times * size[0], times * size[1], 3), _GROUND, np.uint8)
    drawn = [draw_skeleton(ground, (one[:, :2] + 0.5) * times - 0.5, one[:, 2] > 0, skeleton=skeleton) for one in np.asarray(joints, float)]
    return np.stack(drawn).transpose(0, 3, 1, 2)


def lineup(columns: Mapping[str, np.ndarray], row_titles: Sequence[str] = (), tall: int = _TALL) -> np.ndarray:
    """One row for each person, one column for each way to show them.

    Args:
        columns: by title, bytes N×3×H×W: picture i of every column is of the same person in the same pose. They may differ in size.
        row_titles: of each person, if wanted: what they do.
        tall: how high the cells are.
    """
    if not columns:
        raise HalfmaskError("a line-up without columns was asked for: expected at least one way to show people")
    for title, pictures in columns.items():
        check_pictures(pictures, f"pictures of '{title}'")
    counts = {title: len(pictures) for title, pictures in columns.items()}
    if len(set(counts.values())) > 1:
        raise HalfmaskError(f"columns of a line-up have {counts} pictures: expected the same people in each")
    people = next(iter(counts.values()))
    rows = [[_cell(pictures[person], tall) for pictures in columns.values()] for person in range(people)]
    return contact_sheet(rows, list(row_titles) or [""] * people, list(columns))


@dataclass(frozen=True)
class Nearest:
    """What generated pictures are most like.

    Attributes:
        rows: of each, the training picture that is nearest.
        distances: how far it is, as the judge sees it.
        usual: half of the training pictures are nearer than this to another training picture, which says how much a distance is.
        judge: the network that looked.
    """

    rows: np.ndarray
    distances: np.ndarray
    usual: float
    judge: str


def nearest(generated: np.ndarray, training: np.ndarray, judge: Judge | None = None) -> Nearest:
    """The nearest training picture of each generated one, by distance in what the pose network sees."""
    judge = judge or shipped_judge()
    if len(training) < 2:
        raise HalfmaskError(f"{len(training)} training pictures: expected at least two, to know how far apart they are")
    asked, known = judge.look(generated).features.astype(float), judge.look(training).features.astype(float)
    distances = np.stack([np.linalg.norm(known - one, axis=1) for one in asked])
    rows = distances.argmin(1)
    among = []
    for place, one in enumerate(known):
        apart = np.linalg.norm(known - one, axis=1)
        apart[place] = np.inf
        among.append(apart.min())
    return Nearest(rows, distances[np.arange(len(rows)), rows], float(np.median(among)), judge.name)


def nearest_sheet(generated: np.ndarray, training: np.ndarray, found: Nearest, pairs_a_row: int = 4, tall: int = _TALL) -> np.ndarray:
    """Each generated picture beside the training picture that is nearest to it, the nearest pairs first: there memory would show."""
    order = np.argsort(found.distances, kind="stable")
    gap, line = 14, 22
    pairs = []
    for place in order:
        left, right = _cell(generated[place], tall), _cell(training[found.rows[place]], tall)
        block = canvas.blank(left.shape[1] + right.shape[1] + 4, tall + line)
        block[:tall, : left.shape[1]] = left
        block[:tall, left.shape[1] + 4 :] = right
        canvas.draw_text(
            block, f"{found.distances[place]:.2f}", (block.shape[1] / 2, tall + line / 2), 0.42, canvas.FAINT_INK, align="centre"
        )
        pairs.append(block)
    words = "left: generated; right: the training picture that is nearest, and how far it is"
    more = f"as seen by {found.judge}; half of the training pictures are nearer than {found.usual:.2f} to another"
    across = min(pairs_a_row, len(pairs))
    wide, high = max(pair.shape[1] for pair in pairs), tall + line
    down = -(-len(pairs) // across)
    width = max(gap + across * (wide + gap), 2 * gap + max(canvas.text_size(text, 0.42)[0] for text in (words, more)))
    sheet = canvas.blank(width, 62 + down * (high + gap))
    canvas.draw_text(sheet, words, (gap, 20), 0.42)
    canvas.draw_text(sheet, more, (gap, 40), 0.42, canvas.FAINT_INK)
    for number, pair in enumerate(pairs):
        top, left_edge = 58 + number // across * (high + gap), gap + number % across * (wide + gap)
        sheet[top : top + pair.shape[0], left_edge : left_edge + pair.shape[1]] = pair
    return sheet


def _cell(picture: np.ndarray, tall: int) -> np.ndarray:
    """A picture 3×H×W as a cell of this height; small ones are enlarged pixel by pixel first, so that what is coarse looks coarse."""
    image = np.ascontiguousarray(picture.transpose(1, 2, 0))
    height, width = image.shape[:2]
    if height < tall:
        times = -(-tall // height)
        image = np.repeat(np.repeat(image, times, 0), times, 1)
    return cv2.resize(image, (max(1, round(width * tall / height)), tall), interpolation=cv2.INTER_AREA)
