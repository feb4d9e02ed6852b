"""Annotated Facial Landmarks in the Wild: its own SQLite database (`aflw.sqlite`) and its photographs.

The release has the database in `data/` and the photographs in `data/flickr/`; both may also lie in the folder itself. A landmark that the
database does not have of a face cannot be seen. Poses are radians there and degrees here. `sex` is `m` (0), `f` (1), or not known. A face
without a rectangle gets one from its landmarks, if it has enough of them. Who the people are is not known.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from halfmask.data.face_files import FaceSet, ImageFile, landmarks_box
from halfmask.data.faces import Face, Layout, Photograph
from halfmask.data.files import BadAnnotations, Complaints, ImageFinder, describe, finite_array
from halfmask.errors import HalfmaskError

# Brows, eyes, ear, nose, ear, mouth and chin, each from the left of the picture to its right: landmark k is feature k + 1.
AFLW21 = Layout("aflw21", (5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6, 16, 15, 14, 13, 12, 19, 18, 17, 20))
ATTRIBUTE = "sex"
_CODES = {"m": 0.0, "f": 1.0, "": float("nan")}
_PLACES = ("", "data", "aflw/data")
_NEEDED = {
    "FaceImages": ("file_id", "filepath"),
    "Faces": ("face_id", "file_id"),
    "FaceRect": ("face_id", "x", "y", "w", "h"),
    "FacePose": ("face_id", "roll", "pitch", "yaw"),
    "FeatureCoords": ("face_id", "feature_id", "x", "y"),
    "FaceMetaData": ("face_id", "sex"),
}
# A box of fewer landmarks says little of where the face is.
_ENOUGH = 6


def detect_aflw(folder: Path) -> bool:
    """Whether the folder has AFLW's database."""
    return _database(folder) is not None


def read_aflw(folder: Path) -> FaceSet:
    """The photographs of AFLW, in the order of their names; none is opened."""
    path = _database(folder)
    if path is None:
        raise HalfmaskError(f"{folder} holds no AFLW database: expected aflw.sqlite in it or in its folder 'data'")
    try:
        # As it stands: nothing is locked, and no journal is written beside it.
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            _check_tables(database, path)
            photographs = _read(database, path, folder)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        message = f"{path} cannot be read as an SQLite database: it is damaged or of another format. Download it again"
        raise BadAnnotations(message, [f"{path.name}: {error}"]) from None
    if not photographs:
        raise HalfmaskError(f"{path} lists no photographs: the dataset is empty")
    if not any(isinstance(one.read, ImageFile) and one.read.path.is_file() for one in photographs):
        raise HalfmaskError(
            f"none of the {len(photographs):,} photographs that {path} names is there: expected them below {folder}, in 'data/flickr' or "
            "'images', as the release has them"
        )
    return FaceSet("aflw", folder, AFLW21, {"all": photographs}, ATTRIBUTE)


def _database(folder: Path) -> Path | None:
    found = [path for place in _PLACES for path in sorted((folder / place).glob("*.sqlite")) if path.is_file()]
    return next((path for path in found if path.name == "aflw.sqlite"), found[0] if found else None)


def _check_tables(database: sqlite3.Connection, path: Path) -> None:
    for table, columns in _NEEDED.items():
        there = {str(row[1]).lower() for row in database.execute(f"PRAGMA table_info({table})")}
        missing = [column for column in columns if column not in there]
        if missing:
            found = f"no column {', '.join(missing)} in its table {table}" if there else f"no table {table}"
            raise HalfmaskError(f"{path} has {found}: expected the database that comes with AFLW")


def _read(database: sqlite3.Connection, path: Path, folder: Path) -> list[Photograph]:
    files = {str(row[0]): row[1] for row in _rows(database, "FaceImages")}
    faces = list(_rows(database, "Faces"))
    boxes, poses, about = (_first(database, table) for table in ("FaceRect", "FacePose", "FaceMetaData"))
    points: dict[Any, dict[Any, tuple[Any, ...]]] = defaultdict(dict)
    for face, feature, *place in _rows(database, "FeatureCoords"):
        points[face].setdefault(feature, tuple(place))
    complaints = Complaints(path, "face", folder)
    by_name: dict[str, list[Face]] = {name: [] for name in files.values() if isinstance(name, str)}
    for number, (face, file) in enumerate(sorted(faces, key=lambda row: str(row[0]))):
        name = files.get(str(file))
        if not isinstance(name, str) or not name:
            complaints.add(number, None, "its photograph is not in FaceImages", file)
            continue
        made = _read_face(boxes.get(face), poses.get(face), about.get(face), points.get(face, {}))
        if isinstance(made, Face):
            by_name[name].append(made)
        else:
            complaints.add(number, name, *made)
    complaints.raise_if_any(len(faces))
    find = ImageFinder(folder, ("data/flickr", "flickr", "aflw/data/flickr", "data", "data/images"))
    return [Photograph(name, ImageFile(find(name)), tuple(by_name[name])) for name in sorted(by_name)]


def _rows(database: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    return iter(database.execute(f"SELECT {', '.join(_NEEDED[table])} FROM {table} ORDER BY rowid"))


def _first(database: sqlite3.Connection, table: str) -> dict[Any, tuple[Any, ...]]:
    """What a table says of each face; what it says a second time does not count."""
    found: dict[Any, tuple[Any, ...]] = {}
    for face, *values in _rows(database, table):
        found.setdefault(face, tuple(values))
    return found


def _read_face(
    box: tuple[Any, ...] | None, pose: tuple[Any, ...] | None, about: tuple[Any, ...] | None, points: dict[Any, tuple[Any, ...]]
) -> Face | tuple[str, Any]:
    """A face; or what is wrong with it, in words that hold nothing of it, and the value that is wrong."""
    landmarks = np.full((len(AFLW21), 2), np.nan)
    for feature, place in points.items():
        known = finite_array(place, (2,))
        if known is None or not isinstance(feature, int):
            return f"a landmark is {describe(place)}, expected two finite numbers", place
        # The database has types for more features than anybody annotated.
        if 1 <= feature <= len(AFLW21):
            landmarks[feature - 1] = known
    visible = np.isfinite(landmarks).all(1)
    sides = None if box is None else finite_array(box, (4,))
    if box is not None and sides is None:
        return f"its rectangle is {describe(box)}, expected four finite numbers", box
    if sides is not None:
        left, top, width, height = sides.tolist()
    else:
        left, top, width, height = landmarks_box(landmarks) if visible.sum() >= _ENOUGH else [float("nan")] * 4
    angles = np.full(3, np.nan) if pose is None else finite_array(pose, (3,))
    if angles is None:
        return f"its pose is {describe(pose)}, expected three finite numbers", pose
    sex = (about[0] if about else None) or ""
    if sex not in _CODES:
        return f"'{ATTRIBUTE}' is another word than m, f or nothing", sex
    return Face((left, top, width, height), landmarks, visible, np.degrees(angles), _CODES[sex])
