"""What `halfmask data inspect` prints of a folder of pictures of one person each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.table import Table

from halfmask.cli.inspection import named
from halfmask.data.inspect_pictures import PictureInspection, inspect_pictures, sheet_of_pictures
from halfmask.data.inspectors import Looked, Progress
from halfmask.data.picture_folders import read_picture_folder

_SIZES_TOLD = 3


def look_at_pictures(folder: Path, format: str, *, open_images: bool, pictured: int, progress: Progress | None = None) -> Looked:
    """Look at a folder of pictures, in any of their formats."""
    pictures = read_picture_folder(folder, format)
    found = inspect_pictures(pictures, open_images, progress=progress)
    problems = len(found.bad) + found.recurring
    return Looked(found.to_json(), list(tables(found)), sheet_of_pictures(pictures, pictured) if pictured else None, problems)


def tables(found: PictureInspection) -> Iterator[Table | str]:
    """Lines and tables, in the order they are shown."""
    pictures = found.pictures
    told = "joints of their own" if found.labelled else "no joints: a pose network finds them (data.poses)"
    yield f"{pictures.folder}: format {pictures.format}, pictures of one person each, {told}"
    yield counts_table(found)
    for reason, count in pictures.left_out.items():
        yield f"left out: {count:,} × {reason}"
    if found.bad:
        yield f"{len(found.bad):,} × {found.bad[0].reason}"
    yield from named(sorted(one.detail for one in found.bad))
    if found.recurring:
        yield f"{found.recurring:,} pictures recur under another subject: they cannot be private in one part and public in another"
    if not found.opened:
        yield "images were not opened: damaged files would not show"
    if found.sizes:
        sizes = [f"{height}×{width} ({count:,})" for (height, width), count in found.sizes.items()]
        more = f" and {len(sizes) - _SIZES_TOLD:,} other sizes" if len(sizes) > _SIZES_TOLD else ""
        yield f"height × width: {', '.join(sizes[:_SIZES_TOLD])}{more}"
    if found.actions:
        yield _shares("Actions", "pictures", {action: f"{count:,}" for action, count in found.actions.items()})
    if found.labelled:
        yield _shares("Joints", "annotated", {joint: f"{100 * share:.1f} %" for joint, share in found.labelled.items()})
    if len(found.image_cost) > 1:
        worth = ", ".join(f"{count} pictures {cost:.2g}" for count, cost in found.image_cost.items() if count > 1)
        most = found.subjects[-1]
        more = f", and with {most:,} no number worth the name" if most > max(found.image_cost) else ""
        yield (
            f"a promise about pictures is weaker for a subject: where one picture's ε is {found.image_cost[1]:.2g}, that of a subject is, "
            f"with {worth}{more}. To promise it to subjects, train with --unit subject"
        )


def counts_table(found: PictureInspection) -> Table:
    """Units of each kind, and how many pictures a subject has."""
    table = Table(title="What is there", title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    spread = (found.subjects[0], float(np.median(found.subjects)), found.subjects[-1])
    table.add_row("pictures, units 'image'", f"{sum(found.subjects) - len(found.bad):,}")
    table.add_row("people, units 'subject'", f"{len(found.subjects):,}")
    table.add_row("pictures of a person: fewest / median / most", " / ".join(f"{value:,.4g}" for value in spread))
    table.add_row("people with one picture, whom no attack can name", f"{found.single:,}")
    return table


def _shares(title: str, heading: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column(heading, justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    return table
