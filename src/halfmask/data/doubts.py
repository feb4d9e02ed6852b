"""Annotations that can be used and had better be looked at: joints far from their image, images that show nothing, somebody twice.

`halfmask data inspect` tells them; nothing is left out because of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from halfmask.data.people import LeftOut, Person

FAR = "a labelled joint far outside the image"
TINY = "an image too small to show anybody"
TWICE = "the same image, box and joints twice"
ODD_VISIBILITY = "a visibility other than 0, 1 or 2"
# Pixels a side; less is a mistake, such as an empty picture of 1×1 that a program put in the place of a missing one.
_LEAST_SIDE = 16
# Annotators place joints a little outside of a picture that cuts somebody off; so far, in sides of the person's box, nobody does.
_FARTHEST = 0.5


def doubts_about(people: Sequence[Person], sizes: Mapping[Path, tuple[int, ...] | None]) -> list[LeftOut]:
    """What is doubtful about people as annotated.

    Args:
        sizes: rows and columns of each image that was opened and could be; what needs them is not asked of others.
    """
    found: list[LeftOut] = []
    seen: set[tuple[str, tuple[float, ...], bytes]] = set()
    for person in people:
        size = sizes.get(person.path)
        number = f"annotation {person.annotation_id}"
        if size is not None and min(size) < _LEAST_SIDE:
            found.append(LeftOut(person.image, TINY, f"{size[0]}×{size[1]} pixels"))
        elif size is not None and (far := _far_joint(person, size)):
            found.append(LeftOut(person.image, FAR, f"{number}, joint {far[0]} at {far[1]:g}, {far[2]:g} of {size[1]}×{size[0]}"))
        if not np.isin(person.joints[:, 2], (0, 1, 2)).all():
            found.append(LeftOut(person.image, ODD_VISIBILITY, number))
        said = (person.image, tuple(person.box), np.ascontiguousarray(person.joints).tobytes())
        if said in seen and not person.detected:
            found.append(LeftOut(person.image, TWICE, number))
        seen.add(said)
    return found


def _far_joint(person: Person, size: tuple[int, ...]) -> tuple[int, float, float] | None:
    """The labelled joint that is farthest outside, if it is far: its number, x and y."""
    slack = _FARTHEST * max(person.box[2:])
    points = person.joints[:, :2]
    outside = np.maximum(-points, points - [size[1], size[0]]).max(1)
    outside[(person.joints[:, 2] <= 0) | ~np.isfinite(outside)] = -np.inf
    worst = int(outside.argmax())
    return (worst, float(points[worst, 0]), float(points[worst, 1])) if outside[worst] > slack else None
