"""COCO keypoints: `annotations/person_keypoints_train2017.json` and the like, images in `train2017/`, `images/` or beside.

Which split a file holds is told by its name (train, val or test). A crop is made of the annotated box, or, for top-down evaluation as
papers report it, of a detector's: a list of `{"image_id", "category_id", "bbox", "score"}`.

Left out, as everybody does: crowds, boxes without area, and people without a labelled joint. Boxes that reach out of their image are
cut to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.files import ImageFinder, annotation_files, describe, finite_array, read_json, split_of
from halfmask.data.people import CLAMPED, CROWD, NO_AREA, NO_JOINT, OUTSIDE, Annotations, Box, LeftOut, Part, Person
from halfmask.data.skeleton import COCO
from halfmask.errors import HalfmaskError

_JOINTS = len(COCO)
_PARTS = ("images", "annotations", "categories")
# Boxes are drawn with a little slack; only a cut that moves an edge visibly is worth a word.
_VISIBLE_CUT = 2.0
# COCO-WholeBody files hold COCO's people again, with more joints.
_WHOLE_BODY = ("face_box", "lefthand_box")


def detect_coco(folder: Path) -> bool:
    """Whether the folder holds COCO keypoint annotations (Human-Art's are of the same make)."""
    return bool(coco_files(folder)[0])


def coco_files(folder: Path) -> tuple[list[Path], list[str]]:
    """Annotation files in COCO's form, and those passed over, each with the reason."""
    plain, whole_body, passed_over = [], [], []
    for path in annotation_files(folder, ".json"):
        try:
            body = read_json(path)
        except HalfmaskError as error:
            passed_over.append(str(error))
            continue
        problem = schema_problem(body)
        if problem:
            passed_over.append(f"{path.name}: {problem}")
        elif body["annotations"] and any(name in body["annotations"][0] for name in _WHOLE_BODY):
            whole_body.append(path)
        else:
            plain.append(path)
    if plain:
        return plain, passed_over + [f"{path.name}: the people of another file again, with whole-body joints" for path in whole_body]
    return whole_body, passed_over


def schema_problem(body: Any) -> str | None:
    """Why a JSON file is not COCO keypoints, or None if it is."""
    if not isinstance(body, dict) or not all(isinstance(body.get(name), list) for name in _PARTS):
        return f"found {describe(body)}, expected COCO's object with {', '.join(_PARTS)}"
    named = [category.get("keypoints") for category in body["categories"] if isinstance(category, dict)]
    if not any(isinstance(names, list) and tuple(names[:_JOINTS]) == COCO.names for names in named):
        return f"found categories without COCO's keypoints, expected the {_JOINTS} from nose to right_ankle"
    return None


def read_coco(folder: Path, annotations: tuple[str, ...] = (), boxes: str | None = None, format: str = "coco") -> Annotations:
    """The people of a dataset in COCO's form; no image is opened.

    Args:
        annotations: names of files to read, instead of all that are found.
        boxes: a detection file. Its boxes replace the annotated ones in the parts whose images it names, which then serve to judge a
            model only.
    """
    files, passed_over = ([folder / name for name in annotations], []) if annotations else coco_files(folder)
    if not files:
        reasons = f" ({'; '.join(passed_over[:2])})" if passed_over else ""
        raise HalfmaskError(f"{folder} holds no COCO keypoint annotations{reasons}: expected annotations/person_keypoints_*.json")
    parts: dict[str, Part] = {}
    detections = None if boxes is None else _read_detections(_beside(folder, boxes))
    for path in files:
        body = read_json(path)
        problem = schema_problem(body)
        if problem:
            raise HalfmaskError(f"{path}: {problem}")
        split = split_of(path)
        if split in parts:
            raise HalfmaskError(f"{path.name} and another file in {folder} both hold the split '{split}': choose with data.annotations")
        parts[split] = _read_part(path, body, split, ImageFinder(folder, _image_folders(folder, split)), detections)
    return Annotations(format, folder, COCO, parts, tuple(files), tuple(passed_over))


def _image_folders(folder: Path, split: str) -> list[str]:
    found = [path for place in (folder, folder / "images") if place.is_dir() for path in sorted(place.iterdir()) if path.is_dir()]
    return [str(path.relative_to(folder)) for path in found if split in path.name.lower()]


def _beside(folder: Path, name: str) -> Path:
    path = Path(name).expanduser()
    return path if path.is_file() else folder / name


def _read_detections(path: Path) -> dict[int, list[dict[str, Any]]]:
    body = read_json(path)
    if not isinstance(body, list) or any(not isinstance(one, dict) or not {"image_id", "bbox", "score"} <= one.keys() for one in body):
        raise HalfmaskError(f"{path} is {describe(body)}: expected a list of detections with image_id, bbox and score")
    found: dict[int, list[dict[str, Any]]] = {}
    for one in body:
        if one.get("category_id", 1) == 1:
            found.setdefault(int(one["image_id"]), []).append(one)
    return found


def _read_part(path: Path, body: dict[str, Any], split: str, find: ImageFinder, detections: dict[int, list[dict[str, Any]]] | None) -> Part:
    images: dict[int, dict[str, Any]] = {}
    for image in body["images"]:
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str) or not isinstance(image.get("id"), int):
            raise HalfmaskError(f"{path}: an image is {describe(image)}: expected file_name and id")
        images[image["id"]] = image
    truth: dict[str, list[dict[str, Any]]] = {image["file_name"]: [] for image in images.values()}
    people: list[Person] = []
    left_out: list[LeftOut] = []
    replaced = detections is not None and not detections.keys().isdisjoint(images)
    for number, entry in enumerate(body["annotations"]):
        place = f"{path}, annotation {number}"
        if not isinstance(entry, dict) or entry.get("image_id") not in images:
            raise HalfmaskError(f"{place} is of no image in the file: found image_id {describe_id(entry)}")
        image = images[entry["image_id"]]
        truth[image["file_name"]].append(_scored(entry))
        if not replaced:
            _add(people, left_out, place, entry, image, find)
    if replaced and detections is not None:
        for image_id, image in images.items():
            for one in detections.get(image_id, ()):
                _add(people, left_out, f"a detection on {image['file_name']}", one, image, find, detected=True)
    order = sorted(images.values(), key=lambda image: image["file_name"])
    people.sort(key=lambda person: person.image)
    return Part(
        split,
        tuple(image["file_name"] for image in order),
        tuple(people),
        tuple(left_out),
        truth,
        {image["file_name"]: image["id"] for image in order},
    )


def describe_id(entry: Any) -> str:
    """The image an annotation claims to be of."""
    return repr(entry.get("image_id")) if isinstance(entry, dict) else describe(entry)


def _add(
    people: list[Person],
    left_out: list[LeftOut],
    place: str,
    entry: dict[str, Any],
    image: dict[str, Any],
    find: ImageFinder,
    detected: bool = False,
) -> None:
    """Make a person of an annotation or a detection, or say why not."""
    name = image["file_name"]
    joints = np.zeros((_JOINTS, 3)) if detected else _joints(place, entry)
    box = finite_array(entry.get("bbox"), (4,))
    if box is None:
        raise HalfmaskError(f"{place}: 'bbox' is {entry.get('bbox')!r}: expected x, y, width and height")
    if entry.get("iscrowd"):
        left_out.append(LeftOut(name, CROWD))
        return
    if not detected and not (joints[:, 2] > 0).any():
        left_out.append(LeftOut(name, NO_JOINT))
        return
    cut, reason = _cut_to_image(box, image)
    if reason:
        left_out.append(LeftOut(name, reason, f"box {box.round(1).tolist()}"))
    if cut is None:
        return
    people.append(
        Person(
            name,
            find(name),
            int(image["id"]),
            cut,
            joints,
            area=float(entry.get("area", np.nan)),
            annotation_id=0 if detected else int(entry.get("id", 0)),
            score=float(entry["score"]) if detected else 1.0,
            detected=detected,
        )
    )


def _joints(place: str, entry: dict[str, Any]) -> np.ndarray:
    joints = finite_array(entry.get("keypoints"), (3 * _JOINTS,))
    if joints is None:
        raise HalfmaskError(f"{place}: 'keypoints' is not {3 * _JOINTS} finite numbers, x, y and visibility of {_JOINTS} joints")
    return joints.reshape(_JOINTS, 3)


def _cut_to_image(box: np.ndarray, image: dict[str, Any]) -> tuple[Box | None, str | None]:
    x, y, width, height = box.tolist()
    if not (width > 0 and height > 0):
        return None, NO_AREA
    columns, rows = float(image.get("width") or np.inf), float(image.get("height") or np.inf)
    left, top = min(max(x, 0.0), columns), min(max(y, 0.0), rows)
    right, bottom = min(max(x + width, 0.0), columns), min(max(y + height, 0.0), rows)
    if not (right - left >= 1 and bottom - top >= 1):
        return None, OUTSIDE
    moved = max(left - x, top - y, x + width - right, y + height - bottom)
    return (left, top, right - left, bottom - top), CLAMPED if moved > _VISIBLE_CUT else None


def _scored(entry: dict[str, Any]) -> dict[str, Any]:
    """What scoring needs of an annotation; outlines are long and play no part."""
    kept = {name: entry[name] for name in ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "num_keypoints") if name in entry}
    joints = list(entry.get("keypoints", ()))
    kept.setdefault("category_id", 1)
    kept.setdefault("iscrowd", 0)
    kept.setdefault("num_keypoints", sum(1 for v in joints[2::3] if v))
    return kept | {"keypoints": joints}
