"""MPII Human Pose: the customary JSON files, or the original `mpii_human_pose_v1_u12_1.mat`.

JSON (`train.json`, `valid.json`, or `mpii_train.json`, `mpii_val.json`; in the folder itself, `annot/` or `annotations/`): a list of
people with `image`, `center`, `scale`, `joints` and `joints_vis`. Head boxes, which PCKh is measured in, are not in it; they come from
`mpii_gt_val.mat` where that file lies beside it, for the validation people only and in their order.

A person is 200 pixels times `scale` tall about `center`. As everybody does, the centre is moved down by 15 × scale, so that fewer feet
are cut off, and the box grows by a quarter. Coordinates count from 1, as MATLAB does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.files import Complaints, ImageFinder, annotation_files, describe, finite_array, read_json, read_mat, split_of
from halfmask.data.people import NO_JOINT, Annotations, Box, LeftOut, Part, Person
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

_PIXELS_PER_SCALE = 200.0
_CENTRE_SHIFT = 15.0
_JOINTS = len(MPII)
_RELEASE = "mpii_human_pose_v1_u12_1.mat"
_VALIDATION_TRUTH = "mpii_gt_val.mat"
_FIELDS = ("image", "center", "scale", "joints", "joints_vis")


def detect_mpii(folder: Path) -> bool:
    """Whether the folder looks like MPII."""
    return bool(_json_files(folder)) or _release(folder) is not None


def read_mpii(folder: Path, annotations: tuple[str, ...] = ()) -> Annotations:
    """The people of MPII; no image is opened.

    Args:
        annotations: names of JSON files to read, instead of all that are found.
    """
    files = [folder / name for name in annotations] or _json_files(folder)
    if not files:
        release = _release(folder)
        if release is None:
            raise HalfmaskError(
                f"{folder} holds no MPII annotations: expected JSON files that list people with {', '.join(_FIELDS)}, or {_RELEASE}"
            )
        return _read_release(folder, release)
    by_split: dict[str, Path] = {}
    for path in files:
        split = split_of(path)
        if split in by_split:
            raise HalfmaskError(
                f"{by_split[split].name} and {path.name} in {folder} both hold the split '{split}': choose with data.annotations"
            )
        by_split[split] = path
    # 'trainval' is both of the others again.
    if len(by_split) > 1:
        by_split.pop("all", None)
    numbers = _ImageNumbers()
    find = ImageFinder(folder, ("images",))
    parts = {split: _read_list(path, split, find, numbers, _head_boxes(folder, path, split)) for split, path in by_split.items()}
    return Annotations("mpii", folder, MPII, parts, tuple(by_split.values()))


class _ImageNumbers(dict[str, int]):
    """Numbers names as they come, across the files of a dataset."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def _json_files(folder: Path) -> list[Path]:
    return [path for path in annotation_files(folder, ".json") if _is_list_of_people(path)]


def _is_list_of_people(path: Path) -> bool:
    try:
        body = read_json(path)
    except HalfmaskError:
        return False
    return isinstance(body, list) and bool(body) and isinstance(body[0], dict) and all(name in body[0] for name in _FIELDS)


def _read_list(path: Path, split: str, find: ImageFinder, numbers: _ImageNumbers, head_boxes: np.ndarray | None) -> Part:
    body = read_json(path)
    if not isinstance(body, list) or not body:
        raise HalfmaskError(f"{path} is {describe(body)}: expected MPII's list of people with {', '.join(_FIELDS)}")
    if head_boxes is not None and len(head_boxes) != len(body):
        raise HalfmaskError(
            f"{_VALIDATION_TRUTH} has {len(head_boxes)} people and {path.name} has {len(body)}: expected the same people in the same order"
        )
    complaints = Complaints(path, "person", find.folder, "people")
    for number, entry in enumerate(body):
        problem = _problem(entry)
        if problem:
            complaints.add(number, entry.get("image") if isinstance(entry, dict) else None, *problem)
    complaints.raise_if_any(len(body))
    people, left_out = [], []
    for number, entry in enumerate(body):
        name, box, joints = _read_entry(entry)
        if not (joints[:, 2] > 0).any():
            left_out.append(LeftOut(name, NO_JOINT, f"person {number}"))
            continue
        head_box: Box | None = None if head_boxes is None else tuple(head_boxes[number].tolist())
        people.append(Person(name, find(name), numbers[name], box, joints, head_box, annotation_id=number))
    images = tuple(sorted({entry["image"] for entry in body}))
    return Part(split, images, tuple(sorted(people, key=lambda person: person.image)), tuple(left_out))


def _problem(entry: Any) -> tuple[str, Any] | None:
    """What is wrong with an entry, in words that hold nothing of it, and the value that is wrong."""
    if not isinstance(entry, dict) or not all(name in entry for name in _FIELDS):
        return f"found {describe(entry)}, expected an object with {', '.join(_FIELDS)}", entry
    if not isinstance(entry["image"], str):
        return f"'image' is {describe(entry['image'])}, expected a text", entry["image"]
    for name, shape, expected in (
        ("center", (2,), "two finite numbers"),
        ("scale", (), "a finite number above 0"),
        ("joints", (_JOINTS, 2), f"{_JOINTS}×2 finite numbers"),
        ("joints_vis", (_JOINTS,), f"{_JOINTS} finite numbers"),
    ):
        if finite_array(entry[name], shape) is None:
            return f"'{name}' is {describe(entry[name])}, expected {expected}", entry[name]
    if not entry["scale"] > 0:
        return "'scale' is not above 0", entry["scale"]
    return None


def _read_entry(entry: dict[str, Any]) -> tuple[str, Box, np.ndarray]:
    centre, points, seen = (np.asarray(entry[name], np.float64) for name in ("center", "joints", "joints_vis"))
    joints = np.column_stack([points - 1, np.where(seen > 0, 2, 0)])
    return entry["image"], person_box(centre - 1, float(entry["scale"])), joints


def person_box(centre: np.ndarray, scale: float) -> Box:
    """The square box that `center` and `scale` mean, before it grows by a quarter."""
    side = _PIXELS_PER_SCALE * scale
    x, y = float(centre[0]), float(centre[1]) + _CENTRE_SHIFT * scale
    # A centre is a pixel; a box has edges, half a pixel further out.
    return x + 0.5 - side / 2, y + 0.5 - side / 2, side, side


def _head_boxes(folder: Path, path: Path, split: str) -> np.ndarray | None:
    """N×4, from the validation set's ground-truth file."""
    if split != "val":
        return None
    for place in (path.parent, folder, folder / "annot", folder / "annotations"):
        truth = place / _VALIDATION_TRUTH
        if truth.is_file():
            boxes = np.asarray(read_mat(truth).get("headboxes_src", ()), np.float64)
            if boxes.ndim == 2:
                boxes = boxes[..., None]
            if boxes.ndim != 3 or boxes.shape[:2] != (2, 2):
                raise HalfmaskError(f"{truth}: 'headboxes_src' has shape {boxes.shape}: expected 2×2×N")
            return boxes.reshape(4, -1).T - 1
    return None


def _release(folder: Path) -> Path | None:
    for path in annotation_files(folder, ".mat"):
        if path.name.startswith("mpii_human_pose"):
            return path
    return None


def _read_release(folder: Path, path: Path) -> Annotations:
    """The original file: people of the official training images. Those of the test images have no joints."""
    release = read_mat(path).get("RELEASE")
    images, trained = (np.atleast_1d(getattr(release, name, ())) for name in ("annolist", "img_train"))
    if not len(images) or len(images) != len(trained):
        raise HalfmaskError(f"{path} has no RELEASE with 'annolist' and 'img_train' of one length: expected the file {_RELEASE}")
    find = ImageFinder(folder, ("images",))
    people: list[Person] = []
    left_out: list[LeftOut] = []
    names: list[str] = []
    for number, (image, is_training) in enumerate(zip(images, trained, strict=True)):
        if not is_training:
            continue
        name = str(image.image.name)
        names.append(name)
        for place, person in enumerate(np.atleast_1d(image.annorect)):
            box, joints = _release_person(person)
            if box is None or joints is None:
                left_out.append(LeftOut(name, NO_JOINT, f"image {number}, person {place}"))
                continue
            head = [getattr(person, side, None) for side in ("x1", "y1", "x2", "y2")]
            known = finite_array(head, (4,))
            head_box: Box | None = None if known is None else tuple((known - 1).tolist())
            people.append(Person(name, find(name), number, box, joints, head_box, annotation_id=1000 * number + place))
    order = tuple(sorted(set(names)))
    part = Part("train", order, tuple(sorted(people, key=lambda one: (one.image, one.annotation_id))), tuple(left_out))
    return Annotations("mpii", folder, MPII, {"train": part}, (path,))


def _release_person(person: Any) -> tuple[Box | None, np.ndarray | None]:
    """Box and joints of an annorect; None for what it lacks."""
    points = np.atleast_1d(getattr(getattr(person, "annopoints", None), "point", ()))
    position = getattr(person, "objpos", None)
    centre = finite_array([getattr(position, "x", None), getattr(position, "y", None)], (2,))
    scale = finite_array(getattr(person, "scale", None), ())
    if not len(points) or centre is None or scale is None or not scale > 0:
        return None, None
    joints = np.zeros((_JOINTS, 3))
    for point in points:
        # A joint that is listed is labelled; `is_visible` (empty for some) tells only whether it is hidden.
        visible = finite_array(getattr(point, "is_visible", 1), ())
        hidden = visible is not None and visible == 0
        place = finite_array([getattr(point, name, None) for name in ("id", "x", "y")], (3,))
        if place is None or int(place[0]) not in range(_JOINTS):
            return None, None
        joints[int(place[0])] = (place[1] - 1, place[2] - 1, 1 if hidden else 2)
    return person_box(centre - 1, float(scale)), joints
