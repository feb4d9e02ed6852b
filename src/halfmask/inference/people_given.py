"""Where people are on photographs, and in what pose, as somebody wrote it down.

| file | holds |
|---|---|
| boxes, `.csv` | `file,x,y,w,h`: a row for each person, in pixels; `photo.jpg,,,,` says that nobody is on it |
| boxes, `.json` | COCO's `images` and `annotations` with `bbox`; an image without annotations shows nobody |
| poses, `.json` | the same with `keypoints`: 17 joints of COCO, 16 of MPII or 14 of LSP |

Everything is in pixels of a photograph as it is displayed, turned by its camera's orientation tag. Files are the user's own, and so are the
names in their errors.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from halfmask.data.crops import joints_box
from halfmask.data.files import describe, finite_array, read_json
from halfmask.data.mapping import map_joints
from halfmask.data.people import Box
from halfmask.data.skeleton import COCO, MPII, SKELETONS, Skeleton, skeleton_with
from halfmask.errors import HalfmaskError
from halfmask.inference.originals import listed

_COLUMNS = ("file", "x", "y", "w", "h")
# A pose is that of the box it overlaps most, if by so much: the share of what both cover in what either does.
_SAME_PERSON = 0.3
# Heights on a body of hips, shoulders, the top of the neck, ears and the top of the head, as shares of it (Drillis and Contini, 1966).
_HIPS, _SHOULDERS, _NECK, _EARS, _TOP = 0.530, 0.818, 0.870, 0.936, 1.0


@dataclass
class Given:
    """What was written down of one photograph.

    Attributes:
        boxes: x, y, width and height.
        joints: of each box, 16×3 in MPII's order: x, y and 1 if known; None where nothing was written down.
        size: width and height of the photograph that this is about, where the file says it.
    """

    boxes: list[Box] = field(default_factory=list)
    joints: list[np.ndarray | None] = field(default_factory=list)
    size: tuple[int, int] | None = None

    def check_size(self, width: int, height: int) -> None:
        """Refuse boxes and joints of a photograph of another size: they would be elsewhere."""
        if self.size is not None and self.size != (width, height):
            raise HalfmaskError(
                f"its boxes or joints are said to be of a picture of {self.size[0]}×{self.size[1]} pixels, and it is displayed with "
                f"{width}×{height}: expected those of the picture as it is displayed"
            )


def read_boxes(path: Path, names: Sequence[str]) -> dict[str, Given]:
    """The boxes on each of these photographs that the file speaks of."""
    if path.suffix.lower() == ".csv":
        return _gathered(path, _csv_rows(path), names)
    if path.suffix.lower() == ".json":
        return _gathered(path, _coco_rows(path, "bbox"), names)
    raise HalfmaskError(f"--boxes is {path}: expected a .csv file with {','.join(_COLUMNS)}, or a .json file in COCO's form")


def read_poses(path: Path, names: Sequence[str]) -> dict[str, Given]:
    """The joints of people on each of these photographs that the file speaks of, each with the box round them."""
    if path.suffix.lower() != ".json":
        raise HalfmaskError(f"--poses is {path}: expected a .json file in COCO's form, with keypoints")
    return _gathered(path, _coco_rows(path, "keypoints"), names)


def with_poses(people: Given, poses: Given | None) -> list[np.ndarray | None]:
    """For each box the joints of whom it overlaps most, each taken once; None where nobody's do."""
    found: list[np.ndarray | None] = [None] * len(people.boxes)
    if poses is None:
        return found
    pairs = [(overlap(box, other), i, j) for i, box in enumerate(people.boxes) for j, other in enumerate(poses.boxes)]
    taken: set[int] = set()
    for shared, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if shared >= _SAME_PERSON and found[i] is None and j not in taken:
            found[i] = poses.joints[j]
            taken.add(j)
    return found


def as_mpii(joints: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """Joints (J×3) as MPII's 16, 1 for those that are known.

    COCO has neither the top of the neck nor that of the head, without which a generator draws people who have no head: they are put on the
    line from between the shoulders through the ears (or the nose; or, of whom no face is seen, on from the hips through the shoulders), as
    far as they are on a body that stands.
    """
    known = (joints[:, 2] > 0) & np.isfinite(joints[:, :2]).all(1)
    points = np.where(known[:, None], joints[:, :2], 0.0)
    placed, there = (part[0] for part in map_joints(skeleton, MPII).apply(points[None], known[None]))
    up = _upwards(points, known) if skeleton is COCO else None
    if up is not None:
        shoulders, body = up
        for name, height in (("upper_neck", _NECK), ("head_top", _TOP)):
            joint = MPII.index(name)
            placed[joint], there[joint] = shoulders + body * (height - _SHOULDERS), True
    return np.where(there[:, None], np.column_stack([placed, there]), 0.0)


def _upwards(points: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Where COCO's shoulders are, between both, and from there the way up, as long as the whole body; None if nothing tells."""
    shoulders, hips, ears = ([COCO.index(f"{side}_{name}") for side in ("left", "right")] for name in ("shoulder", "hip", "ear"))
    if not known[shoulders].all():
        return None
    nose, middle = COCO.index("nose"), points[shoulders].mean(0)
    face = ears if known[ears].all() else [nose] if known[nose] else [ear for ear in ears if known[ear]]
    if face:
        return middle, (points[face].mean(0) - middle) / (_EARS - _SHOULDERS)
    return (middle, (middle - points[hips].mean(0)) / (_SHOULDERS - _HIPS)) if known[hips].all() else None


@dataclass(frozen=True)
class _Row:
    name: str
    box: Box | None = None
    joints: np.ndarray | None = None
    size: tuple[int, int] | None = None


def _gathered(path: Path, rows: Iterable[_Row], names: Sequence[str]) -> dict[str, Given]:
    """Rows by photograph. A name that is nobody's is refused: a slip of the pen would leave somebody on theirs."""
    found: dict[str, Given] = {}
    meant: dict[str, str] = {}
    taken: dict[str, str] = {}
    unknown: dict[str, None] = {}
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(PurePosixPath(name).name, []).append(name)
    for row in rows:
        if row.name not in meant and row.name not in unknown:
            image = _meant(path, row.name, by_last)
            if image is None:
                unknown[row.name] = None
            elif image in taken:
                raise HalfmaskError(f"{path}: '{row.name}' and '{taken[image]}' both mean the image {image}: spell it one way")
            else:
                meant[row.name], taken[image] = image, row.name
        if row.name in unknown:
            continue
        given = found.setdefault(meant[row.name], Given(size=row.size))
        if row.box is not None:
            given.boxes.append(row.box)
            given.joints.append(row.joints)
    if unknown:
        raise HalfmaskError(
            f"{path} names {len(unknown):,} file{'s' if len(unknown) > 1 else ''} that {'are' if len(unknown) > 1 else 'is'} not among the "
            f"images given: {listed(list(unknown))}. Mend the names, give those images too, or leave them out of the file"
        )
    return found


def _meant(path: Path, named: str, by_last: Mapping[str, list[str]]) -> str | None:
    """The photograph that a file means, which may name it with more or with fewer folders before its name."""
    parts = [part for part in PurePosixPath(named.replace("\\", "/")).parts if part != "."]
    fitting = [name for name in by_last.get(parts[-1] if parts else "", ()) if _ends_alike(parts, PurePosixPath(name).parts)]
    exact = [name for name in fitting if PurePosixPath(name).parts == tuple(parts)]
    if not exact and len(fitting) > 1:
        raise HalfmaskError(f"{path}: '{named}' may mean {listed(fitting)}: write the folders before its name too")
    return next(iter(exact or fitting), None)


def _ends_alike(one: Sequence[str], other: Sequence[str]) -> bool:
    count = min(len(one), len(other))
    return tuple(one[-count:]) == tuple(other[-count:])


def _csv_rows(path: Path) -> list[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, [cell.strip() for cell in line]) for number, line in enumerate(csv.reader(file), 1) if any(line)]
    except OSError as error:
        raise HalfmaskError(f"{path} cannot be read ({error.strerror}): check the path") from None
    except (csv.Error, UnicodeDecodeError):
        raise HalfmaskError(f"{path} is no CSV file: expected rows of {','.join(_COLUMNS)}") from None
    order: list[int] = list(range(len(_COLUMNS)))
    if lines and "file" in (head := [cell.lower() for cell in lines[0][1]]):
        missing = [name for name in _COLUMNS if name not in head]
        if missing:
            raise HalfmaskError(f"{path} has no column {', '.join(missing)}: expected {','.join(_COLUMNS)}")
        order = [head.index(name) for name in _COLUMNS]
        lines = lines[1:]
    rows = []
    for number, cells in lines:
        if len(cells) <= max(order):
            # A name alone is no word that nobody is there: a file that was cut short, or a list of names, would leave everybody on theirs.
            raise HalfmaskError(
                f"{path}, line {number}: ends after {len(cells)} cells; expected {','.join(_COLUMNS)}, and the last four "
                "empty (name,,,,) where nobody is"
            )
        name, *numbers = (cells[place] for place in order)
        if not name:
            raise HalfmaskError(f"{path}, line {number}: names no file; expected {','.join(_COLUMNS)}")
        rows.append(_Row(name, _box(numbers, f"{path}, line {number} ({name})") if any(numbers) else None))
    return rows


def _coco_rows(path: Path, wanted: str) -> list[_Row]:
    """A row for each image, which says that it is spoken of, and one for each person."""
    body = read_json(path)
    if not isinstance(body, dict) or not all(isinstance(body.get(name), list) for name in ("images", "annotations")):
        raise HalfmaskError(f"{path} is {describe(body)}: expected COCO's object with images and annotations")
    images: dict[Any, _Row] = {}
    for image in body["images"]:
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str) or type(image.get("id")) is not int:
            raise HalfmaskError(f"{path}: one of its images is {describe(image)}: expected an object with a file_name and a number as id")
        size = (image.get("width"), image.get("height"))
        images[image["id"]] = _Row(image["file_name"], size=size if all(type(side) is int and side > 0 for side in size) else None)  # type: ignore[arg-type]
    categories = [one for one in body.get("categories") or () if isinstance(one, dict)]
    people = {one.get("id") for one in categories if one.get("name") == "person"}
    skeletons = {one.get("id"): _skeleton(one.get("keypoints")) for one in categories}
    rows = list(images.values())
    for number, entry in enumerate(body["annotations"]):
        where = f"{path}, annotation {number}"
        if not isinstance(entry, dict) or entry.get("image_id") not in images:
            raise HalfmaskError(f"{where}: it is of no image in the file; expected an image_id that 'images' has")
        if people and entry.get("category_id", next(iter(people))) not in people:
            continue
        image = images[entry["image_id"]]
        if wanted == "bbox":
            # Crowds too: they are people, and a box of them that is left as it is shows them all.
            rows.append(_Row(image.name, _box(entry.get("bbox"), f"{where} ({image.name})"), size=image.size))
        elif (joints := _joints(entry, skeletons.get(entry.get("category_id")), where)) is not None:
            box = finite_array(entry.get("bbox"), (4,))
            around = joints_box(joints, joints[:, 2] > 0) if box is None else _box(box, f"{where} ({image.name})")
            rows.append(_Row(image.name, around, joints, image.size))
    return rows


def _skeleton(names: Any) -> Skeleton | None:
    listed_names = tuple(names) if isinstance(names, list) else ()
    return next((skeleton for skeleton in SKELETONS.values() if skeleton.names == listed_names), None)


def _joints(entry: dict[str, Any], skeleton: Skeleton | None, where: str) -> np.ndarray | None:
    """MPII's joints of an annotation; None if it has not one that is known."""
    values = entry.get("keypoints")
    if not values:
        return None
    if not isinstance(values, list) or len(values) % 3 or finite_array(values, (len(values),)) is None:
        raise HalfmaskError(f"{where}: 'keypoints' is {describe(values)}, expected x, y and visibility of each joint")
    joints = np.asarray(values, np.float64).reshape(-1, 3)
    if skeleton is None or len(skeleton) != len(joints):
        skeleton = skeleton_with(len(joints))
    mapped = as_mpii(joints, skeleton)
    return mapped if (mapped[:, 2] > 0).any() else None


def _box(values: Any, where: str) -> Box:
    box = finite_array(values, (4,))
    if box is None or not (box[2:] > 0).all() or np.abs(box).max() > 1e6:
        raise HalfmaskError(f"{where}: the box is {values!r}, expected x, y, width and height in pixels, the last two above 0")
    return float(box[0]), float(box[1]), float(box[2]), float(box[3])


def overlap(one: Box, other: Box) -> float:
    """What two boxes both cover, as a share of what either does."""
    across, down = (max(0.0, min(one[a] + one[a + 2], other[a] + other[a + 2]) - max(one[a], other[a])) for a in (0, 1))
    both = across * down
    either = one[2] * one[3] + other[2] * other[3] - both
    return both / either if either > 0 else 0.0
