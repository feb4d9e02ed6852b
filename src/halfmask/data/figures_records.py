"""The embedded world as records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from halfmask.data import figures
from halfmask.data.keyed import record_id
from halfmask.data.pose_records import PoseRecords, pose_records
from halfmask.data.prints import named_prints
from halfmask.data.sharding import Shard
from halfmask.data.store import Draft, cached_by_row

Progress = Callable[[int, int], None]


def figures_records(
    population: str,
    count: int,
    seed: int = 0,
    skip: int = 0,
    size: tuple[int, int] = (256, 192),
    progress: Progress | None = None,
    shard: Shard | None = None,
) -> PoseRecords:
    """The person crops number `skip` … `skip + count − 1` of a population, drawn once and kept; or a process's share of them."""
    key = f"figures/{population}/{seed}/{skip}/{count}/{size[0]}x{size[1]}/{drawing_digest()}"
    world, last = figures.World(population, seed=seed, size=size), skip + count
    places = None
    if shard is not None:
        everyone = world.records(last)[skip:]
        places = shard.mine([str(image) for image, _ in everyone], [str(world.subject(*one)) for one in everyone])
        count, key = len(places), f"{key}/{shard!r}"

    def write(draft: Draft) -> None:
        chosen = world.records(last)[skip:]
        chosen = chosen if places is None else [chosen[place] for place in places]
        joints = len(figures.JOINT_NAMES)
        fields = draft.fields(
            {
                "images": (np.uint8, (3, *size)),
                "joints": (np.float32, (joints, 2)),
                "labelled": (bool, (joints,)),
                "head_boxes": (np.float32, (4,)),
                "image_ids": (np.int64, ()),
                "subjects": (np.int64, ()),
            },
            count,
        )
        for i, (image, person) in enumerate(chosen):
            figure = world.figure(image, person)
            fields["images"][i] = figure.image.transpose(2, 0, 1)
            fields["joints"][i] = figure.joints
            fields["labelled"][i] = figure.visibility > 0
            fields["head_boxes"][i] = figure.head_box
            fields["image_ids"][i] = figure.image_id
            fields["subjects"][i] = figure.subject
            if progress and (i % 50 == 49 or i + 1 == count):
                progress(i + 1, count)

    arrays = cached_by_row("records", key, write)
    records = pose_records(
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
    return records if places is None else replace(records, places=places)


def drawing_digest() -> str:
    """A fingerprint of the drawing code, so that a changed world is drawn anew."""
    digest = hashlib.sha256()
    for path in sorted(Path(figures.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
