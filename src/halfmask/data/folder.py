"""A folder of your own images: `annotations.json` beside them.

    {"records": [{"image": "images/0001.jpg", "split": "private", "box": [x, y, width, height],
                  "joints": [[x, y, v], … 16 in MPII order], "head_box": [x1, y1, x2, y2], "subject": "anything"}, …]}

`split` is `private`, `public` or `test`. `box` is the person's box; the crop is that box grown by a quarter and to the network's shape.
`v` is 0 for a joint that is not labelled, 1 for occluded, 2 for visible. `subject` is optional; without it the unit `subject` cannot be
protected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.figures import JOINT_NAMES
from halfmask.data.files import Complaints, describe, finite_array, read_json
from halfmask.data.people import Annotations, Part, Person
from halfmask.data.pose_records import PoseRecords
from halfmask.data.reading import read_people
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

SPLITS = ("private", "public", "test")
_FIELDS = {"image": str, "split": str, "box": list, "joints": list, "head_box": list}
_KIND_NAMES = {str: "a text", list: "a list"}


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
    body = read_json(path)
    entries = body.get("records") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise HalfmaskError(f'{path} has no list "records": expected {{"records": [...]}}')
    if not entries:
        raise HalfmaskError(f"{path} lists no records: the dataset is empty")
    complaints = Complaints(path, "record", folder)
    for number, entry in enumerate(entries):
        problem = _problem(entry)
        if problem:
            complaints.add(number, entry.get("image") if isinstance(entry, dict) else None, *problem)
    complaints.raise_if_any(len(entries))
    return entries


def _problem(entry: Any) -> tuple[str, Any] | None:
    """What is wrong with an entry, in words that hold nothing of it, and the value that is wrong."""
    if not isinstance(entry, dict):
        return f"found {describe(entry)}, expected an object", entry
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind):
            return f"no valid '{name}': found {describe(entry.get(name))}, expected {_KIND_NAMES[kind]}", entry.get(name)
    if entry["split"] not in SPLITS:
        return f"'split' is another word than {', '.join(SPLITS)}", entry["split"]
    for name, shape in (("box", (4,)), ("head_box", (4,)), ("joints", (len(JOINT_NAMES), 3))):
        if finite_array(entry[name], shape) is None:
            return f"'{name}' is {describe(entry[name])}, expected {'×'.join(map(str, shape))} finite numbers", entry[name]
    if not (entry["box"][2] > 0 and entry["box"][3] > 0):
        return "'box' has no area: expected a width and a height above 0", entry["box"]
    return None
