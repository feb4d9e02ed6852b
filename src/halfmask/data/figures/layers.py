"""Layers: a person drawn apart from the room, so that no pixel within them has any part of the room in it.

Shapes with soft edges drawn next to each other let a little of what is under them through along their seams. Clips protect the room and
show the person openly, and a seam through which the room shines would be a leak. A person is therefore drawn on black, with a fourth
channel that begins at 255 and is painted over with 0: it ends up as the share of what lies behind. Within the outline it is then set to
nothing, outside to everything; only the outline itself mixes the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from halfmask.data.figures.draw import Canvas

_NEAR = np.ones((3, 3), np.uint8)


@dataclass(frozen=True)
class Layer:
    """Something drawn apart: its colours on black, the share (of 255) of what lies behind, and its marks, all within a box."""

    x: int
    y: int
    colours: np.ndarray
    through: np.ndarray
    marks: np.ndarray
    """H×W of the whole frame."""
    person: bool = False

    def over(self, image: np.ndarray) -> None:
        """Lay it over an image, in place."""
        height, width = self.through.shape
        under = image[self.y : self.y + height, self.x : self.x + width]
        share = cv2.merge([self.through, self.through, self.through])
        cv2.add(cv2.multiply(under, share, scale=1.0 / 255.0), self.colours, dst=under)


def draw_layer(size: tuple[int, int], draw: Callable[[Canvas], None], person: bool = False) -> Layer:
    """Draw something, or a ``person``, on a layer of its own. What it does not mark is not there."""
    canvas = Canvas(np.zeros((*size, 4), np.uint8))
    canvas.image[..., 3] = 255
    draw(canvas)
    solid = (canvas.marks != 0).astype(np.uint8)
    x, y, width, height = cv2.boundingRect(solid)
    x1, y1 = min(x + width + 1, size[1]), min(y + height + 1, size[0])
    x, y = max(0, x - 1), max(0, y - 1)
    image, solid = canvas.image[y:y1, x:x1], solid[y:y1, x:x1]
    colours, through = np.ascontiguousarray(image[..., :3]), np.ascontiguousarray(image[..., 3])
    marks = canvas.marks
    own = marks[y:y1, x:x1]
    if not solid.size:
        return Layer(0, 0, np.zeros((1, 1, 3), np.uint8), np.full((1, 1), 255, np.uint8), marks, person)
    own[through >= 128] = 0  # what is more room than person is room
    solid = (own != 0).astype(np.uint8)
    outside = cv2.dilate(solid, _NEAR, borderType=cv2.BORDER_CONSTANT, borderValue=0) == 0
    colours[outside] = 0
    through[outside] = 255
    inside = cv2.erode(solid, _NEAR, borderType=cv2.BORDER_CONSTANT, borderValue=1).astype(bool)
    seams = inside & (through > 0)
    if seams.any():
        whole = 255.0 / (255.0 - through[seams].astype(np.float32))
        colours[seams] = np.minimum(255.0, colours[seams] * whole[:, None]).astype(np.uint8)
    through[inside] = 0
    return Layer(x, y, colours, through, marks, person)


def compose(image: np.ndarray, layers: list[Layer], front: Layer | None) -> np.ndarray:
    """Lay a person, what they hold and what stands before them over an image, in place; gives the marks of what one sees.

    A person's edge can lie under the edge of what they hold. Both are soft, and a little of the person would come through where no pixel of
    theirs is seen: away from the pixels of the person, the image is what it would be without them.
    """
    without = image.copy()
    marks = np.zeros(image.shape[:2], np.uint8)
    seen = np.zeros(image.shape[:2], np.uint8)
    for layer in layers if front is None else [*layers, front]:
        layer.over(image)
        if not layer.person:
            layer.over(without)
        cv2.copyTo(layer.marks, layer.marks, marks)
        seen[layer.marks != 0] = layer.person
    near = cv2.dilate(seen, _NEAR, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    cv2.copyTo(without, 1 - near, image)
    return marks
