"""The embedded world as records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from halfmask.data import figures
from halfmask.data.keyed import record_id
from halfmask.data.pose_records import PoseRecords, pose_records
from halfmask.data.prints import named_prints
from halfmask.data.store import cached

Progress = Callable[[int, int], None]


def figures_records(
    population: str,
    count: int,
    seed: int = 0,
    skip: int = 0,
    size: tuple[int, int] = (256, 192),
    progress: Progress | None = None,
) -> PoseRecords:
    """The person crops number `skip` … `skip + count − 1` of a population, drawn once and kept."""
    key = f"figures/{population}/{seed}/{skip}/{count}/{size[0]}x{size[1]}/{_code_digest()}"

    def build() -> dict[str, np.ndarray]:
        world = figures.World(population, seed=seed, size=size)
        pairs = world.records(skip + count)[skip:]
        joints = len(figures.JOINT_NAMES)
        arrays: dict[str, np.ndarray] = {
            "images": np.empty((count, 3, *size), np.uint8),
            "joints": np.empty((count, joints, 2), np.float32),
            "labelled": np.empty((count, joints), bool),
            "head_boxes": np.empty((count, 4), np.float32),
            "image_ids": np.empty(count, np.int64),
            "subjects": np.empty(count, np.int64),
        }
        for i, (image, person) in enumerate(pairs):
            figure = world.figure(image, person)
            arrays["images"][i] = figure.image.transpose(2, 0, 1)
            arrays["joints"][i] = figure.joints
            arrays["labelled"][i] = figure.visibility > 0
            arrays["head_boxes"][i] = figure.head_box
            arrays["image_ids"][i] = figure.image_id
            arrays["subjects"][i] = figure.subject
            if progress and (i % 50 == 49 or i + 1 == count):
                progress(i + 1, count)
        return arrays

    arrays = cached("records", key, build)
    return pose_records(
        images=arrays["images"],
        joints=arrays["joints"],
        labelled=arrays["labelled"],
        head_boxes=arrays["head_boxes"],
        image_ids=arrays["image_ids"],
        subjects=arrays["subjects"],
        key=key,
        # By name: a drawn person is the same at every size.
        prints=named_prints(
            [f"figures/{population}/{seed}/{image}" for image in arrays["image_ids"]],
            [f"figures/{population}/{seed}/{subject}" for subject in arrays["subjects"]],
        ),
        ids=np.array([record_id(population, seed, *who) for who in zip(arrays["image_ids"], arrays["subjects"], strict=True)], np.uint64),
    )


def _code_digest() -> str:
    """A fingerprint of the drawing code, so that a changed world is drawn anew."""
    digest = hashlib.sha256()
    for path in sorted(Path(figures.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
