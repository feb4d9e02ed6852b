"""People as annotated, before any image is opened: what each format's reader returns.

A format is read in two stages. Its reader turns annotation files into `Person`s and opens no image; `halfmask.data.crops` then opens
the images of exactly those people who are asked for. So choosing a split looks at nobody outside it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.skeleton import Skeleton

Box = tuple[float, float, float, float]

# Why a person is not among the records, or not as annotated.
NO_JOINT = "no labelled joint"
CROWD = "a crowd, not a person"
NO_AREA = "a box without area"
OUTSIDE = "a box outside the image"
CLAMPED = "a box reaching out of the image, cut to it"
MISSING = "an image file that is missing"
UNREADABLE = "an image file that cannot be read"
BAD_FILES = (MISSING, UNREADABLE)


@dataclass(frozen=True)
class Person:
    """One annotated (or detected) person.

    Attributes:
        image: the image's name as the annotation file spells it.
        path: where the image file is; where it is expected if there is none.
        image_id: the same for all people on one image, and unique within the dataset.
        box: x, y, width, height in image pixels, before it is grown.
        joints: J×3 (x, y, v); v is 0 for a joint without a label, 1 for occluded, 2 for visible.
        head_box: x1, y1, x2, y2, where the dataset has it.
        area: of the person's outline in image pixels, where the dataset has it.
        subject, subject_name: the person, where the dataset tells: a number within the dataset, and the id as it is spelt.
        score: a detector's confidence; 1 for an annotated box.
        detected: whether the box comes from a detector, so that there are no joints to learn from.
    """

    image: str
    path: Path
    image_id: int
    box: Box
    joints: np.ndarray
    head_box: Box | None = None
    area: float = float("nan")
    subject: int | None = None
    subject_name: str = ""
    scene: str = ""
    annotation_id: int = 0
    score: float = 1.0
    detected: bool = False


@dataclass(frozen=True)
class LeftOut:
    """Somebody annotated who is not a record (or, for `CLAMPED`, not as annotated)."""

    image: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Part:
    """A dataset's own split, or all of it (`all`) where it has none.

    Attributes:
        images: the name of every image, in the order that ranges such as `1-800` count in; people or not.
        truth: for OKS-AP, the annotations as COCO has them, per image name.
        image_numbers: for OKS-AP, the id of each image in the annotation file.
    """

    name: str
    images: tuple[str, ...]
    people: tuple[Person, ...]
    left_out: tuple[LeftOut, ...] = ()
    truth: dict[str, list[dict[str, Any]]] | None = None
    image_numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Annotations:
    """What a dataset folder says, images unopened.

    Attributes:
        files: the annotation files that were read.
        passed_over: files that look like annotations and were not read, each with the reason.
    """

    format: str
    folder: Path
    skeleton: Skeleton
    parts: dict[str, Part]
    files: tuple[Path, ...]
    passed_over: tuple[str, ...] = ()


def digest_people(people: Sequence[Person]) -> str:
    """Names these people with these annotations on these files, for caches: a changed file is read again."""
    digest = hashlib.sha256()
    stamps: dict[Path, str] = {}
    for person in people:
        if person.path not in stamps:
            stamps[person.path] = file_stamp(person.path)
        numbers = (person.image_id, person.box, person.head_box, person.subject, person.annotation_id, person.score, person.area)
        digest.update(f"{person.image}|{stamps[person.path]}|{numbers!r}|{person.scene}".encode())
        digest.update(np.ascontiguousarray(person.joints, np.float64).tobytes())
    return digest.hexdigest()[:16]


def count_reasons(left_out: Iterable[LeftOut]) -> dict[str, int]:
    """How many were left out for each reason, the most frequent first."""
    counts: dict[str, int] = {}
    for one in left_out:
        counts[one.reason] = counts.get(one.reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def file_stamp(path: Path) -> str:
    """Changes when the file does, as caches have to know; a file that is not there has one, too."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return "missing"
    return f"{status.st_size}/{status.st_mtime_ns}"
