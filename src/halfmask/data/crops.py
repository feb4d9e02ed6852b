"""Opening the images of people and cutting them out, several at a time.

OpenCV works outside Python's lock, so threads suffice; each writes to rows of its own, so the result does not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.data.files import where_named
from halfmask.data.images import crop_transform, read_image
from halfmask.data.people import MISSING, NO_AREA, NO_JOINT, OUTSIDE, UNREADABLE, Box, LeftOut, Person
from halfmask.data.prints import print_fields, print_picture
from halfmask.data.store import Shape
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError, unknown_name

ON_BAD = ("refuse", "skip")

Progress = Callable[[int, int], None]


def crop_people(
    people: Sequence[Person],
    size: tuple[int, int],
    workers: int = 0,
    on_bad: str = "refuse",
    progress: Progress | None = None,
) -> tuple[dict[str, np.ndarray], list[LeftOut]]:
    """Crops of a few people, in memory, with their joints and head boxes in crop pixels, and who is not among them and why.

    Args:
        workers: threads; 0 for one per core.
        on_bad: what to do about an image file that is missing or damaged: `refuse` to go on, or `skip` its people.

    Returns:
        The arrays of the people kept, in the given order, with `kept`, their places in `people`; and those left out.
    """
    arrays = {name: np.zeros((len(people), *shape), kind) for name, (kind, shape) in crop_fields(people, size).items()}
    kept, left_out = crop_into(arrays, people, size, workers, on_bad, progress)
    if left_out:
        arrays = {name: array[kept] for name, array in arrays.items()}
    return arrays | {"kept": kept}, left_out


def crop_fields(people: Sequence[Person], size: tuple[int, int]) -> dict[str, Shape]:
    """The kind and the shape of everything that is kept of one person."""
    joints = len(people[0].joints) if people else 0
    return {
        "images": (np.uint8, (3, *size)),
        "joints": (np.float32, (joints, 2)),
        "labelled": (bool, (joints,)),
        "annotated": (bool, (joints,)),
        "head_boxes": (np.float32, (4,)),
        "transforms": (np.float64, (2, 3)),
        **print_fields(),
    }


def crop_into(
    arrays: Mapping[str, Any],
    people: Sequence[Person],
    size: tuple[int, int],
    workers: int = 0,
    on_bad: str = "refuse",
    progress: Progress | None = None,
) -> tuple[np.ndarray, list[LeftOut]]:
    """Write everybody's rows, in the fields of `crop_fields`, in memory or in a store: as many people as there may be, a few at a time.

    Returns:
        The places of the people whose rows are theirs, in ascending order, and those left out, whose rows hold nothing of use.
    """
    if on_bad not in ON_BAD:
        raise unknown_name("way to treat bad images (data.on_bad)", on_bad, ON_BAD)
    by_image: dict[Path, list[int]] = {}
    for i, person in enumerate(people):
        by_image.setdefault(person.path, []).append(i)
    left_out: dict[int, LeftOut] = {}
    done = 0
    # The first bad file ends the reading.
    jobs = in_order(lambda places: _crop_image(people, places, size, arrays, on_bad), by_image.values(), workers)
    for places, gone in zip(by_image.values(), jobs, strict=True):
        left_out |= gone
        done += len(places)
        if progress and (done % 50 < len(places) or done == len(people)):
            progress(done, len(people))
    kept = np.array([i for i in range(len(people)) if i not in left_out], dtype=np.int64)
    return kept, [left_out[i] for i in sorted(left_out)]


def joints_box(joints: np.ndarray, labelled: np.ndarray) -> Box:
    """The box round a person's labelled joints, for datasets that annotate no box."""
    points = joints[labelled, :2]
    (left, top), (right, bottom) = points.min(0), points.max(0)
    return float(left), float(top), float(right - left), float(bottom - top)


def box_problem(box: Box, image_size: tuple[int, ...]) -> str | None:
    """Why nobody can be cut out of an image (rows, columns) by this box; None if somebody can."""
    x, y, width, height = box
    if not (np.isfinite(box).all() and width >= 0 and height >= 0 and max(width, height) > 0):
        return NO_AREA
    if x >= image_size[1] or y >= image_size[0] or x + width <= 0 or y + height <= 0:
        return OUTSIDE
    return None


def _crop_image(
    people: Sequence[Person], places: list[int], size: tuple[int, int], arrays: Mapping[str, Any], on_bad: str
) -> dict[int, LeftOut]:
    """Fill in the rows of all people on one image, which is decoded once."""
    first = people[places[0]]
    try:
        image = read_image(first.path)
    except (HalfmaskError, OSError, ValueError):
        damage = UNREADABLE if os.path.isfile(first.path) else MISSING
        if on_bad == "refuse":
            # Neither the image nor its place in the list: a file's name can be a person's.
            raise HalfmaskError(
                f"an annotation names {damage}: restore such files ({where_named()}), or leave them out with data.on_bad=skip"
            ) from None
        return {i: LeftOut(people[i].image, damage, str(first.path)) for i in places}
    print_picture(arrays, places, image)
    left_out = {}
    for i in places:
        reason = _cut(image, people[i], i, size, arrays)
        if reason:
            left_out[i] = LeftOut(people[i].image, reason, f"box {[round(value, 1) for value in people[i].box]}")
    return left_out


def _cut(image: np.ndarray, person: Person, row: int, size: tuple[int, int], arrays: Mapping[str, Any]) -> str | None:
    problem = box_problem(person.box, image.shape[:2])
    if problem:
        return problem
    transform = crop_transform(person.box, size)
    placed = person.joints[:, :2] @ transform[:, :2].T + transform[:, 2]
    inside = ((placed >= 0) & (placed <= [size[1] - 1, size[0] - 1])).all(1)
    annotated = (person.joints[:, 2] > 0) & np.isfinite(placed).all(1)
    labelled = annotated & inside
    if not person.detected and not labelled.any():
        return NO_JOINT
    crop = cv2.warpAffine(image, transform, (size[1], size[0]), flags=cv2.INTER_LINEAR)
    arrays["images"][row] = crop.transpose(2, 0, 1)
    # What is not annotated may hold anything; garbage that is never stored cannot be read.
    arrays["joints"][row] = np.where(annotated[:, None], placed, 0)
    arrays["labelled"][row] = labelled
    arrays["annotated"][row] = annotated
    if person.head_box is None:
        arrays["head_boxes"][row] = np.nan
    else:
        corners = np.asarray(person.head_box, np.float64).reshape(2, 2) @ transform[:, :2].T + transform[:, 2]
        arrays["head_boxes"][row] = corners.ravel()
    arrays["transforms"][row] = transform
    return None
