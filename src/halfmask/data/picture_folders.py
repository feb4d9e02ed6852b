"""Folders of pictures that say by their names who is on each: Market-1501's, and frames by person and activity as in CAD-60."""

from __future__ import annotations

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from halfmask.data.face_files import ImageFile
from halfmask.data.files import BadAnnotations, Complaints, where_named
from halfmask.data.pictures import Picture, PictureSet, by_number
from halfmask.data.skeleton import MPII, full_name
from halfmask.errors import HalfmaskError, unknown_name

NOT_NAMED_SO = "a file whose name is not of the layout IIII_cCsS_FFFFFF_BB.jpg"
NOBODY = "a picture that the dataset calls junk or nobody's"

_MARKET_FOLDER, _MARKET_PUBLIC = "bounding_box_train", 100
_MARKET_NAME = re.compile(r"(-1|\d{4})_c\d+s\d+_\d+_\d+\.jpg")
_SUFFIXES = (".png", ".jpg", ".jpeg")
_JOINTS, _LABELS = "joints.csv", "activityLabel.txt"
# Beside its frames the release has depth pictures, which show no colours.
_DEPTH = re.compile(r"depth[_\d]", re.IGNORECASE)


def detect_market1501(folder: Path) -> bool:
    """Whether a folder is laid out as Market-1501."""
    place = folder / _MARKET_FOLDER
    return place.is_dir() and any(_MARKET_NAME.fullmatch(name) for name in os.listdir(place))


def read_market1501(folder: Path) -> PictureSet:
    """The crops of `bounding_box_train/IIII_cCsS_FFFFFF_BB.jpg`: identity, camera, sequence, frame, box. Nobody says what people do.

    Where nothing is said, the first 100 identities are public and the others private.
    """
    place = folder / _MARKET_FOLDER
    if not place.is_dir():
        raise HalfmaskError(f"{folder} has no folder {_MARKET_FOLDER}: expected the release of Market-1501")
    pictures, left_out = [], Counter[str]()
    for name in sorted(name for name in os.listdir(place) if not name.startswith(".") and name != "Thumbs.db"):
        found = _MARKET_NAME.fullmatch(name)
        if found is None:
            left_out[NOT_NAMED_SO] += 1
        elif found[1] in ("-1", "0000"):
            left_out[NOBODY] += 1
        else:
            pictures.append(Picture(name, ImageFile(place / name), found[1]))
    if not pictures:
        raise HalfmaskError(
            f"{place} holds no picture of anybody ({_told(left_out)}): expected files named IIII_cCsS_FFFFFF_BB.jpg, such as "
            "0002_c1s1_000451_03.jpg"
        )
    people = len({picture.subject for picture in pictures})
    usual = {"public": f"1-{_MARKET_PUBLIC}", "private": f"{_MARKET_PUBLIC + 1}-{people}"} if people > _MARKET_PUBLIC else {}
    return PictureSet("market1501", folder, tuple(pictures), usual=usual, left_out=left_out)


def detect_cad60(folder: Path) -> bool:
    """Whether a folder holds folders of frames, by person and activity: those in which two people do the same."""
    done: dict[str, str] = {}
    return any(_frames(place) and done.setdefault(activity, person) != person for person, activity, place in _activities(folder))


def read_cad60(folder: Path) -> PictureSet:
    """The frames of `PERSON/ACTIVITY/*.png|jpg`, in the order of their numbers.

    In the release activities are numbers, and `PERSON/activityLabel.txt` says what each is. `ACTIVITY/joints.csv`, if there is one, has a
    row for each frame: `file`, and `<joint>_x`, `<joint>_y` for joints by MPII's names in pixels of the frame; empty where not known.
    """
    pictures = []
    for person, activity, place in _activities(folder):
        frames = _frames(place)
        joints = _read_joints(place / _JOINTS, folder) if frames and (place / _JOINTS).is_file() else {}
        for name in frames:
            named = f"{place.relative_to(folder).as_posix()}/{name}"
            pictures.append(Picture(named, ImageFile(place / name), person, activity, joints.get(name)))
    if not pictures:
        raise HalfmaskError(f"{folder} holds no frame: expected folders PERSON/ACTIVITY with .png or .jpg files in them")
    return PictureSet("cad60", folder, tuple(pictures), tuple(sorted({picture.action for picture in pictures})))


PICTURE_READERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], PictureSet]]] = {
    "market1501": (detect_market1501, read_market1501),
    "cad60": (detect_cad60, read_cad60),
}
PICTURE_FORMATS = tuple(PICTURE_READERS)


def detect_picture_format(folder: Path) -> str:
    """The format of a folder of pictures, by what is in it."""
    found = next((format for format, (detect, _) in PICTURE_READERS.items() if detect(folder)), None)
    if found is None:
        raise HalfmaskError(
            f"{folder} is in no known format of pictures of people: expected {_MARKET_FOLDER}/IIII_cCsS_FFFFFF_BB.jpg (Market-1501), or "
            "folders of frames PERSON/ACTIVITY (CAD-60)"
        )
    return found


def read_picture_folder(folder: Path, format: str | None = None) -> PictureSet:
    """What a folder of pictures says, in whichever format; no picture is opened."""
    if format is not None and format not in PICTURE_READERS:
        raise unknown_name("format of pictures", format, PICTURE_FORMATS)
    return PICTURE_READERS[format or detect_picture_format(folder)][1](folder)


def action_name(text: str) -> str:
    """An activity's name, however a folder spells it.

    >>> action_name("Talking_on the-phone")
    'talking-on-the-phone'
    """
    return re.sub(r"[\s_-]+", "-", text.strip().lower())


def _activities(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Person, activity and folder, by name."""
    for person in _folders(folder):
        labels = _read_labels(person / _LABELS)
        for place in _folders(person):
            yield person.name, action_name(labels.get(place.name, place.name)), place


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise HalfmaskError(f"no folder at {folder}: check the path")
    found = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return sorted(found, key=lambda path: by_number(path.name))


def _frames(place: Path) -> list[str]:
    names = (name for name in os.listdir(place) if name.lower().endswith(_SUFFIXES) and not name.startswith("."))
    return sorted((name for name in names if not _DEPTH.match(name)), key=by_number)


def _read_labels(path: Path) -> dict[str, str]:
    """Lines `0512164529,talking on the phone,` until `END`."""
    if not path.is_file():
        return {}
    rows = (line.split(",") for line in path.read_text("utf-8-sig", errors="replace").splitlines())
    return {row[0].strip(): row[1].strip() for row in rows if len(row) > 1 and row[1].strip()}


def _read_joints(path: Path, folder: Path) -> dict[str, np.ndarray]:
    """By frame, J×3. A folder is called by the person's name: what is wrong is told without it, but to the data's holder."""
    where = path.parent.relative_to(folder).as_posix()
    complaints = Complaints(folder / _JOINTS, "row", folder)
    found: dict[str, np.ndarray] = {}
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as lines:
        table = csv.DictReader(lines)
        columns = {joint: column for column in table.fieldnames or () for joint in range(len(MPII)) if _names(column, joint)}
        if "file" not in (table.fieldnames or ()) or not columns:
            raise BadAnnotations(
                f"a {_JOINTS} below {folder} has other columns: expected file, and <joint>_x and <joint>_y by names such as "
                f"{MPII.names[0]}. Mend it: {where_named(folder)}",
                [f"{where}/{_JOINTS}"],
            )
        rows = list(table)
    for number, row in enumerate(rows, start=1):
        joints = np.zeros((len(MPII), 3))
        for joint, column in columns.items():
            values = [_number(row.get(f"{column[:-2]}_{axis}")) for axis in "xy"]
            if any(value is not None and not math.isfinite(value) for value in values):
                held = f"{row.get(column)}, {row.get(f'{column[:-2]}_y')}"
                complaints.add(number, f"{where}/{row.get('file')}", "a joint that is no number: expected pixels, or nothing", held)
                break
            if None not in values:
                joints[joint] = (*values, 1)
        found[row["file"]] = joints
    complaints.raise_if_any(len(rows))
    return found


def _names(column: str, joint: int) -> bool:
    return column.endswith("_x") and full_name(column[:-2]) == full_name(MPII.names[joint])


def _number(text: str | None) -> float | None:
    """A number; nothing for nothing, and what is no number for anything else."""
    if text is None or not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan


def _told(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in left_out.items()) or "it is empty"
