"""Test records as rows of pictures: raw, what is public of them, the truth, and what each method makes of them at each ε.

They are test records, to whom no promise was made, and shown because whoever compares models wants to see what a number means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from halfmask.data.records import Records
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.report.gather import DONE, ReportRun
from halfmask.report.markup import image, text
from halfmask.report.overlay import contact_sheet
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import build_config
from halfmask.training.runs import open_run
from halfmask.views import make_view

# The longer side of a picture on the page, and how many models are asked at most: of more, those of the largest ε of each method.
_SIDE, _MOST = 256, 24
_QUALITY = 82
CHOSEN = "the first seed, strategy, view and clip norm of each method at each ε, chosen before looking at any score"


@dataclass(frozen=True)
class Column:
    """What stands in one column: a picture of each record.

    Attributes:
        first: of its method, the run with the largest ε; or no run at all: what a narrow sheet shows.
    """

    title: str
    pictures: list[np.ndarray]
    first: bool = True


def picture_columns(runs: Sequence[ReportRun], people: Records, count: int) -> list[Column]:
    """Columns for the first runs of each method and ε; none for a task that draws nothing."""
    chosen = representatives(runs)
    if not chosen or not count:
        return []
    # Spread over the test set: neighbours in it are often on the same picture.
    shown = people.take(np.unique(np.linspace(0, len(people) - 1, min(count, len(people))).astype(int)))
    config = build_config(dict(chosen[0].config), {})
    task = task_named(config.task)(config)
    truth = task.pictures(None, shown)
    if truth is None:
        return []
    raw, public = _raw(shown, truth), public_pictures(task, shown, truth)
    columns = [Column("raw", raw, first=False)] if raw is not None else []
    named = next((run.view for run in chosen if run.view), config.view.name)
    columns += [Column(f"public view ({named})", public)] if public is not None else []
    columns.append(Column("truth", truth))
    largest = {run.method: max((one.epsilon or 0.0) for one in chosen if one.method == run.method) for run in chosen}
    for run in chosen:
        trained = open_run(run.folder)
        drawn = trained.task.pictures(trained.model, shown, trained.device)
        title = run.method if run.epsilon is None else f"{run.method} ε={run.epsilon:g}"
        if drawn is not None:
            columns.append(Column(title, drawn, first=(run.epsilon or 0.0) == largest[run.method]))
    return columns


def representatives(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """The run that stands for each method at each ε: by what was asked for and not by score, so that none is shown at its luckiest."""
    chosen: dict[tuple[str, float | None], ReportRun] = {}
    # Runs of one task alone can be asked about the same records.
    for run in (one for one in runs if one.state == DONE and one.group == runs[0].group and (one.folder / "model.safetensors").is_file()):
        chosen.setdefault((run.method, run.epsilon), run)
    found = list(chosen.values())
    if len(found) > _MOST:
        largest = {run.method: run for run in sorted(found, key=lambda run: run.epsilon or 0.0)}
        found = [run for run in found if largest[run.method] is run][:_MOST]
    return found


def sheet(columns: Sequence[Column]) -> np.ndarray | None:
    """The narrow sheet beside a comparison: truth, what is public, and each method at its largest ε."""
    kept = [column for column in columns if column.first]
    if not kept:
        return None
    kept.sort(key=lambda column: column.title != "truth")
    rows = [list(row) for row in zip(*(column.pictures for column in kept), strict=True)]
    return contact_sheet(rows, [""] * len(rows), [column.title for column in kept])


def rows_of_pictures(columns: Sequence[Column], drawn: str = "") -> str:
    """A row for each record, which is folded into lines where a page is narrow.

    Args:
        drawn: what the pictures show, in a task's words.
    """
    if not columns:
        return ""
    rows = []
    for number in range(len(columns[0].pictures)):
        cells = (
            f"<figure>{image(_packed(column.pictures[number]), f'{column.title}, record {number + 1}', 'webp')}"
            f"<figcaption>{text(column.title)}</figcaption></figure>"
            for column in columns
        )
        height, width = columns[-1].pictures[number].shape[:2]
        rows.append(f'<div class="people{" wide" if width > height else ""}">{"".join(cells)}</div>')
    words = f"{drawn}. " if drawn else ""
    note = f"{words}Test records, to whom no promise was made. Shown: {CHOSEN}."
    return "\n".join([*rows, f'<p class="small">{text(note)}</p>'])


def public_pictures(task: Task, shown: Records, truth: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """What is public of each record; None where that is no picture, or where records lack what the view reads (clips without masks)."""
    config = task.config.view
    view = task.view() or make_view(config.name, config.options)
    known = {name for table in (shown.private, shown.targets, shown.truth) for name in table.shapes()}
    if not known.issuperset(view.reads):
        return None
    seen = with_view(shown, view).public
    if seen is None:
        return None
    if "image" not in seen.shapes():
        # What is public in the place of what is private, drawn as the truth is.
        return task.pictures(None, replace(shown, private=seen)) if seen.shapes().keys() == shown.private.shapes().keys() else None
    return _as_pictures(seen.rows(np.arange(len(shown)))["image"], truth)


def _raw(shown: Records, truth: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Records as they are; None where they are no pictures, or where the truth is nothing but the picture."""
    if "image" not in shown.private.shapes():
        return None
    raw = _as_pictures(shown.private.rows(np.arange(len(shown)))["image"], truth)
    return None if all(np.array_equal(one, other) for one, other in zip(raw, truth, strict=True)) else raw


def _as_pictures(images: np.ndarray, beside: Sequence[np.ndarray]) -> list[np.ndarray]:
    """As large as the pictures beside them, which a task may enlarge."""
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8:
        raise HalfmaskError(f"pictures of records have shape {images.shape} and type {images.dtype}: expected N×3×H×W of uint8")
    found = []
    for pixels, other in zip(images, beside, strict=True):
        picture = np.ascontiguousarray(pixels.transpose(1, 2, 0))
        same = picture.shape == other.shape
        found.append(picture if same else cv2.resize(picture, (other.shape[1], other.shape[0]), interpolation=cv2.INTER_CUBIC))
    return found


def _packed(picture: np.ndarray) -> bytes:
    height, width = picture.shape[:2]
    shrink = min(1.0, _SIDE / max(height, width))
    if shrink < 1:
        picture = cv2.resize(picture, (max(1, round(width * shrink)), max(1, round(height * shrink))), interpolation=cv2.INTER_AREA)
    return bytes(cv2.imencode(".webp", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_WEBP_QUALITY, _QUALITY])[1])
