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

from halfmask.data.files import Complaints, ImageFinder, annotation_files, describe, finite_array, read_json, split_of
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
        elif any(name in one for one in body["annotations"][:1] if isinstance(one, dict) for name in _WHOLE_BODY):
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
    detections = None if boxes is None else _read_detections(_beside(folder, boxes), folder)
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


def _read_detections(path: Path, folder: Path) -> dict[int, list[dict[str, Any]]]:
    body = read_json(path)
    if not isinstance(body, list):
        raise HalfmaskError(f"{path} is {describe(body)}: expected a list of detections with image_id, bbox and score")
    found: dict[int, list[dict[str, Any]]] = {}
    complaints = Complaints(path, "detection", folder)
    for number, one in enumerate(body):
        if not isinstance(one, dict) or type(one.get("image_id")) is not int or finite_array(one.get("score"), ()) is None:
            complaints.add(number, None, f"found {describe(one)}, expected an object with image_id, bbox and score", one)
        elif one.get("category_id", 1) == 1:
            if problem := _box_problem(one):
                complaints.add(number, None, *problem)
            found.setdefault(one["image_id"], []).append(one)
    complaints.raise_if_any(len(body))
    return found


def _read_part(path: Path, body: dict[str, Any], split: str, find: ImageFinder, detections: dict[int, list[dict[str, Any]]] | None) -> Part:
    images = _read_images(path, body["images"], find.folder)
    replaced = detections is not None and not detections.keys().isdisjoint(images)
    _check_entries(path, body["annotations"], images, find.folder, learnt_from=not replaced)
    truth: dict[str, list[dict[str, Any]]] = {image["file_name"]: [] for image in images.values()}
    people: list[Person] = []
    left_out: list[LeftOut] = []
    for number, entry in enumerate(body["annotations"]):
        image = images[entry["image_id"]]
        truth[image["file_name"]].append(_scored(entry))
        if not replaced:
            _add(people, left_out, number, entry, image, find)
    if replaced and detections is not None:
        for image_id, image in images.items():
            for number, one in enumerate(detections.get(image_id, ())):
                _add(people, left_out, number, one, image, find, detected=True)
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


def _read_images(path: Path, listed: list[Any], folder: Path) -> dict[int, dict[str, Any]]:
    """The images of an annotation file, by id."""
    images: dict[int, dict[str, Any]] = {}
    complaints = Complaints(path, "image", folder)
    for number, image in enumerate(listed):
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str) or type(image.get("id")) is not int:
            complaints.add(number, None, f"found {describe(image)}, expected an object with a text file_name and a whole number id", image)
        elif any(image.get(side) is not None and finite_array(image[side], ()) is None for side in ("width", "height")):
            complaints.add(number, image["file_name"], "'width' or 'height' is no finite number", image)
        else:
            images[image["id"]] = image
    complaints.raise_if_any(len(listed))
    return images


def _check_entries(path: Path, entries: list[Any], images: dict[int, dict[str, Any]], folder: Path, learnt_from: bool) -> None:
    """Refuse annotations that are not as COCO's, all at once; of those that only judge a detector's boxes less is needed."""
    complaints = Complaints(path, "annotation", folder)
    for number, entry in enumerate(entries):
        problem = _problem(entry, images, learnt_from)
        if problem:
            known = isinstance(entry, dict) and type(entry.get("image_id")) is int and entry["image_id"] in images
            complaints.add(number, images[entry["image_id"]]["file_name"] if known else None, *problem)
    complaints.raise_if_any(len(entries))


def _problem(entry: Any, images: dict[int, dict[str, Any]], learnt_from: bool) -> tuple[str, Any] | None:
    """What is wrong with an annotation, in words that hold nothing of it, and the value that is wrong."""
    if not isinstance(entry, dict):
        return f"found {describe(entry)}, expected an object", entry
    if type(entry.get("image_id")) is not int or entry["image_id"] not in images:
        return "'image_id' is of no image in the file", entry.get("image_id")
    keypoints = entry.get("keypoints")
    if not learnt_from:
        return None if isinstance(keypoints, list | None) else (f"'keypoints' is {describe(keypoints)}, expected a list", keypoints)
    if finite_array(keypoints, (3 * _JOINTS,)) is None:
        expected = f"{3 * _JOINTS} finite numbers, x, y and visibility of {_JOINTS} joints"
        return f"'keypoints' is {describe(keypoints)}, expected {expected}", keypoints
    if type(entry.get("id", 0)) is not int:
        return f"'id' is {describe(entry['id'])}, expected a whole number", entry["id"]
    if finite_array(entry.get("area", 0.0), ()) is None:
        return f"'area' is {describe(entry['area'])}, expected a finite number", entry["area"]
    return _box_problem(entry)


def _box_problem(entry: dict[str, Any]) -> tuple[str, Any] | None:
    box = entry.get("bbox")
    if finite_array(box, (4,)) is None:
        return f"'bbox' is {describe(box)}, expected x, y, width and height", box
    return None


def _add(
    people: list[Person],
    left_out: list[LeftOut],
    number: int,
    entry: dict[str, Any],
    image: dict[str, Any],
    find: ImageFinder,
    detected: bool = False,
) -> None:
    """Make a person of an annotation or a detection, or say why not."""
    name, place = image["file_name"], f"{'detection' if detected else 'annotation'} {number}"
    joints = np.zeros((_JOINTS, 3)) if detected else np.asarray(entry["keypoints"], np.float64).reshape(_JOINTS, 3)
    box = np.asarray(entry["bbox"], np.float64)
    if entry.get("iscrowd"):
        left_out.append(LeftOut(name, CROWD, place))
        return
    if not detected and not (joints[:, 2] > 0).any():
        left_out.append(LeftOut(name, NO_JOINT, place))
        return
    cut, reason = _cut_to_image(box, image)
    if reason:
        left_out.append(LeftOut(name, reason, f"{place}, box {box.round(1).tolist()}"))
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
    joints = list(entry.get("keypoints") or ())
    kept.setdefault("category_id", 1)
    kept.setdefault("iscrowd", 0)
    kept.setdefault("num_keypoints", sum(1 for v in joints[2::3] if v))
    return kept | {"keypoints": joints}
