"""Folders as 300-W, LFPW, HELEN and AFW have them: beside each photograph a file `NAME.pts` with the 68 landmarks of its face.

    version: 1
    n_points: 68
    {
    61.5 83.25
    …
    }

Coordinates count from 1, as MATLAB does. There is no box, so it is the landmarks' own, with a forehead; no pose, no attribute, and nobody
says who it is. Folders within the folder are looked into. A photograph with several faces has files `NAME_1.pts`, … of its own here only
if there is a copy of the photograph under each of those names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halfmask.data.face_files import DLIB68, FaceSet, ImageFile, landmarks_box
from halfmask.data.faces import Face, Photograph
from halfmask.data.files import Complaints
from halfmask.errors import HalfmaskError

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".JPG", ".JPEG", ".PNG")
# More is no list of 68 points.
_LONGEST = 100_000


def detect_landmark_files(folder: Path) -> bool:
    """Whether there is such a file anywhere in the folder."""
    return next(folder.rglob("*.pts"), None) is not None


def read_landmark_files(folder: Path) -> FaceSet:
    """The photographs that have landmarks, in the order of their names; none is opened."""
    files = sorted(folder.rglob("*.pts"))
    if not files:
        raise HalfmaskError(f"{folder} holds no .pts files: expected one beside each photograph")
    complaints = Complaints(folder, "landmark file", folder)
    photographs: dict[str, Photograph] = {}
    for number, path in enumerate(files):
        image = next((path.with_suffix(suffix) for suffix in _SUFFIXES if path.with_suffix(suffix).is_file()), path.with_suffix(".jpg"))
        name = image.relative_to(folder).as_posix()
        landmarks = _read_points(path)
        if isinstance(landmarks, str):
            complaints.add(number, name, landmarks)
            continue
        face = Face(landmarks_box(landmarks), landmarks, np.ones(len(landmarks), bool), np.full(3, np.nan))
        photographs[name] = Photograph(name, ImageFile(image), (face,))
    complaints.raise_if_any(len(files))
    if not any(isinstance(one.read, ImageFile) and one.read.path.is_file() for one in photographs.values()):
        raise HalfmaskError(
            f"none of the {len(photographs):,} .pts files in {folder} has its photograph beside it: expected NAME.jpg or .png"
        )
    return FaceSet("landmark-files", folder, DLIB68, {"all": [photographs[name] for name in sorted(photographs)]})


def _read_points(path: Path) -> np.ndarray | str:
    """K×2 landmarks, counted from 0; or what is wrong with the file, in words that hold nothing of it."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return "it cannot be read as text"
    head, opened, body = text.partition("{")
    body, closed, _ = body.partition("}")
    if not opened or not closed:
        return "no list of points in braces"
    said = _header(head)
    if said.get("n_points", str(len(DLIB68))) != str(len(DLIB68)):
        return f"n_points is not {len(DLIB68)}"
    try:
        points = np.array([float(number) for number in body.split()])
    except ValueError:
        return "a landmark is no number"
    if points.size != 2 * len(DLIB68) or not np.isfinite(points).all():
        return f"it has not {len(DLIB68)} points of two finite numbers"
    return points.reshape(-1, 2) - 1


def _header(head: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
