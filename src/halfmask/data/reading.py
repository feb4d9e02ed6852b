"""From people as annotated to records: crops made once, and kept in private storage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from halfmask.data.crops import crop_fields, crop_into
from halfmask.data.keyed import record_id
from halfmask.data.people import Annotations, LeftOut, Part, Person, digest_people
from halfmask.data.pose_records import CocoTruth, PoseRecords, pose_records
from halfmask.data.prints import people_prints
from halfmask.data.sharding import Shard
from halfmask.data.store import Draft, cached_by_row
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import keyed_hash

# Part of every key: crops made by code that cut them differently are not found again.
_CROP_VERSION = 3


def read_people(
    annotations: Annotations,
    part: Part,
    size: tuple[int, int],
    workers: int = 0,
    on_bad: str = "refuse",
    progress: Callable[[int, int], None] | None = None,
    shard: Shard | None = None,
) -> tuple[PoseRecords, list[LeftOut]]:
    """The records of a part, and who of it is not among them. Opens the images of these people and of nobody else.

    Args:
        shard: open those of this process's share alone.
    """
    if not part.people:
        raise HalfmaskError(f"'{part.name}' of {annotations.folder} has nobody with a labelled joint: the dataset is empty")
    people, mine = part.people, None
    if shard is not None:
        mine = shard.mine([person.image for person in people], [person.subject_name for person in people])
        people = tuple(people[place] for place in mine)
    # Fingerprints lie beside the crops, and are worth something under the key they were made with alone.
    secret = keyed_hash(b"cache").hex()[:8]
    key = f"{annotations.format}/{digest_people(people)}/{part.name}/{size[0]}x{size[1]}/{on_bad}/{_CROP_VERSION}/{secret}"

    def write(draft: Draft) -> None:
        fields = draft.fields(crop_fields(people, size), len(people))
        kept, left_out = crop_into(fields, people, size, workers, on_bad, progress)
        draft.keep(kept)
        draft.save("kept", kept)
        notes = json.dumps([[one.image, one.reason, one.detail] for one in left_out])
        draft.save("left_out", np.frombuffer(notes.encode(), np.uint8))

    arrays = cached_by_row("records", key, write)
    left_out = [LeftOut(*one) for one in json.loads(arrays["left_out"].tobytes())]
    kept = [people[i] for i in arrays["kept"]]
    if not kept:
        raise HalfmaskError(
            f"none of the {len(people)} people of '{part.name}' in {annotations.folder} could be read: the dataset is empty"
        )
    known = all(person.subject is not None for person in kept)
    records = pose_records(
        images=arrays["images"],
        joints=arrays["joints"],
        labelled=arrays["labelled"],
        annotated=arrays["annotated"],
        head_boxes=arrays["head_boxes"],
        image_ids=np.array([person.image_id for person in kept], np.int64),
        subjects=np.array([person.subject for person in kept], np.int64) if known else None,
        key=key,
        prints=people_prints(arrays, kept),
        skeleton=annotations.skeleton,
        transforms=arrays["transforms"],
        coco=_coco_truth(part, kept),
        scenes=np.array([person.scene for person in kept]) if any(person.scene for person in kept) else None,
        ids=np.array([public_id(person) for person in kept], np.uint64),
    )
    if mine is not None:
        records = replace(records, places=mine[arrays["kept"]], coco=None)
    return records, [*part.left_out, *left_out]


def public_id(person: Person) -> int:
    """What a record is called where changes are drawn for it: by its annotation, which stays when others leave, never by its pixels."""
    return record_id(person.image, tuple(round(100 * value) for value in person.box))


def _coco_truth(part: Part, kept: list[Person]) -> CocoTruth | None:
    if part.truth is None:
        return None
    return CocoTruth(
        image_ids=np.array([person.image_id for person in kept], np.int64),
        annotation_ids=np.array([person.annotation_id for person in kept], np.int64),
        box_scores=np.array([person.score for person in kept], np.float64),
        images=tuple(part.image_numbers[name] for name in part.images),
        annotations=tuple(one for name in part.images for one in part.truth[name]),
        detected=any(person.detected for person in kept),
    )
