"""AFLW as pose toolboxes keep it: COCO-style JSON files of faces with 19 keypoints, those of AFLW without the ears.

A keypoint whose flag is 0 is not annotated, and cannot be seen. Poses, sexes and subjects are not in these files. Each file is a split by
its name (`face_landmarks_aflw_train.json`, `test_aflw.json`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.face_files import FaceSet, ImageFile
from halfmask.data.faces import Face, Layout, Photograph
from halfmask.data.files import Complaints, ImageFinder, annotation_files, describe, finite_array, read_json, split_of
from halfmask.errors import HalfmaskError

# Brows, eyes, nose, mouth and chin, each from the left of the picture to its right.
AFLW19 = Layout("aflw19", (5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6, 14, 13, 12, 17, 16, 15, 18))


def detect_aflw_json(folder: Path) -> bool:
    """Whether the folder has such a file."""
    return bool(_files(folder))


def read_aflw_json(folder: Path) -> FaceSet:
    """The photographs of all files, by split, in the order of their names; none is opened."""
    files = _files(folder)
    if not files:
        raise HalfmaskError(f"{folder} holds no JSON file of faces with {len(AFLW19)} keypoints: expected COCO's images and annotations")
    find = ImageFinder(folder, ("images",))
    parts: dict[str, list[Photograph]] = {}
    for path in files:
        split = split_of(path)
        if split in parts:
            raise HalfmaskError(f"two JSON files in {folder} hold the split '{split}' ({path.name} is the second): keep one of them there")
        parts[split] = _read(path, find)
    return FaceSet("aflw-json", folder, AFLW19, parts)


def _files(folder: Path) -> list[Path]:
    return [path for path in annotation_files(folder, ".json") if _is_of_faces(path)]


def _is_of_faces(path: Path) -> bool:
    try:
        body = read_json(path)
    except HalfmaskError:
        return False
    faces = body.get("annotations") if isinstance(body, dict) else None
    if not isinstance(faces, list) or not isinstance(body.get("images"), list) or not faces or not isinstance(faces[0], dict):
        return False
    points = faces[0].get("keypoints")
    return isinstance(points, list) and len(points) == 3 * len(AFLW19)


def _read(path: Path, find: ImageFinder) -> list[Photograph]:
    body = read_json(path)
    complaints = Complaints(path, "image", find.folder)
    names: dict[Any, str] = {}
    for number, image in enumerate(body["images"]):
        if not (isinstance(image, dict) and isinstance(image.get("file_name"), str) and isinstance(image.get("id"), int | str)):
            complaints.add(number, None, f"found {describe(image)}, expected an object with 'id' and 'file_name'", image)
        else:
            names[image["id"]] = image["file_name"]
    complaints.raise_if_any(len(body["images"]))
    faces: dict[str, list[Face]] = {name: [] for name in names.values()}
    complaints = Complaints(path, "annotation", find.folder)
    for number, entry in enumerate(body["annotations"]):
        problem = _problem(entry, names)
        if problem:
            complaints.add(number, None, *problem)
            continue
        points = np.asarray(entry["keypoints"], np.float64).reshape(-1, 3)
        visible = points[:, 2] > 0
        left, top, width, height = (float(value) for value in entry["bbox"])
        landmarks = np.where(visible[:, None], points[:, :2], np.nan)
        faces[names[entry["image_id"]]].append(Face((left, top, width, height), landmarks, visible, np.full(3, np.nan)))
    complaints.raise_if_any(len(body["annotations"]))
    return [Photograph(name, ImageFile(find(name)), tuple(faces[name])) for name in sorted(faces)]


def _problem(entry: Any, names: dict[Any, str]) -> tuple[str, Any] | None:
    """What is wrong with an entry, in words that hold nothing of it, and the value that is wrong."""
    if not isinstance(entry, dict):
        return f"found {describe(entry)}, expected an object", entry
    for name, shape in (("keypoints", (3 * len(AFLW19),)), ("bbox", (4,))):
        if finite_array(entry.get(name), shape) is None:
            return f"'{name}' is {describe(entry.get(name))}, expected {shape[0]} finite numbers", entry.get(name)
    image = entry.get("image_id")
    if not isinstance(image, int | str) or image not in names:
        return "'image_id' is that of no image", image
    return None
