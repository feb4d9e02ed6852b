"""From photographs with faces to records: their regions, found once and cut once, and kept in private storage.

Two passes. The first opens every photograph, has regions proposed and chooses among them; the second cuts what was chosen, so that its
number is known before anything is written, and another size needs no other search. OpenCV searches outside Python's lock, so threads
suffice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from halfmask.data.crops import ON_BAD
from halfmask.data.face_files import ImageFile
from halfmask.data.faces import FaceRecords, Layout, Photograph, face_records
from halfmask.data.files import where_named
from halfmask.data.keyed import record_id
from halfmask.data.people import MISSING, UNREADABLE
from halfmask.data.prints import fill_prints, named_prints, print_fields
from halfmask.data.regions import Region, RegionSettings, choose, cut, into_region, propose
from halfmask.data.store import Draft, cached_by_row
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_annotation, fingerprint_name, fingerprint_picture, key, keyed_hash

Report = Callable[[str, int, int], None]

NOTHING = "a photograph in which no region was found"
# Part of every key: regions made by code that chose or cut them differently are not found again.
_VERSION = 1
_NO_FACE = np.zeros(16, np.uint8)


def region_records(
    photographs: Sequence[Photograph],
    layout: Layout,
    attribute: str,
    size: int,
    seed: int = 0,
    positives: int = 3,
    negatives: int = 3,
    name: str = "photographs",
    report: Report | None = None,
    workers: int = 0,
    on_bad: str = "refuse",
    drawn: bool = False,
) -> tuple[FaceRecords, dict[str, int]]:
    """The regions of photographs, and how many faces and photographs have none, for each reason.

    All regions of a photograph, those without a face too, belong to it and to the subject of its face.

    Args:
        attribute: what the faces' attribute is called; empty if it is not to be learnt, and then no record has it.
        size: S; regions are S×S.
        seed: public; chooses regions and moves boxes, by the names of photographs.
        name: names the dataset in public, and so its records. What a photograph holds is told by its name here and the `stamp` of its
            `read` (`halfmask.data.face_files`); without a stamp, by its name alone.
        workers: threads; 0 for one per core.
        on_bad: what to do about an image file that is missing or damaged: `refuse` to go on, or `skip` it.
        drawn: whether photographs are drawn, and so known by name; what is photographed is known by its pixels.
    """
    if on_bad not in ON_BAD:
        raise unknown_name("way to treat bad images (data.on_bad)", on_bad, ON_BAD)
    _check(photographs, layout, name)
    settings = RegionSettings(positives, negatives, seed)
    found_key = f"{name}/{_digest(photographs)}/{settings}/{on_bad}/{_VERSION}/{cv2.__version__}"
    found = cached_by_row("regions", found_key, lambda draft: _find(draft, photographs, settings, workers, on_bad, report))
    left_out: dict[str, int] = json.loads(found["left_out"].tobytes())
    if not len(found["boxes"]):
        raise HalfmaskError(
            f"no region was found in the {len(photographs):,} photographs of '{name}': the dataset is empty. Expected photographs of at "
            "least 16 pixels on each side, and data.positives or data.negatives above 0"
        )
    # Fingerprints lie beside the regions, and are worth something under the key they were made with alone.
    secret = keyed_hash(b"cache").hex()[:8]
    records_key = f"faces/{found_key}/{layout.name}/{attribute}/{size}/{secret}"
    arrays = cached_by_row(
        "records", records_key, lambda draft: _cut_all(draft, photographs, found, layout, bool(attribute), size, workers, report)
    )
    of_photograph, boxes = np.array(found["photographs"]), np.array(found["boxes"])
    shown = [photographs[place] for place in of_photograph]
    subjects = _subjects(photographs)
    image_ids = np.array([record_id(name, "image", photograph.name) >> 1 for photograph in photographs], np.int64)
    if drawn:
        prints = _named(shown, None if subjects is None else [subjects[place] for place in of_photograph])
    else:
        prints = _prints(arrays, shown, np.array(found["faces"]), subjects, of_photograph)
    records = face_records(
        images=arrays["image"],
        targets={field: arrays[field] for field in _fields(layout, size) if field != "image"},
        truth={"boxes": boxes.astype(np.float32), "face_boxes": np.array(found["face_boxes"]), "overlaps": np.array(found["overlaps"])},
        image_ids=image_ids[of_photograph],
        key=records_key,
        layout=layout,
        attribute=attribute,
        subjects=None if subjects is None else _subject_numbers(subjects, image_ids)[of_photograph],
        prints=prints,
        ids=np.array([record_id(name, one.name, tuple(box)) for one, box in zip(shown, boxes.tolist(), strict=True)], np.uint64),
    )
    return records, left_out


def _check(photographs: Sequence[Photograph], layout: Layout, name: str) -> None:
    """Refuse what would pass for something else later, in numbers alone."""
    twice = len(photographs) - len({photograph.name for photograph in photographs})
    if twice:
        raise HalfmaskError(f"{twice:,} photographs of '{name}' have the name of another one: expected a name of its own for each")
    wrong = sum(np.shape(face.landmarks) != (len(layout), 2) for photograph in photographs for face in photograph.faces)
    if wrong:
        raise HalfmaskError(
            f"{wrong:,} faces of '{name}' do not have the {len(layout)} landmarks of '{layout.name}': expected them for each"
        )
    crowded = sum(len({face.subject for face in photograph.faces if face.subject is not None}) > 1 for photograph in photographs)
    if crowded:
        raise HalfmaskError(
            f"{crowded:,} photographs of '{name}' show two subjects or more, and a region belongs to one: leave those photographs out, or "
            "cut them into one for each subject"
        )


def _find(
    draft: Draft, photographs: Sequence[Photograph], settings: RegionSettings, workers: int, on_bad: str, report: Report | None
) -> None:
    """The first pass: what is kept of each photograph, and of what nothing is."""
    places: list[int] = []
    kept: list[Region] = []
    left_out: dict[str, int] = {}
    jobs = in_order(lambda photograph: _look(photograph, settings, on_bad), photographs, workers)
    for place, (regions, gone) in enumerate(jobs):
        kept += regions
        places += [place] * len(regions)
        for reason, count in gone.items():
            left_out[reason] = left_out.get(reason, 0) + count
        _tell(report, "finding regions", place + 1, len(photographs))
    draft.save("photographs", np.array(places, np.int64))
    draft.save("boxes", np.array([region.box for region in kept], np.int32).reshape(-1, 4))
    draft.save("faces", np.array([region.face for region in kept], np.int32))
    draft.save("face_boxes", np.array([region.face_box for region in kept], np.float32).reshape(-1, 4))
    draft.save("overlaps", np.array([region.overlap for region in kept], np.float32))
    most_first = dict(sorted(left_out.items(), key=lambda item: -item[1]))
    draft.save("left_out", np.frombuffer(json.dumps(most_first).encode(), np.uint8))


def _look(photograph: Photograph, settings: RegionSettings, on_bad: str) -> tuple[list[Region], dict[str, int]]:
    try:
        image = photograph.read()
    except (HalfmaskError, OSError, ValueError):
        there = not isinstance(photograph.read, ImageFile) or photograph.read.path.is_file()
        damage = UNREADABLE if there else MISSING
        if on_bad == "refuse":
            # Neither the image nor its place in the list: a file's name can be a person's.
            raise HalfmaskError(
                f"an annotation names {damage}: restore such files ({where_named()}), or leave them out with data.on_bad=skip"
            ) from None
        return [], {damage: 1}
    regions, left_out = choose(propose(image), photograph.faces, image.shape[:2], photograph.name, settings)
    return regions, left_out if regions else left_out | {NOTHING: 1}


def _fields(layout: Layout, size: int) -> dict[str, Any]:
    """The kind and the shape of everything that is kept of one region, but what it is recognised by."""
    points = len(layout)
    shapes: dict[str, tuple[int, ...]] = {"landmarks": (points, 2), "visible": (points,), "pose": (3,)}
    names = ("face", "landmarks", "visible", "pose", "posed", "attribute", "attributed")
    return {"image": (np.uint8, (3, size, size))} | {name: (np.float32, shapes.get(name, ())) for name in names}


def _cut_all(
    draft: Draft,
    photographs: Sequence[Photograph],
    found: dict[str, np.ndarray],
    layout: Layout,
    attributed: bool,
    size: int,
    workers: int,
    report: Report | None,
) -> None:
    """The second pass: each photograph that something is kept of is opened once, and its rows are written."""
    fields = draft.fields(_fields(layout, size) | print_fields(), len(found["boxes"]))
    boxes, faces = found["boxes"].tolist(), found["faces"].tolist()
    rows_of: dict[int, list[int]] = {}
    for row, place in enumerate(found["photographs"].tolist()):
        rows_of.setdefault(place, []).append(row)

    def write(place: int) -> None:
        image = photographs[place].read()
        fill_prints(fields, rows_of[place], fingerprint_picture(image))
        for row in rows_of[place]:
            fields["image"][row] = cut(image, boxes[row], size)
            # What is not written is 0, and that is what a region without a face has.
            if faces[row] >= 0:
                taught = into_region(photographs[place].faces[faces[row]], boxes[row])
                for name in taught.keys() - (set() if attributed else {"attribute", "attributed"}):
                    fields[name][row] = taught[name]

    for done, _ in enumerate(in_order(write, rows_of, workers)):
        _tell(report, "cutting regions", done + 1, len(rows_of))


def _subjects(photographs: Sequence[Photograph]) -> list[str] | None:
    """Whom each photograph shows, empty for nobody; nothing at all where a face's subject is not known."""
    if any(face.subject is None for photograph in photographs for face in photograph.faces):
        return None
    names = [photograph.faces[0].subject or "" if photograph.faces else "" for photograph in photographs]
    return names if any(names) else None


def _subject_numbers(subjects: Sequence[str], image_ids: np.ndarray) -> np.ndarray:
    """A number for each subject; a photograph of nobody is nobody else's."""
    return np.array(
        [record_id("subject", name) >> 1 if name else -1 - int(image) for name, image in zip(subjects, image_ids, strict=True)], np.int64
    )


def _prints(
    arrays: dict[str, np.ndarray], shown: Sequence[Photograph], faces: np.ndarray, subjects: Sequence[str] | None, places: np.ndarray
) -> Fingerprints:
    """Of the photographs, of the faces' annotations and of the subjects: another cut of a photograph has the same."""
    secret = key()
    pictures = {name: arrays[f"print_{name}"] for name in ("exact", "bands", "sealed")}
    annotations: dict[tuple[str, int], np.ndarray] = {}
    for one, face in zip(shown, faces.tolist(), strict=True):
        if face >= 0 and (one.name, face) not in annotations:
            points = one.faces[face]
            labelled = np.isfinite(points.landmarks).all(1)
            annotations[one.name, face] = fingerprint_annotation(np.column_stack([points.landmarks, labelled]), secret)
    named = {} if subjects is None else {name: fingerprint_name("subject", name, secret) for name in set(subjects) if name}
    columns = {
        "annotations": [annotations.get((one.name, face), _NO_FACE) for one, face in zip(shown, faces.tolist(), strict=True)],
        "subjects": [_NO_FACE if subjects is None else named.get(subjects[place], _NO_FACE) for place in places],
    }
    return Fingerprints.from_arrays(pictures | {name: np.array(rows, np.uint8).reshape(len(shown), 16) for name, rows in columns.items()})


def _named(shown: Sequence[Photograph], subjects: Sequence[str] | None) -> Fingerprints:
    """Of drawn photographs, whose names are nobody else's in any dataset: the same at every size."""
    return named_prints([photograph.name for photograph in shown], subjects)


def _digest(photographs: Sequence[Photograph]) -> str:
    """Names these photographs with these annotations on these files, for caches: a changed file is looked at again."""
    digest = hashlib.sha256()
    for photograph in photographs:
        stamp = getattr(photograph.read, "stamp", "")
        digest.update(f"{photograph.name}|{stamp}|{len(photograph.faces)}|".encode())
        for face in photograph.faces:
            digest.update(f"{face.box!r}|{face.attribute!r}|{face.subject!r}|{len(face.landmarks)}|".encode())
            for values in (face.landmarks, face.visible, face.pose):
                digest.update(np.ascontiguousarray(values, np.float64).tobytes())
    return digest.hexdigest()[:24]


def _tell(report: Report | None, stage: str, done: int, total: int) -> None:
    if report and (done % 50 == 0 or done == total):
        report(stage, done, total)
