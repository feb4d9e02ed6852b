"""Human-Art: COCO's form, with people real, drawn, carved and cast; the folder an image lies in names its scene.

The seventeen joints that COCO has too are read, as the benchmark scores them; fingers and toes (`keypoints_21`) are not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from halfmask.data.coco import coco_files, read_coco
from halfmask.data.files import read_json
from halfmask.data.people import Annotations, Part


def detect_humanart(folder: Path) -> bool:
    """Whether the folder's COCO-style annotations are Human-Art's."""
    files, _ = coco_files(folder)
    return any("keypoints_21" in one for path in files for one in read_json(path)["annotations"][:1] if isinstance(one, dict))


def read_humanart(folder: Path, annotations: tuple[str, ...] = (), boxes: str | None = None) -> Annotations:
    """The people of Human-Art, each with the scene; no image is opened."""
    read = read_coco(folder, annotations, boxes, "humanart")
    return replace(read, parts={name: _with_scenes(part) for name, part in read.parts.items()})


def _with_scenes(part: Part) -> Part:
    return replace(part, people=tuple(replace(person, scene=scene_of(person.image)) for person in part.people))


def scene_of(image: str) -> str:
    """`2D_virtual_human/digital_art` for `HumanArt/images/2D_virtual_human/digital_art/000000001648.jpg`."""
    return "/".join(PurePosixPath(image).parts[-3:-1])
