"""What the readers of face datasets share: a photograph's file, a set of photographs by part, and a box for faces that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfmask.data.faces import Layout, Photograph
from halfmask.data.images import read_image
from halfmask.data.people import Box, file_stamp

# A box round landmarks ends at the brows. So much of its height is added above, for the forehead, and so much on the other sides.
_FOREHEAD, _MARGIN = 0.25, 0.05


def _mirror_of_68() -> tuple[int, ...]:
    """Jaw, brows, nose, lips: each run of points is its own mirror image. The eyes' corners and lids change places with the other eye's."""
    mirror = list(range(68))
    for first, last in ((0, 16), (17, 26), (31, 35), (48, 54), (55, 59), (60, 64), (65, 67)):
        for point in range(first, last + 1):
            mirror[point] = first + last - point
    for one, other in ((36, 45), (37, 44), (38, 43), (39, 42), (40, 47), (41, 46)):
        mirror[one], mirror[other] = other, one
    return tuple(mirror)


# The 68 points of dlib, Multi-PIE and 300-W.
DLIB68 = Layout("dlib68", _mirror_of_68())


@dataclass(frozen=True)
class ImageFile:
    """A photograph's file, opened when it is called. What is made of it is made again when the file changes."""

    path: Path

    def __call__(self) -> np.ndarray:
        """The photograph, H×W×3 bytes, red first."""
        return read_image(self.path)

    @property
    def stamp(self) -> str:
        """Changes when the file does."""
        return file_stamp(self.path)


@dataclass(frozen=True)
class Drawn:
    """A photograph that is drawn when it is called, and drawn anew when the code that draws it changes."""

    draw: Callable[[], np.ndarray]
    stamp: str

    def __call__(self) -> np.ndarray:
        """The photograph, H×W×3 bytes, red first."""
        return self.draw()


@dataclass(frozen=True)
class FaceSet:
    """What a folder of faces says, photographs unopened.

    Attributes:
        parts: the photographs of each of the dataset's own splits, or all of them (`all`), in the order of their names.
        attribute: what the binary attribute is called; empty where there is none.
    """

    format: str
    folder: Path
    layout: Layout
    parts: dict[str, list[Photograph]]
    attribute: str = ""


def landmarks_box(landmarks: np.ndarray) -> Box:
    """The box of a face of which only landmarks are known; it may reach out of the photograph, and is cut to it when that is opened."""
    (left, top), (right, bottom) = np.nanmin(landmarks, axis=0), np.nanmax(landmarks, axis=0)
    width, height = right - left, bottom - top
    return (
        float(left - _MARGIN * width),
        float(top - _FOREHEAD * height),
        float((1 + 2 * _MARGIN) * width),
        float((1 + _FOREHEAD + _MARGIN) * height),
    )
