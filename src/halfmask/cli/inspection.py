"""What `halfmask data inspect` prints."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from halfmask.data.files import BadAnnotations, Complaints
from halfmask.data.folder import folder_body, read_sound
from halfmask.data.folder_checks import FIELDS, unknown_fields
from halfmask.data.formats import read_annotations
from halfmask.data.inspect import Inspection, PartFacts, inspect_dataset, sheet_of_people
from halfmask.data.inspectors import Looked
from halfmask.data.people import BAD_FILES, Annotations, count_reasons
from halfmask.data.schema import schema_problems
from halfmask.data.skeleton import Skeleton

_METRICS = {"pckh": "PCKh (head boxes)", "pck": "PCK of torso length", "oks-ap": "OKS-AP, as COCO"}
_NAMED_FILES = 20
# Wider histograms are gathered from here on.
_MANY_PEOPLE = 6


def look_at_people(
    folder: Path,
    format: str | None,
    target: Skeleton,
    annotations: tuple[str, ...] = (),
    *,
    open_images: bool,
    pictured: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Looked, BadAnnotations | None]:
    """Look at a dataset of people with joints.

    Returns:
        What is told, and, where records of one's own folder cannot be used, the error to end with: the others are looked at all the
        same, so that everything can be mended at once.
    """
    if format != "folder" or annotations:
        found = read_annotations(folder, format, annotations)
        result = inspect_dataset(found, target, open_images, progress=progress)
        return Looked(result.to_json(), list(tables(result)), _pictured(found, pictured), result.problems), None
    body = folder_body(folder)
    sound, complaints = read_sound(folder, body)
    refused = _refusal(complaints, body)
    notes, misspelt = _notes(unknown_fields(body["records"]))
    seen = Looked({}, [])
    if sound.parts:
        result = inspect_dataset(sound, target, open_images, progress=progress)
        seen = Looked(result.to_json(), list(tables(result)), _pictured(sound, pictured), result.problems + misspelt)
    told = {} if refused is None else {"problem": str(refused), "details": list(refused.details)}
    lines = [] if refused is None else list(named(refused.details))
    return Looked(told | seen.body | {"notes": notes}, [*lines, *notes, *seen.lines], seen.sheet, seen.problems), refused


def _pictured(found: Annotations, people: int) -> np.ndarray | None:
    return sheet_of_people(found, people) if people else None


def _refusal(complaints: Complaints, body: dict[str, Any]) -> BadAnnotations | None:
    """What a reader would say, with the places that the schema names beside the words of our own checks."""
    by_schema = [
        (-1 if number is None else number, f"annotations.json{'' if number is None else f', record {number}'}, by the schema: {text}")
        for number, text in schema_problems(body)
    ]
    try:
        complaints.raise_if_any(len(body["records"]))
    except BadAnnotations as refused:
        # Sorting keeps the order of what is about one record.
        lines = sorted([*complaints.details, *by_schema], key=lambda one: one[0])
        return BadAnnotations(str(refused), [text for _, text in lines])
    if by_schema:
        return BadAnnotations("annotations.json is not as its schema says: see docs/schema.md", [text for _, text in by_schema])
    return None


def _notes(unknown: dict[str, int]) -> tuple[list[str], int]:
    """Fields without a meaning, and how many of them look like a misspelt one that has."""
    notes, misspelt = [], 0
    for name, count in unknown.items():
        near = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.7)
        misspelt += bool(near)
        notes.append(f"{count:,} records have a field '{name}', which is not read{f': is it {near[0]!r}?' if near else ''}")
    return notes, misspelt


def tables(inspection: Inspection) -> Iterator[Table | str]:
    """Lines and tables, in the order they are shown."""
    annotations = inspection.annotations
    yield f"{annotations.folder}: format {annotations.format}, scored by {_METRICS[inspection.metric]}"
    yield f"read: {', '.join(path.name for path in annotations.files)}"
    for reason in annotations.passed_over:
        yield f"passed over: {reason}"
    yield counts_table(inspection)
    for part in inspection.parts:
        yield from _problems(part)
    for pair, overlap in inspection.overlaps.items():
        first, _, second = pair.partition(" / ")
        yield (
            f"{overlap.pictures:,} records of '{first}' are on photographs that '{second}' has too, {overlap.subjects:,} are of "
            f"its subjects: "
            "they cannot be private in one and public or test in the other"
        )
    if not inspection.opened:
        yield "images were not opened: missing or damaged files would not show"
    yield unit_table(inspection)
    if inspection.image_cost:
        worth = ", ".join(f"{people} people {cost:.2g}" for people, cost in inspection.image_cost.items() if people > 1)
        yield (
            f"a promise about crops is weaker for images with several people: where one crop's ε is {inspection.image_cost[1]:.2g}, "
            f"that of an image is, with {worth}. To promise it to images, train with --set unit=image"
        )
    yield joints_table(inspection)


def counts_table(inspection: Inspection) -> Table:
    """Images and people of each split."""
    table = Table(title="What is there", title_justify="left")
    for heading in ("Split", "Images", "With people", "People", "Left out"):
        table.add_column(heading, justify="left" if heading == "Split" else "right")
    for part in inspection.parts:
        gone = sum(part.left_out.values()) + len(part.bad)
        table.add_row(part.name, f"{part.images:,}", f"{part.images_with_people:,}", f"{part.people:,}", f"{gone:,}")
    return table


def unit_table(inspection: Inspection) -> Table:
    """How many units there would be of each kind, and how many people share an image."""
    table = Table(title="Whom a unit protects", title_justify="left")
    table.add_column("")
    for part in inspection.parts:
        table.add_column(part.name, justify="right")
    parts = inspection.parts
    table.add_row("units 'crop'", *(f"{part.people:,}" for part in parts))
    table.add_row("units 'image'", *(f"{part.images_with_people:,}" for part in parts))
    table.add_row("units 'subject'", *("not told" if part.subjects is None else f"{part.subjects:,}" for part in parts))
    table.add_section()
    for people in range(1, min(_MANY_PEOPLE, max((part.most_on_one_image for part in parts), default=0)) + 1):
        last = people == _MANY_PEOPLE
        label = f"images with {people}{' or more' if last else ''} {'person' if people == 1 else 'people'}"
        table.add_row(label, *(_bar(part, people, last) for part in parts))
    table.add_row("most people on an image", *(f"{part.most_on_one_image:,}" for part in parts))
    return table


def joints_table(inspection: Inspection) -> Table:
    """How often each joint is labelled, and which joint of the other skeleton it is."""
    own, target = inspection.annotations.skeleton, inspection.target
    table = Table(title=f"Joints, and how they become those of {target.name}", title_justify="left")
    table.add_column(f"Joint of {target.name}")
    table.add_column("From")
    table.add_column("How")
    for part in inspection.parts:
        table.add_column(f"Labelled, {part.name}", justify="right")
    used = set()
    for joint, source, how in inspection.mapping():
        used.add(source)
        shares = [f"{100 * part.labelled[source]:.0f} %" if source in part.labelled else "" for part in inspection.parts]
        table.add_row(joint, source, how, *shares)
    rest = [name for name in own.names if name not in used]
    if rest:
        table.add_section()
    for name in rest:
        table.add_row("–", name, "unused", *(f"{100 * part.labelled[name]:.0f} %" for part in inspection.parts))
    return table


def _bar(part: PartFacts, people: int, and_more: bool) -> str:
    counts = part.people_per_image
    count = sum(images for found, images in counts.items() if found == people or (and_more and found > people))
    share = count / max(1, part.images_with_people)
    return f"{'▇' * round(10 * share)} {count:,}"


def _problems(part: PartFacts) -> Iterator[str]:
    for reason, count in (part.left_out | count_reasons(part.bad)).items():
        yield f"{part.name}: {count:,} × {reason}"
    files = sorted({f"{one.detail}: {one.reason}" for one in part.bad if one.reason in BAD_FILES})
    boxes = [f"{one.image}, {one.detail}: {one.reason}" for one in (*part.odd, *part.bad) if one.reason not in BAD_FILES]
    yield from named(files)
    yield from named(boxes)
    for reason, count in count_reasons(part.doubts).items():
        yield f"{part.name}: {count:,} × {reason} (kept: look at it)"
    yield from named([f"{one.image}, {one.detail}: {one.reason}" for one in part.doubts])
    for scene, count in part.scenes.items():
        yield f"{part.name}: {count:,} people of the scene {scene}"


def named(lines: Sequence[str]) -> Iterator[str]:
    """The first few lines that name people's files, for their holder."""
    for line in lines[:_NAMED_FILES]:
        yield f"  {line}"
    if len(lines) > _NAMED_FILES:
        yield f"  … and {len(lines) - _NAMED_FILES:,} more (all of them with --json)"
