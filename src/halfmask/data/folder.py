"""A folder of your own images: `annotations.json` beside them; docs/schema.md explains every field.

    {"version": 2,
     "records": [{"image": "images/0001.jpg", "split": "private", "box": [x, y, width, height],
                  "joints": [[x, y, v], … 16 in MPII order], "head_box": [x, y, width, height], "subject": "anything"}, …]}

`split` is `private`, `public` or `test`. `box` is the person's box; the crop is that box grown by a quarter and to the network's shape.
`v` is 0 for a joint that is not labelled, 1 for occluded, 2 for visible. `head_box` and `subject` are optional; without the first people
are scored by PCK instead of PCKh, without the second the unit `subject` cannot be protected.

Before version 2 a `head_box` was two corners. Where a file does not say its version, that of its head boxes which can be read both ways
are refused, and so are, at any version, those that lie on the head as corners alone: a wrong scale would spoil PCKh without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.files import Complaints, read_json
from halfmask.data.folder_checks import SPLITS as SPLITS
from halfmask.data.folder_checks import check_entries
from halfmask.data.people import Annotations, Box, Part, Person
from halfmask.data.pose_records import PoseRecords
from halfmask.data.reading import read_people
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError


def detect_folder(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return (folder / "annotations.json").is_file()


def read_folder(folder: Path) -> Annotations:
    """The people of a folder, by split; no image is opened. Anything wrong with any record refuses all of it."""
    body = folder_body(folder)
    read, complaints = read_sound(folder, body)
    complaints.raise_if_any(len(body["records"]))
    return read


def read_sound(folder: Path, body: dict[str, Any]) -> tuple[Annotations, Complaints]:
    """The people of the sound records of a folder, for a look at them, and all that is wrong with the others."""
    path = folder / "annotations.json"
    complaints = Complaints(path, "record", folder)
    sound = check_entries(body["records"], body.get("version"), complaints)
    return Annotations("folder", folder, MPII, _parts(folder, sound), (path,)), complaints


def _parts(folder: Path, sound: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Part]:
    subjects = {name: i for i, name in enumerate(sorted({str(entry["subject"]) for _, entry in sound if "subject" in entry}))}
    images = {name: i for i, name in enumerate(sorted({entry["image"] for _, entry in sound}))}
    parts = {}
    for split in SPLITS:
        chosen = [(number, entry) for number, entry in sound if entry["split"] == split]
        if not chosen:
            continue
        people = tuple(
            Person(
                entry["image"],
                folder / entry["image"],
                images[entry["image"]],
                tuple(entry["box"]),
                np.asarray(entry["joints"], np.float64),
                corners_of(entry["head_box"]) if "head_box" in entry else None,
                subject=subjects[str(entry["subject"])] if "subject" in entry else None,
                subject_name=str(entry.get("subject", "")),
                annotation_id=number,
            )
            for number, entry in chosen
        )
        parts[split] = Part(split, tuple(sorted({entry["image"] for _, entry in chosen})), people)
    return parts


def corners_of(box: Sequence[float]) -> Box:
    """x1, y1, x2, y2 of x, y, width, height."""
    x, y, width, height = map(float, box)
    return x, y, x + width, y + height


def folder_records(folder: Path, size: tuple[int, int] = (256, 192), only: tuple[str, ...] = SPLITS) -> dict[str, PoseRecords]:
    """Read and crop the records of a folder, by split.

    Args:
        only: the splits to read; no image of another is opened.
    """
    annotations = read_folder(folder)
    return {split: read_people(annotations, annotations.parts[split], size)[0] for split in only if split in annotations.parts}


def folder_body(folder: Path) -> dict[str, Any]:
    """What `annotations.json` holds, if it lists records at all; they are not looked at."""
    if not folder.is_dir():
        raise HalfmaskError(f"no folder at {folder}: give the path of a dataset folder, or 'figures' for the embedded one")
    path = folder / "annotations.json"
    if not path.is_file():
        raise HalfmaskError(f"{folder} has no annotations.json: see 'halfmask.data.folder' for the format it is expected in")
    body = read_json(path)
    entries = body.get("records") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise HalfmaskError(f'{path} has no list "records": expected {{"records": [...]}}')
    if not entries:
        raise HalfmaskError(f"{path} lists no records: the dataset is empty")
    found: dict[str, Any] = body
    return found
