"""Other formats as a folder of one's own (`halfmask.data.folder`): the same people, images and joints, to be looked at and changed.

Joints are those of MPII. A joint that nobody annotated has no label: a point that follows from others would be scored as if somebody had
placed it. Every record is checked as a reader would check it before any image is copied.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from halfmask.data.files import Complaints, finite_array, where_named
from halfmask.data.folder import folder_body, read_sound
from halfmask.data.folder_checks import SPLITS, VERSION, check_entries
from halfmask.data.formats import FORMATS, read_annotations
from halfmask.data.mapping import JointMapping, map_joints
from halfmask.data.people import CLAMPED, MISSING, Annotations, Part, Person
from halfmask.data.people_csv import read_people_csv
from halfmask.data.skeleton import MPII
from halfmask.data.splits import SplitsConfig, divide
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.writing import write_whole

Report = Callable[[int, int], None]
SOURCES = (*FORMATS, "csv")


@dataclass
class Converted:
    """What came of a conversion.

    Attributes:
        people: how many of each split.
        images: how many image files.
        left_out: how many people are not in it, by the reason.
        unlabelled: joints that nobody has, because the source has no such joint.
    """

    folder: Path
    people: dict[str, int] = field(default_factory=dict)
    images: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    unlabelled: tuple[str, ...] = ()


def convert_dataset(
    source: Path,
    out: Path,
    format: str | None = None,
    splits: SplitsConfig | None = None,
    annotations: tuple[str, ...] = (),
    head_boxes: str = "sides",
    on_bad: str = "refuse",
    link: bool = False,
    report: Report | None = None,
) -> Converted:
    """Write a dataset as a folder of one's own.

    Args:
        source: a dataset folder, or a table of people (`.csv`).
        format: one of `SOURCES`; found out if not given.
        splits: who is private, public and test; by default as in training, and whoever is in none is private.
        head_boxes: of a folder of one's own, `corners` where its head boxes are x1, y1, x2, y2, as before version 2.
        on_bad: `skip` people whose image file is missing, or `refuse`.
        link: make hard links instead of copies of images.
    """
    _check_place(source, out)
    found = _read(source, format, annotations, head_boxes)
    mapping = map_joints(found.skeleton, MPII)
    done = Converted(out, unlabelled=tuple(name for name, parts in zip(MPII.names, mapping.sources, strict=True) if len(parts) != 1))
    places = _Places()
    records: list[dict[str, Any]] = []
    lost: list[str] = []
    for split, part in _divided(found, splits or SplitsConfig()).items():
        for person in part.people:
            if os.path.isfile(person.path):
                records.append(_record(person, split, mapping, places))
            else:
                lost.append(MISSING)
        # Whoever's box was cut to the image is there all the same.
        lost += [one.reason for one in part.left_out if one.reason != CLAMPED]
    if on_bad == "refuse" and MISSING in lost:
        raise HalfmaskError(
            f"{lost.count(MISSING):,} people are on images that are missing: restore them ({where_named(source)}), or leave these people "
            "out with --on-bad skip"
        )
    complaints = Complaints(out / "annotations.json", "record", out)
    kept = [entry for _, entry in check_entries(records, VERSION, complaints)]
    done.left_out = dict(Counter(lost)) | complaints.kinds
    if not kept:
        raise HalfmaskError(f"nobody of {source} can be a record: the dataset would be empty ({_told(done.left_out)})")
    used = {entry["image"] for entry in kept}
    for number, name in enumerate(sorted(used), 1):
        _put(places.source_of(name), out / name, link)
        if report:
            report(number, len(used))
    # Last, so that a folder with annotations is a folder with all its pictures.
    write_whole(out / "annotations.json", (json.dumps({"version": VERSION, "records": kept}, indent=1) + "\n").encode())
    done.images = len(used)
    done.people = {split: sum(entry["split"] == split for entry in kept) for split in SPLITS}
    return done


class _Places:
    """Which file becomes which image of the folder: two files of one name in two places stay two."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Path], str] = {}
        self._sources: dict[str, Path] = {}

    def name_of(self, person: Person, split: str) -> str:
        known = self._names.get((split, person.path))
        if known is not None:
            return known
        parts = [part for part in PurePosixPath(person.image.replace("\\", "/")).parts if part not in ("/", "..", "images")]
        wanted = PurePosixPath("images", split, *parts)
        name, number = wanted, 1
        while str(name) in self._sources:
            number += 1
            name = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        self._names[split, person.path] = str(name)
        self._sources[str(name)] = person.path
        return str(name)

    def source_of(self, name: str) -> Path:
        return self._sources[name]


def _check_place(source: Path, out: Path) -> None:
    if out.resolve() == (source if source.is_dir() else source.parent).resolve():
        raise HalfmaskError(f"{out} is where the dataset itself is: choose another folder to write to")
    if (out / "annotations.json").exists():
        raise HalfmaskError(f"{out} already holds a dataset: choose another folder")


def _read(source: Path, format: str | None, annotations: tuple[str, ...], head_boxes: str) -> Annotations:
    if format is not None and format not in SOURCES:
        raise unknown_name("dataset format", format, SOURCES)
    if head_boxes not in ("sides", "corners"):
        raise unknown_name("reading of head boxes", head_boxes, ("sides", "corners"))
    if format == "csv" or (format is None and source.is_file()):
        return read_people_csv(source)
    if head_boxes == "corners":
        body = folder_body(source)
        sound, complaints = read_sound(source, {"version": VERSION, "records": [_with_sides(entry) for entry in body["records"]]})
        complaints.raise_if_any(len(body["records"]))
        return sound
    return read_annotations(source, format, annotations)


def _with_sides(entry: Any) -> Any:
    """A record of a folder from before version 2, with its head box as it is written now; inverted ones are for the check to refuse."""
    corners = finite_array(entry.get("head_box"), (4,)) if isinstance(entry, dict) else None
    if corners is None:
        return entry
    return entry | {"head_box": [*corners[:2].tolist(), *(corners[2:] - corners[:2]).tolist()]}


def _divided(found: Annotations, splits: SplitsConfig) -> dict[str, Part]:
    """Who is private, public and test; whoever nobody spoke of is private, which is the one mistake that costs no one anything."""
    parts = divide(found, splits)
    if splits.private is None and "private" not in parts:
        taken = {image for part in parts.values() for image in part.images}
        rest = [part for name, part in found.parts.items() if name not in ("val", "test")]
        people = tuple(person for part in rest for person in part.people if person.image not in taken)
        left_out = tuple(one for part in rest for one in part.left_out if one.image not in taken)
        parts["private"] = Part("private", tuple(sorted({person.image for person in people})), people, left_out)
    return {name: part for name, part in parts.items() if name in SPLITS}


def _record(person: Person, split: str, mapping: JointMapping, places: _Places) -> dict[str, Any]:
    joints = np.zeros((len(MPII), 3))
    for joint, sources in enumerate(mapping.sources):
        if len(sources) == 1 and person.joints[sources[0], 2] > 0:
            joints[joint] = person.joints[sources[0]]
    entry: dict[str, Any] = {
        "image": places.name_of(person, split),
        "split": split,
        "box": [round(float(value), 2) for value in person.box],
        "joints": [[round(float(x), 2), round(float(y), 2), int(v)] for x, y, v in joints],
    }
    if person.head_box is not None:
        x1, y1, x2, y2 = person.head_box
        entry["head_box"] = [round(float(value), 2) for value in (x1, y1, x2 - x1, y2 - y1)]
    if person.subject is not None:
        entry["subject"] = person.subject_name
    return entry


def _put(source: Path, target: Path, link: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise HalfmaskError(f"{target} exists already: choose an empty folder to write to")
    if not link:
        shutil.copyfile(source, target)
        return
    try:
        os.link(source, target)
    except OSError as error:
        raise HalfmaskError(f"images cannot be linked to {target.parent} ({error.strerror}): copy them, without --link") from None


def _told(left_out: dict[str, int]) -> str:
    return "; ".join(f"{count:,} × {reason}" for reason, count in left_out.items()) or "it has no people"
