"""What `halfmask data inspect` prints of a dataset of clips."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from halfmask.cli.inspection import named
from halfmask.data.clip_sets import ClipDataConfig, masks_of, read_clips
from halfmask.data.inspect_clips import ClipInspection, ClipPart, Protection, inspect_clips, sheet_of_clips, spread_of
from halfmask.data.inspectors import Looked, Progress
from halfmask.data.people import count_reasons

# Classes of a hundred and more would be all that is seen: the table then tells of the first and the last, by their counts.
_MOST_CLASSES = 24


def look_at_clips(
    folder: Path,
    format: str,
    *,
    open_images: bool,
    pictured: int,
    progress: Progress | None = None,
    masks: str | None = None,
    masks_path: str | None = None,
    protect: str | None = None,
) -> Looked:
    """Look at a dataset of clips, in any of their formats.

    Args:
        masks, masks_path, protect: as in a recipe (`data.masks` …), so that what is tinted is what training would protect.
    """
    clips = read_clips(folder, format)
    config = ClipDataConfig(name=str(folder), masks=masks or "own", masks_path=masks_path, protect=protect or "background")
    source = masks_of(config, clips.masks, folder)
    # Films' own masks tell by themselves whether they are of the person or of what is protected.
    protection = Protection(protect if config.masks == "own" else config.protect, source, config.margin)
    found = inspect_clips(clips, folder, format, open_images, protection, progress=progress)
    problems = sum(len(part.bad) + len(part.odd) for part in found.parts) + sum(found.torn.values())
    return Looked(found.to_json(), list(tables(found)), sheet_of_clips(clips, pictured, protection) if pictured else None, problems)


def tables(found: ClipInspection) -> Iterator[Table | str]:
    """Lines and tables, in the order they are shown."""
    clips = found.clips
    yield f"{found.folder}: format {found.format}, {len(clips.takes):,} clips of {len(clips.classes)} classes"
    yield counts_table(found)
    if found.unused:
        yield f"{found.unused:,} clips are in none of the dataset's own splits"
    if not clips.splits:
        yield "it has no splits of its own: say what is private and what is the test with data.splits"
    for part in found.parts:
        yield from _problems(part)
    for unit, count in found.torn.items():
        yield f"{count:,} {unit}s have clips in several splits: they cannot be private in one and public or test in another"
    if not found.opened:
        yield "videos were not opened: missing or damaged files, their lengths and their masks would not show"
    yield classes_table(found)
    yield unit_table(found)
    if found.opened:
        yield films_table(found)
        yield from _masks(found)
    yield from _costs(found)


def counts_table(found: ClipInspection) -> Table:
    """Clips, videos and subjects of each split."""
    table = Table(title="What is there", title_justify="left")
    for heading in ("Split", "Clips", "Classes", "Videos", "Subjects", "Left out"):
        table.add_column(heading, justify="left" if heading == "Split" else "right")
    for part in found.parts:
        classes = f"{len(part.classes) - len(part.missing)} of {len(part.classes)}"
        table.add_row(part.name, f"{part.clips:,}", classes, f"{len(part.videos):,}", _subjects(part), f"{len(part.bad):,}")
    return table


def classes_table(found: ClipInspection) -> Table:
    """How many clips there are of each class."""
    table = Table(title="Clips of each class", title_justify="left")
    table.add_column("Class")
    for part in found.parts:
        table.add_column(part.name, justify="right")
    classes = found.clips.classes
    if len(classes) > _MOST_CLASSES:
        total = {label: sum(part.classes[label] for part in found.parts) for label in classes}
        ranked = sorted(classes, key=lambda label: -total[label])
        half = _MOST_CLASSES // 2
        shown: tuple[str, ...] = (*ranked[:half], "…", *ranked[-half:])
    else:
        shown = classes
    for label in shown:
        table.add_row(label, *("…" if label not in part.classes else f"{part.classes[label]:,}" for part in found.parts))
    return table


def unit_table(found: ClipInspection) -> Table:
    """How many units there would be of each kind, and how many clips they have."""
    table = Table(title="Whom a unit protects", title_justify="left")
    table.add_column("")
    for part in found.parts:
        table.add_column(part.name, justify="right")
    table.add_row("units 'clip'", *(f"{part.opened:,}" for part in found.parts))
    table.add_row("units 'video'", *(f"{len(part.videos):,}" for part in found.parts))
    table.add_row("units 'subject'", *(_subjects(part) for part in found.parts))
    table.add_section()
    table.add_row("clips of a video: fewest / median / most", *(_listed(spread_of(part.videos)) for part in found.parts))
    if any(part.subjects for part in found.parts):
        table.add_row("clips of a subject: fewest / median / most", *(_listed(spread_of(part.subjects or ())) for part in found.parts))
    return table


def films_table(found: ClipInspection) -> Table:
    """How long and how large clips are."""
    table = Table(title="Films: fewest / median / most", title_justify="left")
    table.add_column("")
    for part in found.parts:
        table.add_column(part.name, justify="right")
    table.add_row("frames", *(_listed(part.frames) for part in found.parts))
    table.add_row("rows", *(_listed(part.rows) for part in found.parts))
    table.add_row("columns", *(_listed(part.columns) for part in found.parts))
    for length in sorted({length for part in found.parts for length in part.short}):
        table.add_row(f"clips of fewer than {length} frames", *(f"{part.short.get(length, 0):,}" for part in found.parts))
    return table


def _problems(part: ClipPart) -> Iterator[str]:
    for reason, count in count_reasons((*part.bad, *part.odd)).items():
        yield f"{part.name}: {count:,} × {reason}"
    yield from named([f"{one.image}: {one.reason}" for one in (*part.bad, *part.odd)])
    if part.missing:
        more = " …" if len(part.missing) > 8 else ""
        yield f"{part.name}: no clip of {len(part.missing)} of {len(part.classes)} classes: {', '.join(part.missing[:8])}{more}"


def _masks(found: ClipInspection) -> Iterator[str]:
    if not any(part.masked for part in found.parts):
        yield "no clip has a mask that tells what is protected: methods that need one want it from elsewhere (data.masks, and --masks here)"
        return
    if found.masks:
        yield f"masks: {found.masks}"
    for part in found.parts:
        without = part.opened - part.masked
        told = f"; {without:,} have no mask that fits" if without else ""
        if part.hidden is not None:
            yield f"{part.name}: {part.masked:,} clips have masks, {100 * part.hidden:.1f} % of their pixels are protected{told}"


def _costs(found: ClipInspection) -> Iterator[str]:
    """What a promise about clips is worth to the larger that they are part of."""
    for unit, costs in (("video", found.video_cost), ("subject", found.subject_cost)):
        if len(costs) > 1:
            worth = ", ".join(f"{count} clips {cost:.2g}" for count, cost in costs.items() if count > 1)
            most = max(max((part.videos if unit == "video" else part.subjects) or (0,)) for part in found.parts)
            more = f", and with {most:,} no number worth the name" if most > max(costs) else ""
            yield (
                f"a promise about clips is weaker for a {unit}: where one clip's ε is {costs[1]:.2g}, that of a {unit} is, with "
                f"{worth}{more}. To promise it to {unit}s, train with --unit {unit}"
            )
    if any(part.subjects is None for part in found.parts):
        yield "nobody says who is who: people in several videos can be promised nothing as people (--unit subject needs ids)"


def _subjects(part: ClipPart) -> str:
    return "not told" if part.subjects is None else f"{len(part.subjects):,}"


def _listed(values: tuple[int, float, int] | None) -> str:
    return "–" if values is None else " / ".join(f"{value:,.4g}" for value in values)
