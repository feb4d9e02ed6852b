"""Frames of YouTube Faces with 68 landmarks: `labels.csv` and `images/`.

    file,subject,video,gender,roll_derived,pitch_derived,yaw_derived,x0,y0,…,x67,y67

A row is one frame with one face. `subject` is who it is, and stays as it stands. `gender` is `male` (0), `female` (1) or empty (not known).
The angles are degrees that were derived from the landmarks; empty where they are not known. There is no box, so it is the landmarks' own,
with a forehead; and no visibility, so every landmark that is annotated counts as one that can be seen.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from halfmask.data.face_files import DLIB68, FaceSet, ImageFile, landmarks_box
from halfmask.data.faces import Face, Photograph
from halfmask.data.files import BadAnnotations, Complaints, ImageFinder
from halfmask.errors import HalfmaskError

ATTRIBUTE = "gender"
_CODES = {"male": 0.0, "female": 1.0, "": float("nan")}
_ANGLES = ("roll_derived", "pitch_derived", "yaw_derived")
_COORDINATES = tuple(f"{axis}{point}" for point in range(len(DLIB68)) for axis in "xy")
_COLUMNS = ("file", "subject", ATTRIBUTE, *_ANGLES, *_COORDINATES)
_LABELS = "labels.csv"


def detect_ytf68(folder: Path) -> bool:
    """Whether the folder is of this format."""
    path = folder / _LABELS
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return set(_COLUMNS) <= set(file.readline().decode("utf-8-sig", "replace").strip().split(","))


def read_ytf68(folder: Path) -> FaceSet:
    """The frames of a folder, in the order of their names; none is opened."""
    path = folder / _LABELS
    rows = _read_rows(path)
    complaints = Complaints(path, "row", folder)
    find = ImageFinder(folder, ("images",))
    photographs: dict[str, Photograph] = {}
    for number, row in enumerate(rows, start=2):
        name = row.get("file") or ""
        face = _read_face(row)
        if not isinstance(face, Face):
            complaints.add(number, name, *face)
        elif name in photographs:
            complaints.add(number, name, "'file' is that of another row, expected one row for each frame")
        else:
            photographs[name] = Photograph(name, ImageFile(find(name)), (face,))
    complaints.raise_if_any(len(rows))
    return FaceSet("ytf68", folder, DLIB68, {"all": [photographs[name] for name in sorted(photographs)]}, ATTRIBUTE)


def _read_rows(path: Path) -> list[dict[str, str | None]]:
    try:
        body = path.read_bytes().decode("utf-8-sig")
    except OSError:
        raise HalfmaskError(f"no file at {path}: expected {_LABELS} beside the folder 'images'") from None
    except UnicodeDecodeError:
        raise HalfmaskError(f"{path} is no text in UTF-8: export or download it again") from None
    try:
        table = csv.DictReader(io.StringIO(body, newline=""), strict=True)
        missing = [column for column in _COLUMNS if column not in (table.fieldnames or ())]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise HalfmaskError(f"{path} has no column {', '.join(missing[:3])}{more}: expected file, subject, gender, angles, x0 … y67")
        rows = list(table)
    except csv.Error as error:
        message = f"{path} is no valid CSV: mend it, or export or download it again ('halfmask data inspect' says where it breaks)"
        raise BadAnnotations(message, [f"{path.name}: {error}"]) from None
    if not rows:
        raise HalfmaskError(f"{path} lists no frames: the dataset is empty")
    return rows


def _read_face(row: dict[str, str | None]) -> Face | tuple[str, object]:
    """The face of a row; or what is wrong with it, in words that hold nothing of it, and the value that is wrong."""
    # What a short row lacks is None, and what a long one has too much lies under None.
    if None in row or None in row.values():
        return f"it has {'more' if None in row else 'fewer'} values than the header has names", ""
    if not row["file"] or not row["subject"]:
        return "no 'file' or no 'subject'", (row["file"], row["subject"])
    if row[ATTRIBUTE] not in _CODES:
        return f"'{ATTRIBUTE}' is another word than male, female or nothing", row[ATTRIBUTE]
    angles, points = _numbers(row, _ANGLES), _numbers(row, _COORDINATES)
    if angles is None or points is None:
        return f"{'an angle' if angles is None else 'a landmark'} is neither a number nor empty", ""
    landmarks = points.reshape(-1, 2)
    annotated = np.isfinite(landmarks).all(1)
    if annotated.sum() < 2:
        return "no two landmarks are annotated, and the box is made of them", ""
    landmarks = np.where(annotated[:, None], landmarks, np.nan)
    return Face(landmarks_box(landmarks), landmarks, annotated, angles, _CODES[row[ATTRIBUTE] or ""], row["subject"])


def _numbers(row: dict[str, str | None], columns: tuple[str, ...]) -> np.ndarray | None:
    """The values of some columns, NaN for those that are empty; nothing if one is no number."""
    try:
        numbers = np.array([float(row[column] or "nan") for column in columns])
    except ValueError:
        return None
    return None if np.isinf(numbers).any() else numbers
