"""A folder of your own images: `annotations.json` beside them.

    {"records": [{"image": "images/0001.jpg", "split": "private", "box": [x, y, width, height],
                  "joints": [[x, y, v], … 16 in MPII order], "head_box": [x1, y1, x2, y2], "subject": "anything"}, …]}

`split` is `private`, `public` or `test`. `box` is the person's box; the crop is that box grown by a quarter and to the network's shape.
`v` is 0 for a joint that is not labelled, 1 for occluded, 2 for visible. `subject` is optional; without it the unit `subject` cannot be
protected.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.data.figures import JOINT_NAMES
from halfmask.data.records import PoseRecords
from halfmask.data.store import cached
from halfmask.errors import HalfmaskError

SPLITS = ("private", "public", "test")
_FIELDS = {"image": str, "split": str, "box": list, "joints": list, "head_box": list}


def folder_records(folder: Path, size: tuple[int, int] = (256, 192), only: tuple[str, ...] = SPLITS) -> dict[str, PoseRecords]:
    """Read and crop the records of a folder, by split.

    Args:
        only: the splits to read; no image of another is opened.
    """
    annotations = _read_annotations(folder)
    stamp = hashlib.sha256(json.dumps(annotations, sort_keys=True).encode())
    for name in sorted({entry["image"] for entry in annotations}):
        path = folder / name
        if not path.is_file():
            raise HalfmaskError(
                f"{folder / 'annotations.json'} names the image '{name}', but there is no such file: add it or drop the record"
            )
        stamp.update(f"{name}/{path.stat().st_size}/{path.stat().st_mtime_ns}".encode())
    digest = stamp.hexdigest()[:16]
    subjects = {name: i for i, name in enumerate(sorted({str(entry.get("subject")) for entry in annotations}))}
    images = {name: i for i, name in enumerate(sorted({entry["image"] for entry in annotations}))}
    splits = {}
    for split in only:
        entries = [entry for entry in annotations if entry["split"] == split]
        if not entries:
            continue
        key = f"folder/{digest}/{split}/{size[0]}x{size[1]}"
        arrays = cached("records", key, lambda entries=entries: _crop_all(folder, entries, size))  # type: ignore[misc]
        known = all("subject" in entry for entry in entries)
        splits[split] = PoseRecords(
            images=arrays["images"],
            joints=arrays["joints"],
            labelled=arrays["labelled"],
            head_boxes=arrays["head_boxes"],
            key=key,
            image_ids=np.array([images[entry["image"]] for entry in entries]),
            subjects=np.array([subjects[str(entry["subject"])] for entry in entries]) if known else None,
        )
    return splits


def crop_transform(box: tuple[float, float, float, float], size: tuple[int, int], grow: float = 1.25) -> np.ndarray:
    """The 2×3 affine map from image pixels to crop pixels: the box, grown, in the crop's aspect ratio, centred."""
    x, y, width, height = box
    rows, columns = size
    scale = grow * max(width / columns, height / rows)
    if not scale > 0:
        raise HalfmaskError(f"a person's box is {list(box)}: expected a width and a height above 0")
    centre = (x + width / 2 - 0.5, y + height / 2 - 0.5)
    return np.array(
        [
            [1 / scale, 0, (columns - 1) / 2 - centre[0] / scale],
            [0, 1 / scale, (rows - 1) / 2 - centre[1] / scale],
        ],
        np.float64,
    )


def read_image(path: Path) -> np.ndarray:
    """An image file as RGB bytes, turned the way its camera says it was held."""
    if not path.is_file():
        raise HalfmaskError(f"no image at {path}: check the path")
    data = path.read_bytes()
    try:
        # OpenCV 4 fills what a JPEG lacks with grey: half a person would pass for a whole one.
        whole = data and not _is_jpeg_cut_short(data)
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if whole else None
    except cv2.error:
        pixels = None
    if pixels is None:
        raise HalfmaskError(f"{path} cannot be read as an image: the file is corrupt, empty or of another format")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _is_jpeg_cut_short(data: bytes) -> bool:
    """Look for the end marker after the last scan begins, which skips the thumbnail in a camera's header."""
    return data.startswith(b"\xff\xd8") and data.find(b"\xff\xd9", max(data.rfind(b"\xff\xda"), 0)) < 0


def _crop_all(folder: Path, entries: list[dict[str, Any]], size: tuple[int, int]) -> dict[str, np.ndarray]:
    count, joints = len(entries), len(JOINT_NAMES)
    arrays: dict[str, np.ndarray] = {
        "images": np.empty((count, 3, *size), np.uint8),
        "joints": np.empty((count, joints, 2), np.float32),
        "labelled": np.empty((count, joints), bool),
        "head_boxes": np.empty((count, 4), np.float32),
    }
    for i, entry in enumerate(entries):
        image = read_image(folder / entry["image"])
        transform = crop_transform(tuple(entry["box"]), size)
        crop = cv2.warpAffine(image, transform, (size[1], size[0]), flags=cv2.INTER_LINEAR)
        points = np.asarray(entry["joints"], np.float64)
        placed = points[:, :2] @ transform[:, :2].T + transform[:, 2]
        inside = ((placed >= 0) & (placed <= [size[1] - 1, size[0] - 1])).all(1)
        corners = np.asarray(entry["head_box"], np.float64).reshape(2, 2) @ transform[:, :2].T + transform[:, 2]
        arrays["images"][i] = crop.transpose(2, 0, 1)
        arrays["joints"][i] = placed
        arrays["labelled"][i] = (points[:, 2] > 0) & inside
        arrays["head_boxes"][i] = corners.ravel()
    return arrays


def _read_annotations(folder: Path) -> list[dict[str, Any]]:
    if not folder.is_dir():
        raise HalfmaskError(f"no folder at {folder}: give the path of a dataset folder, or 'figures' for the embedded one")
    path = folder / "annotations.json"
    if not path.is_file():
        raise HalfmaskError(f"{folder} has no annotations.json: see 'halfmask.data.folder' for the format it is expected in")
    try:
        body = json.loads(path.read_text())
    except ValueError as error:
        raise HalfmaskError(f"{path} is not valid JSON ({error}): mend or re-export it") from None
    entries = body.get("records") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise HalfmaskError(f'{path} has no list "records": expected {{"records": [...]}}')
    if not entries:
        raise HalfmaskError(f"{path} lists no records: the dataset is empty")
    for number, entry in enumerate(entries):
        _check_entry(f"{path}, record {number}", entry)
    return entries


def _check_entry(place: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise HalfmaskError(f"{place} is a {type(entry).__name__}: expected an object")
    for name, kind in _FIELDS.items():
        if not isinstance(entry.get(name), kind):
            raise HalfmaskError(f"{place} has no valid '{name}': found {entry.get(name)!r}, expected a {kind.__name__}")
    if entry["split"] not in SPLITS:
        raise HalfmaskError(f"{place} has split '{entry['split']}': expected one of {', '.join(SPLITS)}")
    for name, shape in (("box", (4,)), ("head_box", (4,)), ("joints", (len(JOINT_NAMES), 3))):
        try:
            array = np.asarray(entry[name], np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != shape or not np.isfinite(array).all():
            raise HalfmaskError(f"{place}: '{name}' is not {'×'.join(map(str, shape))} finite numbers")
    if not (entry["box"][2] > 0 and entry["box"][3] > 0):
        raise HalfmaskError(f"{place}: the box {entry['box']} has no area")
