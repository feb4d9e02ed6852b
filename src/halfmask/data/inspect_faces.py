"""A look at a folder of faces before anything is trained on it: what is there, what is missing, and what its regions would be.

A photograph is opened once. What is kept of it is its size, its fingerprint and, of a sample, how many regions it gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halfmask.data.crops import box_problem
from halfmask.data.face_files import FaceSet, ImageFile
from halfmask.data.faces import Face, Photograph
from halfmask.data.inspect import image_cost
from halfmask.data.overlaps import Overlap, find_overlaps
from halfmask.data.people import MISSING, UNREADABLE, LeftOut, count_reasons
from halfmask.data.regions import LEAST_SIDE, SMALL, RegionSettings, choose, propose
from halfmask.data.threads import in_order
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_annotation, fingerprint_name, fingerprint_picture, key

Progress = Callable[[int, int], None]

# Selective search takes far longer than opening a photograph: so many tell what the others are like.
_SAMPLED = 100
_NOBODY = np.zeros(16, np.uint8)


@dataclass(frozen=True)
class FacePart:
    """What is in one of a dataset's own splits.

    Attributes:
        photographs: all that are named; `opened` of them are there and can be read, or are taken to be where nothing was opened.
        with_faces: photographs that can be read and show a face that can be learnt.
        faces: those that can be learnt, by their boxes.
        subjects: how many photographs there are of each, the fewest first; nothing where nobody says who is who.
        annotated, visible: the shares of all landmarks of all faces.
        blank: faces without any landmark.
        attributes: how many faces have the attribute 0, and 1.
        sides: the shorter side of a face's box in pixels: the smallest, the median and the largest.
        bad: image files that are missing or damaged; empty if images were not opened.
        odd: faces that cannot be learnt, because of their boxes.
    """

    name: str
    photographs: int
    opened: int
    with_faces: int
    faces: int
    subjects: tuple[int, ...] | None
    annotated: float
    visible: float
    blank: int
    posed: int
    attributes: tuple[int, int]
    sides: tuple[float, float, float] | None
    bad: tuple[LeftOut, ...]
    odd: tuple[LeftOut, ...]

    @property
    def small(self) -> int:
        """Faces of too few pixels to be learnt."""
        return sum(one.reason == SMALL for one in self.odd)


@dataclass(frozen=True)
class RegionFacts:
    """What a sample of photographs gives in regions.

    Attributes:
        showing, empty: how many photographs give how many regions with a face, and without one.
        most: regions of one photograph.
        left_out: faces without a region, for each reason.
    """

    looked_at: int
    showing: dict[int, int]
    empty: dict[int, int]
    most: int
    left_out: dict[str, int]

    @property
    def mean(self) -> tuple[float, float]:
        """Regions of a photograph with a face, and without one."""
        of = max(1, self.looked_at)
        return sum(n * count for n, count in self.showing.items()) / of, sum(n * count for n, count in self.empty.items()) / of


@dataclass(frozen=True)
class FaceInspection:
    """What `halfmask data inspect` found in a folder of faces.

    Attributes:
        regions: nothing if images were not opened.
        region_cost: what a promise about regions is worth to a photograph, by how many it has (see `halfmask.data.inspect.image_cost`).
        image_cost: what a promise about photographs is worth to a subject, by how many there are of it.
    """

    faces: FaceSet
    parts: tuple[FacePart, ...]
    opened: bool
    settings: RegionSettings
    regions: RegionFacts | None = None
    region_cost: dict[int, float] = field(default_factory=dict)
    image_cost: dict[int, float] = field(default_factory=dict)
    overlaps: dict[str, Overlap] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        regions = self.regions
        return {
            "format": self.faces.format,
            "folder": str(self.faces.folder),
            "landmarks": {"layout": self.faces.layout.name, "points": len(self.faces.layout)},
            "attribute": self.faces.attribute or None,
            "images_opened": self.opened,
            "parts": {part.name: _part_json(part) for part in self.parts},
            "regions": None
            if regions is None
            else {
                "photographs": regions.looked_at,
                "with_face": {str(count): photographs for count, photographs in regions.showing.items()},
                "without_face": {str(count): photographs for count, photographs in regions.empty.items()},
                "most": regions.most,
                "left_out": regions.left_out,
            },
            "overlaps": {name: {"pictures": one.pictures, "subjects": one.subjects} for name, one in self.overlaps.items()},
            "region_cost": {str(size): round(cost, 3) for size, cost in self.region_cost.items()},
            "image_cost": {str(size): round(cost, 3) for size, cost in self.image_cost.items()},
        }


def inspect_faces(
    faces: FaceSet,
    open_images: bool = True,
    workers: int = 0,
    progress: Progress | None = None,
    settings: RegionSettings | None = None,
    sampled: int = _SAMPLED,
) -> FaceInspection:
    """Count what a folder holds; with `open_images`, try every file it names, and have regions of some of them found.

    Args:
        sampled: regions of how many photographs, spread over all, at most.
    """
    settings = settings or RegionSettings()
    everything = [photograph for photographs in faces.parts.values() for photograph in photographs]
    looks: dict[tuple[str, int], _Look | None] = {}
    if open_images:
        chosen = set(np.linspace(0, len(everything) - 1, min(sampled, len(everything))).astype(int).tolist())
        places = [(part, number) for part, photographs in faces.parts.items() for number in range(len(photographs))]
        secret = key()
        jobs = in_order(lambda place: _look_at(everything[place], settings, place in chosen, secret), range(len(everything)), workers)
        for done, (place, look) in enumerate(zip(places, jobs, strict=True), start=1):
            looks[place] = look
            if progress and (done % 50 == 0 or done == len(everything)):
                progress(done, len(everything))
    seen = {part: [looks[part, number] for number in range(len(all_of))] if open_images else None for part, all_of in faces.parts.items()}
    parts = tuple(_facts(part, photographs, seen[part]) for part, photographs in faces.parts.items())
    if not open_images:
        return FaceInspection(faces, parts, False, settings)
    regions = _regions([look for look in looks.values() if look is not None])
    learnt = next((part for name in ("private", "train", "all") for part in parts if part.name == name), parts[0])
    return FaceInspection(
        faces,
        parts,
        True,
        settings,
        regions,
        image_cost(round(sum(regions.mean) * learnt.opened), regions.most),
        image_cost(learnt.opened, max(learnt.subjects or (0,))),
        _recurring(faces, {part: found for part, found in seen.items() if found is not None}),
    )


@dataclass(frozen=True)
class _Look:
    """What opening a photograph told: rows and columns, its fingerprint, and of a sample which face each region shows (−1 for none)."""

    size: tuple[int, int]
    print: dict[str, np.ndarray]
    shows: tuple[int, ...] | None = None
    left_out: dict[str, int] = field(default_factory=dict)


def _look_at(photograph: Photograph, settings: RegionSettings, with_regions: bool, secret: bytes) -> _Look | None:
    # Whatever is wrong with a file, it is the file's fault: the others are looked at all the same.
    try:
        image = photograph.read()
    except Exception:
        return None
    size, printed = (image.shape[0], image.shape[1]), fingerprint_picture(image, secret)
    if not with_regions:
        return _Look(size, printed)
    regions, left_out = choose(propose(image), photograph.faces, size, photograph.name, settings)
    return _Look(size, printed, tuple(region.face for region in regions), left_out)


def _facts(name: str, photographs: Sequence[Photograph], looks: Sequence[_Look | None] | None) -> FacePart:
    sizes = [None] * len(photographs) if looks is None else [None if look is None else look.size for look in looks]
    bad = [one for one, look in zip(photographs, looks, strict=True) if look is None] if looks is not None else []
    unread = {one.name for one in bad}
    shown: list[tuple[Photograph, Face]] = []
    odd: list[LeftOut] = []
    sides: list[float] = []
    with_faces = 0
    for one, size in zip(photographs, sizes, strict=True):
        if one.name in unread:
            continue
        before = len(shown)
        for face in one.faces:
            side, reason = _side(face, size)
            if side is not None:
                sides.append(side)
            if reason:
                odd.append(LeftOut(one.name, reason, f"box {[round(float(value), 1) for value in face.box]}"))
            else:
                shown.append((one, face))
        with_faces += len(shown) > before
    good = [one for one in photographs if one.name not in unread]
    people = [face for _, face in shown]
    attributes = [face.attribute for face in people]
    return FacePart(
        name=name,
        photographs=len(photographs),
        opened=len(good),
        with_faces=with_faces,
        faces=len(people),
        subjects=_subjects(good),
        annotated=_share([np.isfinite(face.landmarks).all(1) for face in people]),
        visible=_share([face.visible for face in people]),
        blank=sum(not np.isfinite(face.landmarks).all(1).any() for face in people),
        posed=sum(bool(np.isfinite(face.pose).all()) for face in people),
        attributes=(attributes.count(0.0), attributes.count(1.0)),
        sides=(min(sides), float(np.median(sides)), max(sides)) if sides else None,
        bad=tuple(LeftOut(one.name, *_damage(one)) for one in bad),
        odd=tuple(odd),
    )


def _side(face: Face, size: tuple[int, int] | None) -> tuple[float | None, str | None]:
    """The shorter side of what of a face is in its photograph, and why it cannot be learnt; by the box alone if that was not opened."""
    left, top, width, height = face.box
    # A photograph that nobody opened is taken to be large enough.
    problem = box_problem(face.box, size or (10**9, 10**9))
    if problem:
        return None, problem
    if size is not None:
        width, height = min(left + width, size[1]) - max(left, 0), min(top + height, size[0]) - max(top, 0)
    side = float(min(width, height))
    return side, SMALL if side < LEAST_SIDE else None


def _damage(photograph: Photograph) -> tuple[str, str]:
    if not isinstance(photograph.read, ImageFile):
        return UNREADABLE, photograph.name
    return UNREADABLE if photograph.read.path.is_file() else MISSING, str(photograph.read.path)


def _subjects(photographs: Sequence[Photograph]) -> tuple[int, ...] | None:
    """As records count them: known for all faces or for none."""
    if any(face.subject is None for one in photographs for face in one.faces):
        return None
    counts = Counter(one.faces[0].subject for one in photographs if one.faces)
    return tuple(sorted(counts.values())) or None


def _share(flags: Sequence[np.ndarray]) -> float:
    return round(float(np.mean(flags)), 4) if len(flags) else 0.0


def _regions(looks: Sequence[_Look]) -> RegionFacts:
    showing: Counter[int] = Counter()
    empty: Counter[int] = Counter()
    left_out: Counter[str] = Counter()
    sampled = [(look.shows, look.left_out) for look in looks if look.shows is not None]
    for shows, gone in sampled:
        faces = sum(face >= 0 for face in shows)
        showing[faces] += 1
        empty[len(shows) - faces] += 1
        left_out.update(gone)
    most = max((len(shows) for shows, _ in sampled), default=0)
    return RegionFacts(len(sampled), dict(sorted(showing.items())), dict(sorted(empty.items())), most, dict(left_out.most_common()))


def _recurring(faces: FaceSet, looks: dict[str, list[_Look | None]]) -> dict[str, Overlap]:
    """Photographs of one of the dataset's own splits that recur in another, themselves or by their subject: `first / second`."""
    secret = key()
    prints: dict[str, Fingerprints] = {}
    for part, photographs in faces.parts.items():
        there = [(one, look.print) for one, look in zip(photographs, looks[part], strict=True) if look is not None]
        annotations = [_annotation(one, secret) for one, _ in there]
        owners = [one.faces[0].subject if one.faces else None for one, _ in there]
        subjects = [_NOBODY if owner is None else fingerprint_name("subject", owner, secret) for owner in owners]
        prints[part] = Fingerprints.stacked([found for _, found in there], annotations, subjects)
    names = [name for name, rows in prints.items() if len(rows)]
    found: dict[str, Overlap] = {}
    for place, name in enumerate(names):
        for overlap in find_overlaps(prints[name], {other: prints[other] for other in names[place + 1 :]}):
            found[f"{name} / {overlap.part}"] = overlap
    return found


def _annotation(photograph: Photograph, secret: bytes) -> np.ndarray:
    if not photograph.faces:
        return _NOBODY
    points = photograph.faces[0].landmarks
    return fingerprint_annotation(np.column_stack([points, np.isfinite(points).all(1)]), secret)


def _part_json(part: FacePart) -> dict[str, Any]:
    per_subject = part.subjects and dict(zip(("fewest", "median", "most"), spread(part.subjects), strict=True))
    return {
        "photographs": part.photographs,
        "with_faces": part.with_faces,
        "faces": part.faces,
        "units": {"image": part.opened, "subject": None if part.subjects is None else len(part.subjects)},
        "photographs_per_subject": per_subject or None,
        "landmarks": {"annotated_share": part.annotated, "visible_share": part.visible, "faces_without": part.blank},
        "posed": part.posed,
        "attribute": {"0": part.attributes[0], "1": part.attributes[1], "not_known": part.faces - sum(part.attributes)},
        "face_side": part.sides and dict(zip(("smallest", "median", "largest"), (round(side, 1) for side in part.sides), strict=True)),
        "left_out": count_reasons((*part.bad, *part.odd)),
        "bad_files": sorted({one.detail for one in part.bad}),
        "odd_annotations": [{"image": one.image, "reason": one.reason, "detail": one.detail} for one in part.odd],
    }


def spread(counts: Sequence[int]) -> tuple[int, float, int]:
    """The fewest, the median and the most."""
    return min(counts), float(np.median(counts)), max(counts)
