"""What `halfmask data inspect` prints of a folder of faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.table import Table

from halfmask.cli.inspection import named
from halfmask.data.face_sets import read_faces
from halfmask.data.face_sheet import sheet_of_faces
from halfmask.data.inspect_faces import FaceInspection, FacePart, inspect_faces, spread
from halfmask.data.inspectors import Looked, Progress
from halfmask.data.people import count_reasons
from halfmask.data.regions import LEAST_SIDE


def look_at_faces(folder: Path, format: str, *, open_images: bool, pictured: int, progress: Progress | None = None) -> Looked:
    """Look at a folder of faces, in any of their formats."""
    faces = read_faces(folder, format)
    found = inspect_faces(faces, open_images, progress=progress)
    problems = sum(len(part.bad) + len(part.odd) for part in found.parts) + len(found.overlaps)
    return Looked(found.to_json(), list(tables(found)), sheet_of_faces(faces, pictured) if pictured else None, problems)


def tables(found: FaceInspection) -> Iterator[Table | str]:
    """Lines and tables, in the order they are shown."""
    faces = found.faces
    attribute = f"binary attribute '{faces.attribute}' (learnt with data.attribute=true)" if faces.attribute else "no binary attribute"
    yield f"{faces.folder}: format {faces.format}, {len(faces.layout)} landmarks of the layout {faces.layout.name}, {attribute}"
    yield counts_table(found)
    for part in found.parts:
        for reason, count in count_reasons((*part.bad, *part.odd)).items():
            yield f"{part.name}: {count:,} × {reason}"
        yield from named(sorted({f"{one.detail}: {one.reason}" for one in part.bad}))
        yield from named([f"{one.image}, {one.detail}: {one.reason}" for one in part.odd])
    for pair, overlap in found.overlaps.items():
        first, _, second = pair.partition(" / ")
        yield (
            f"{overlap.pictures:,} photographs of '{first}' are in '{second}' too, {overlap.subjects:,} show its subjects: they cannot be "
            "private in one and public or test in the other"
        )
    if not found.opened:
        yield "images were not opened: missing or damaged files would not show, and regions were not looked for"
    yield faces_table(found)
    yield unit_table(found)
    yield from _regions(found)
    yield from _costs(found)


def counts_table(found: FaceInspection) -> Table:
    """Photographs, faces and subjects of each split."""
    table = Table(title="What is there", title_justify="left")
    for heading in ("Split", "Photographs", "With faces", "Faces", "Subjects", "Left out"):
        table.add_column(heading, justify="left" if heading == "Split" else "right")
    for part in found.parts:
        subjects = "not told" if part.subjects is None else f"{len(part.subjects):,}"
        counts = (f"{count:,}" for count in (part.photographs, part.with_faces, part.faces))
        table.add_row(part.name, *counts, subjects, f"{len(part.bad) + len(part.odd):,}")
    return table


def faces_table(found: FaceInspection) -> Table:
    """What is known of the faces, and how large they are."""
    attribute = found.faces.attribute
    rows: list[tuple[str, Callable[[FacePart], str]]] = [
        ("landmarks annotated", lambda part: f"{100 * part.annotated:.1f} %"),
        ("landmarks visible", lambda part: f"{100 * part.visible:.1f} %"),
        ("faces without a landmark", lambda part: f"{part.blank:,}"),
        ("faces with a head pose", lambda part: f"{part.posed:,}"),
    ]
    if attribute:
        rows.append((f"{attribute} 0 / 1 / not known", _balance))
    rows += [
        ("pixels across: smallest / median / largest", lambda part: "–" if part.sides is None else _listed(part.sides)),
        (f"smaller than {LEAST_SIDE} pixels", lambda part: f"{part.small:,}"),
    ]
    table = Table(title="Faces", title_justify="left")
    table.add_column("")
    for part in found.parts:
        table.add_column(part.name, justify="right")
    for label, cell in rows:
        table.add_row(label, *(cell(part) for part in found.parts))
    return table


def unit_table(found: FaceInspection) -> Table:
    """How many units there would be of each kind, and how many photographs a subject has."""
    table = Table(title="Whom a unit protects", title_justify="left")
    table.add_column("")
    for part in found.parts:
        table.add_column(part.name, justify="right")
    parts = found.parts
    table.add_row("units 'region'", *(_region_count(found, part) for part in parts))
    table.add_row("units 'image'", *(f"{part.opened:,}" for part in parts))
    table.add_row("units 'subject'", *("not told" if part.subjects is None else f"{len(part.subjects):,}" for part in parts))
    if any(part.subjects for part in parts):
        table.add_section()
        cells = ("–" if not part.subjects else _listed(spread(part.subjects)) for part in parts)
        table.add_row("photographs of a subject: fewest / median / most", *cells)
    return table


def _region_count(found: FaceInspection, part: FacePart) -> str:
    if found.regions is None:
        return f"up to {(found.settings.positives + found.settings.negatives) * part.opened:,}"
    return f"about {round(sum(found.regions.mean) * part.opened):,}"


def _balance(part: FacePart) -> str:
    return " / ".join(f"{count:,}" for count in (*part.attributes, part.faces - sum(part.attributes)))


def _listed(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:,.4g}" for value in values)


def _regions(found: FaceInspection) -> Iterator[str]:
    regions, settings = found.regions, found.settings
    if regions is None or not regions.looked_at:
        return
    showing, empty = regions.mean
    total = sum(part.opened for part in found.parts)
    yield (
        f"regions of {regions.looked_at:,} of {total:,} photographs: {showing:.1f} of a photograph show a face (at most "
        f"{settings.positives}, data.positives) and {empty:.1f} show none (at most {settings.negatives}, data.negatives)"
    )
    if regions.showing.get(0):
        yield f"  {regions.showing[0]:,} of these photographs have no region with a face"
    for reason, count in regions.left_out.items():
        yield f"  {count:,} × {reason}"


def _costs(found: FaceInspection) -> Iterator[str]:
    """What a promise about the smaller is worth to the larger that it is part of."""
    if len(found.region_cost) > 1:
        most = max(found.region_cost)
        more = f" ({found.regions.most:,} at most here)" if found.regions is not None and found.regions.most > most else ""
        yield (
            f"a promise about regions is weaker for a photograph, all of whose regions may show one face: where one region's ε is "
            f"{found.region_cost[1]:.2g}, that of a photograph with {most} regions is {found.region_cost[most]:.2g}{more}. To promise it "
            "to photographs, train with --unit image"
        )
    if len(found.image_cost) > 1:
        worth = ", ".join(f"{count} photographs {cost:.2g}" for count, cost in found.image_cost.items() if count > 1)
        most = max(max(part.subjects or (0,)) for part in found.parts)
        more = f", and with {most:,} no number worth the name" if most > max(found.image_cost) else ""
        yield (
            f"a promise about photographs is weaker for a subject: where one photograph's ε is {found.image_cost[1]:.2g}, that of a "
            f"subject is, with {worth}{more}. To promise it to subjects, train with --unit subject"
        )
    if found.opened and any(part.subjects is None for part in found.parts):
        yield "nobody says who is who: people on several photographs can be promised nothing as people (--unit subject needs ids)"
