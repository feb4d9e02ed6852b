"""A look at a dataset before anything is trained on it: what is there, what is missing, and whom a unit would protect."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.crops import box_problem, crop_people
from halfmask.data.doubts import doubts_about
from halfmask.data.images import read_image
from halfmask.data.mapping import map_joints
from halfmask.data.overlaps import Overlap, find_overlaps
from halfmask.data.people import CROWD, MISSING, NO_JOINT, UNREADABLE, Annotations, LeftOut, Part, Person, count_reasons
from halfmask.data.prints import empty_prints, fill_prints, people_prints
from halfmask.data.skeleton import Skeleton
from halfmask.privacy.accounting import SampledGaussian, calibrate, epsilon
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_picture, key
from halfmask.report.overlay import contact_sheet, draw_skeleton

Progress = Callable[[int, int], None]

_PLAN_BATCH, _PLAN_EPOCHS, _PLAN_GRID, _MOST_COSTED = 64, 25, 2e-3, 6


@dataclass(frozen=True)
class PartFacts:
    """What is in one of a dataset's own splits.

    Attributes:
        people: who would be records if the part were read with `data.on_bad=skip`.
        people_per_image: how many images show how many such people; images with nobody are under 0.
        labelled: for each joint, the share of people who have it labelled.
        bad: image files that are missing or damaged, and boxes outside their image; empty if images were not opened.
        odd: people whom their annotation alone keeps out, or changes; not those whom everybody leaves out (crowds, nobody labelled).
        doubts: people whose annotation or image can be used and had better be looked at.
    """

    name: str
    images: int
    people: int
    subjects: int | None
    people_per_image: dict[int, int]
    labelled: dict[str, float]
    scenes: dict[str, int]
    left_out: dict[str, int]
    bad: tuple[LeftOut, ...]
    head_boxes: int
    odd: tuple[LeftOut, ...] = ()
    doubts: tuple[LeftOut, ...] = ()

    @property
    def images_with_people(self) -> int:
        """The number of units if an image is what is protected."""
        return sum(count for people, count in self.people_per_image.items() if people)

    @property
    def most_on_one_image(self) -> int:
        """The largest number of people that one image-level unit holds."""
        return max((people for people, count in self.people_per_image.items() if count), default=0)


@dataclass(frozen=True)
class Inspection:
    """What `halfmask data inspect` found.

    Attributes:
        overlaps: which of the dataset's own splits show the same photographs or subjects; empty if images were not opened.
        image_cost: see the function of that name; empty if no image has several people, or images were not opened.
    """

    annotations: Annotations
    parts: tuple[PartFacts, ...]
    target: Skeleton
    opened: bool
    image_cost: dict[int, float]
    overlaps: dict[str, Overlap] = field(default_factory=dict)

    @property
    def problems(self) -> int:
        """How many things had better be mended before anything is trained: what `--strict` does not let pass."""
        return sum(len(part.bad) + len(part.odd) + len(part.doubts) for part in self.parts) + len(self.overlaps)

    @property
    def metric(self) -> str:
        """How a model is scored on this dataset."""
        if any(part.truth is not None for part in self.annotations.parts.values()):
            return "oks-ap"
        judged = [part for part in self.parts if part.name in ("val", "test")] or list(self.parts)
        return "pckh" if all(part.head_boxes == part.people for part in judged) else "pck"

    def mapping(self) -> list[tuple[str, str, str]]:
        """How the joints become those of `target`."""
        return map_joints(self.annotations.skeleton, self.target).rows()

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "format": self.annotations.format,
            "folder": str(self.annotations.folder),
            "files": [str(path) for path in self.annotations.files],
            "passed_over": list(self.annotations.passed_over),
            "joints": list(self.annotations.skeleton.names),
            "metric": self.metric,
            "images_opened": self.opened,
            "parts": {part.name: _part_json(part) for part in self.parts},
            "overlaps": {name: {"pictures": one.pictures, "subjects": one.subjects} for name, one in self.overlaps.items()},
            "problems": self.problems,
            "image_cost": {str(people): round(cost, 3) for people, cost in self.image_cost.items()},
            "mapping": {
                "to": self.target.name,
                "joints": [{"joint": joint, "from": source, "how": how} for joint, source, how in self.mapping()],
            },
        }


def inspect_dataset(
    annotations: Annotations, target: Skeleton, open_images: bool = True, workers: int = 0, progress: Progress | None = None
) -> Inspection:
    """Count what a dataset holds; with `open_images`, try every file it names."""
    people = [person for part in annotations.parts.values() for person in part.people]
    looks = _look_at_images(sorted({person.path for person in people}), workers, progress) if open_images else {}
    sizes = {path: None if look is None else look.size for path, look in looks.items()}
    parts = tuple(_facts(part, annotations.skeleton, sizes if open_images else None) for part in annotations.parts.values())
    learnt = next((part for name in ("private", "train", "all") for part in parts if part.name == name), parts[0])
    cost = image_cost(learnt.people, learnt.most_on_one_image) if open_images else {}
    return Inspection(annotations, parts, target, open_images, cost, _recurring(annotations, looks))


def image_cost(people: int, most_on_one_image: int) -> dict[int, float]:
    """What a promise about crops is worth to images with several people: ε by their number, for a plan such as one would train with.

    The plan has 64 crops in an expected batch, 25 epochs, δ = 1/(10 N), and the noise at which Rényi accounting gives a crop ε = 1; the
    ε returned are those of the tighter accountant. Images with more people than six are not costed: nobody would call it private.
    """
    if most_on_one_image < 2 or people < 8:
        return {}
    batch = min(_PLAN_BATCH, people // 4)
    rate, steps, delta = batch / people, math.ceil(_PLAN_EPOCHS * people / batch), 0.1 / people
    noise = calibrate(1.0, delta, rate, steps, accountant="rdp")
    sizes = range(1, min(most_on_one_image, _MOST_COSTED) + 1)
    return {size: epsilon([SampledGaussian(noise, rate, steps, group_size=size)], delta, grid=_PLAN_GRID) for size in sizes}


def sheet_of_people(annotations: Annotations, count: int = 12, columns: int = 6, size: tuple[int, int] = (256, 192)) -> np.ndarray:
    """A picture of crops with their skeletons, spread over the dataset: wrong joints, boxes and sides show at a glance."""
    everyone = [person for part in annotations.parts.values() for person in part.people]
    spread = np.unique(np.linspace(0, len(everyone) - 1, min(count, len(everyone))).astype(int))
    arrays, _ = crop_people([everyone[i] for i in spread], size, on_bad="skip")
    pictures = [
        draw_skeleton(np.ascontiguousarray(image.transpose(1, 2, 0)), joints, labelled, skeleton=annotations.skeleton)
        for image, joints, labelled in zip(arrays["images"], arrays["joints"], arrays["labelled"], strict=True)
    ]
    columns = max(1, min(columns, len(pictures)))
    blank = np.full((*size, 3), 255, np.uint8)
    pictures += [blank] * (-len(pictures) % columns or (columns if not pictures else 0))
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    return contact_sheet(rows, [""] * len(rows), [""] * columns)


@dataclass(frozen=True)
class _Look:
    """What opening an image told: rows and columns, and its fingerprint."""

    size: tuple[int, ...]
    print: dict[str, np.ndarray]


def _look_at_images(paths: Sequence[Path], workers: int, progress: Progress | None) -> dict[Path, _Look | None]:
    """Every image, opened; None for one that cannot be read."""
    secret = key()

    def look(path: Path) -> _Look | None:
        # Whatever is wrong with a file, it is the file's fault: the others are looked at all the same.
        try:
            image = read_image(path)
            return _Look(image.shape[:2], fingerprint_picture(image, secret))
        except Exception:
            return None

    looks: dict[Path, _Look | None] = {}
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for done, (path, found) in enumerate(zip(paths, pool.map(look, paths), strict=True), start=1):
            looks[path] = found
            if progress and (done % 50 == 0 or done == len(paths)):
                progress(done, len(paths))
    return looks


def _recurring(annotations: Annotations, looks: dict[Path, _Look | None]) -> dict[str, Overlap]:
    """People of one of the dataset's own splits who recur in another: `first / second`, and how many records of the first."""
    prints: dict[str, Fingerprints] = {}
    for name, part in annotations.parts.items():
        people = [person for person in part.people if looks.get(person.path) is not None]
        arrays = empty_prints(len(people))
        for row, person in enumerate(people):
            look = looks[person.path]
            assert look is not None
            fill_prints(arrays, [row], look.print)
        prints[name] = people_prints(arrays, people)
    names = [name for name, rows in prints.items() if len(rows)]
    found: dict[str, Overlap] = {}
    for place, name in enumerate(names):
        for overlap in find_overlaps(prints[name], {other: prints[other] for other in names[place + 1 :]}):
            found[f"{name} / {overlap.part}"] = overlap
    return found


def _problem(person: Person, sizes: dict[Path, tuple[int, ...] | None]) -> LeftOut | None:
    size = sizes[person.path]
    if size is None:
        return LeftOut(person.image, UNREADABLE if person.path.is_file() else MISSING, str(person.path))
    reason = box_problem(person.box, size)
    # Datasets of one person an image number no annotations.
    number = f"annotation {person.annotation_id}, " if person.annotation_id else ""
    return LeftOut(person.image, reason, f"{number}box {[round(value, 1) for value in person.box]}") if reason else None


def _facts(part: Part, skeleton: Skeleton, sizes: dict[Path, tuple[int, ...] | None] | None) -> PartFacts:
    problems = {} if sizes is None else {i: found for i, person in enumerate(part.people) if (found := _problem(person, sizes))}
    good = [person for i, person in enumerate(part.people) if i not in problems]
    on_image = Counter(person.image for person in good)
    histogram = Counter(on_image.get(image, 0) for image in part.images)
    labelled = np.array([person.joints[:, 2] > 0 for person in good]).mean(0) if good else np.zeros(len(skeleton))
    subjects = {person.subject for person in good}
    return PartFacts(
        name=part.name,
        images=len(part.images),
        people=len(good),
        subjects=len(subjects) if good and None not in subjects else None,
        people_per_image=dict(sorted(histogram.items())),
        labelled={name: round(float(share), 4) for name, share in zip(skeleton.names, labelled, strict=True)},
        scenes=dict(sorted(Counter(person.scene for person in good if person.scene).items())),
        left_out=count_reasons(part.left_out),
        bad=tuple(problems.values()),
        head_boxes=sum(person.head_box is not None for person in good),
        odd=tuple(one for one in part.left_out if one.reason not in (CROWD, NO_JOINT)),
        doubts=tuple(doubts_about(part.people, sizes or {})),
    )


def _part_json(part: PartFacts) -> dict[str, Any]:
    return {
        "images": part.images,
        "people": part.people,
        "units": {"crop": part.people, "image": part.images_with_people, "subject": part.subjects},
        "people_per_image": {str(people): count for people, count in part.people_per_image.items()},
        "labelled_share": part.labelled,
        "scenes": part.scenes,
        "left_out": part.left_out | count_reasons(part.bad),
        "bad_files": sorted({one.detail for one in part.bad if one.reason in (MISSING, UNREADABLE)}),
        "odd_annotations": [
            {"image": one.image, "reason": one.reason, "detail": one.detail}
            for one in (*part.odd, *part.bad)
            if one.reason not in (MISSING, UNREADABLE)
        ],
        "doubts": [{"image": one.image, "reason": one.reason, "detail": one.detail} for one in part.doubts],
        "head_boxes": part.head_boxes,
    }
