"""A folder of your own images: `annotations.json` beside them.

    {"records": [{"image": "images/0001.jpg", "split": "private", "box": [x, y, width, height],
                  "joints": [[x, y, v], … 16 in MPII order], "head_box": [x1, y1, x2, y2], "subject": "anything"}, …]}

`split` is `private`, `public` or `test`. `box` is the person's box; the crop is that box grown by a quarter and to the network's shape.
`v` is 0 for a joint that is not labelled, 1 for occluded, 2 for visible. `subject` is optional; without it the unit `subject` cannot be
protected.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.figures import JOINT_NAMES
from halfmask.data.people import Annotations, Part, Person
from halfmask.data.reading import read_people
from halfmask.data.records import PoseRecords
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

SPLITS = ("private", "public", "test")
_FIELDS = {"image": str, "split": str, "box": list, "joints": list, "head_box": list}


def detect_folder(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return (folder / "annotations.json").is_file()


def read_folder(folder: Path) -> Annotations:
    """The people of a folder, by split; no image is opened."""
    entries = _read_annotations(folder)
    subjects = {name: i for i, name in enumerate(sorted({str(entry["subject"]) for entry in entries if "subject" in entry}))}
    images = {name: i for i, name in enumerate(sorted({entry["image"] for entry in entries}))}
    parts = {}
    for split in SPLITS:
        chosen = [(number, entry) for number, entry in enumerate(entries) if entry["split"] == split]
        if not chosen:
            continue
        people = tuple(
            Person(
                entry["image"],
                folder / entry["image"],
                images[entry["image"]],
                tuple(entry["box"]),
                np.asarray(entry["joints"], np.float64),
                tuple(entry["head_box"]),
                subject=subjects[str(entry["subject"])] if "subject" in entry else None,
                subject_name=str(entry.get("subject", "")),
                annotation_id=number,
            )
            for number, entry in chosen
        )
        parts[split] = Part(split, tuple(sorted({entry["image"] for _, entry in chosen})), people)
    return Annotations("folder", folder, MPII, parts, (folder / "annotations.json",))


def folder_records(folder: Path, size: tuple[int, int] = (256, 192), only: tuple[str, ...] = SPLITS) -> dict[str, PoseRecords]:
    """Read and crop the records of a folder, by split.

    Args:
        only: the splits to read; no image of another is opened.
    """
    annotations = read_folder(folder)
    return {split: read_people(annotations, annotations.parts[split], size)[0] for split in only if split in annotations.parts}


def _read_annotations(folder: Path) -> list[dict[str, Any]]:
    if not folder.is_dir():
        raise HalfmaskError(f"no folder at {folder}: give the path of a dataset folder, or 'figures' for the embedded one")
    path = folder / "annotations.json"
    if not path.is_file():
        raise HalfmaskError(f"{folder} has no annotations.json: see 'halfmask.data.folder' for the format it is expected in")
    try:
        body = json.loads(path.read_text())
    except ValueError as error:
        raise HalfmaskError(f"{path} is not valid JSON ({error}): mend or re-export it") from None
    entries = body.get("records") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise HalfmaskError(f'{path} has no list "records": expected {{"records": [...]}}')
    if not entries:
        raise HalfmaskError(f"{path} lists no records: the dataset is empty")
    for number, entry in enumerate(entries):
        _check_entry(f"{path}, record {number}", entry)
    return entries


def _check_entry(place: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise HalfmaskError(f"{place} is a {type(entry).__name__}: expected an object")
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind):
            raise HalfmaskError(f"{place} has no valid '{name}': found {entry.get(name)!r}, expected a {kind.__name__}")
    if entry["split"] not in SPLITS:
        raise HalfmaskError(f"{place} has split '{entry['split']}': expected one of {', '.join(SPLITS)}")
    for name, shape in (("box", (4,)), ("head_box", (4,)), ("joints", (len(JOINT_NAMES), 3))):
        try:
            array = np.asarray(entry[name], np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != shape or not np.isfinite(array).all():
            raise HalfmaskError(f"{place}: '{name}' is not {'×'.join(map(str, shape))} finite numbers")
    if not (entry["box"][2] > 0 and entry["box"][3] > 0):
        raise HalfmaskError(f"{place}: the box {entry['box']} has no area")
