"""What `halfmask data inspect` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from halfmask.data.inspect import Inspection, PartFacts
from halfmask.data.people import BAD_FILES, count_reasons

_METRICS = {"pckh": "PCKh (head boxes)", "pck": "PCK of torso length", "oks-ap": "OKS-AP, as COCO"}
_NAMED_FILES = 20
# Wider histograms are gathered from here on.
_MANY_PEOPLE = 6


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
    for scene, count in part.scenes.items():
        yield f"{part.name}: {count:,} people of the scene {scene}"


def named(lines: Sequence[str]) -> Iterator[str]:
    """The first few lines that name people's files, for their holder."""
    for line in lines[:_NAMED_FILES]:
        yield f"  {line}"
    if len(lines) > _NAMED_FILES:
        yield f"  … and {len(lines) - _NAMED_FILES:,} more (all of them with --json)"
