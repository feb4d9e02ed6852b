"""The embedded world as a folder of pictures: an example of the format that `halfmask.data.folder` reads.

Whole pictures are written, so people who stand together share an image file, as in a real collection.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.data.figures import Figure, World
from halfmask.data.folder_checks import SPLITS, VERSION
from halfmask.errors import HalfmaskError

Report = Callable[[str, int, int], None]

_JPEG_QUALITY = 92
# A person of whom less shows would be a box without anything to learn in it.
_FEWEST_LABELLED_JOINTS = 4


def export_figures(folder: Path, counts: dict[str, int], seed: int = 0, report: Report | None = None) -> int:
    """Draw people of each split and write `annotations.json` beside their pictures.

    Args:
        folder: where to; one that holds a dataset already is refused.
        counts: how many people (not pictures) of each split.
        report: told the stage, and how many of its people are drawn.

    Returns:
        The number of pictures.
    """
    if (folder / "annotations.json").exists():
        raise HalfmaskError(f"{folder} already holds a dataset: choose another folder")
    if any(count < 0 for count in counts.values()):
        raise HalfmaskError(f"the numbers of people are {counts}: expected 0 or more of each")
    if not any(counts.values()):
        raise HalfmaskError("every split has 0 people: there is nothing to export")
    records: list[dict[str, Any]] = []
    for split in SPLITS:
        records += _draw_split(folder, split, counts.get(split, 0), seed, report)
    # Last, so that a folder with annotations is a folder with all its pictures.
    (folder / "annotations.json").write_text(json.dumps({"version": VERSION, "records": records}, indent=1) + "\n")
    return len({record["image"] for record in records})


def _draw_split(folder: Path, split: str, count: int, seed: int, report: Report | None) -> list[dict[str, Any]]:
    world = World(split, seed=seed)
    records: list[dict[str, Any]] = []
    number = 0
    while len(records) < count:
        picture, figures = world.picture(number)
        name = f"images/{split}/{number:05d}.jpg"
        people = [_record(name, split, figure) for figure in figures if _is_seen(figure)]
        if people:
            _write_jpeg(folder / name, picture)
        records += people[: count - len(records)]
        number += 1
        if report:
            report(f"drawing {split} people", len(records), count)
    return records


def _is_seen(figure: Figure) -> bool:
    return int((figure.visibility > 0).sum()) >= _FEWEST_LABELLED_JOINTS


def _record(image: str, split: str, figure: Figure) -> dict[str, Any]:
    """One person's annotation, in picture coordinates."""
    joints = [[round(float(x), 2), round(float(y), 2), int(v)] for (x, y), v in zip(figure.joints, figure.visibility, strict=True)]
    return {
        "image": image,
        "split": split,
        "box": _person_box(figure),
        "joints": joints,
        "head_box": [round(float(value), 2) for value in (*figure.head_box[:2], *(figure.head_box[2:] - figure.head_box[:2]))],
        "subject": f"{split}-{figure.subject}",
    }


def _person_box(figure: Figure) -> list[float]:
    """The box round the joints and the head as far as they are in the picture, as a detector gives it."""
    points = np.concatenate([figure.joints[figure.visibility > 0], figure.head_box.reshape(2, 2)])
    height, width = figure.image.shape[:2]
    points = np.clip(points, 0, [width - 1, height - 1])
    (left, top), (right, bottom) = points.min(0), points.max(0)
    return [round(float(value), 2) for value in (left, top, max(right - left, 1.0), max(bottom - top, 1.0))]


def _write_jpeg(path: Path, picture: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    path.write_bytes(encoded.tobytes())
