"""What a comparison leaves behind: results for programs, charts, pictures, and the report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfmask.data.records import Records
from halfmask.metrics.names import has_headline, headline, shown
from halfmask.report.build import report_page
from halfmask.report.gather import gather
from halfmask.report.overlay import save_png
from halfmask.report.parts import figure_sections, judged_runs, write_figures
from halfmask.report.picture_rows import picture_columns, rows_of_pictures, sheet
from halfmask.report.plots import accuracy_against_epsilon
from halfmask.report.tables import summarise, write_csv
from halfmask.tasks.base import task_named
from halfmask.training.sweep import PlannedRun, measured, optimiser_line, remark
from halfmask.views import make_view


def write_results(
    out: Path,
    recipe: str,
    planned: Sequence[PlannedRun],
    rows: list[dict[str, Any]],
    people: Records,
    overlays: int,
    absent: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write every file of a comparison; returns the content of `results.json`.

    Args:
        planned: the runs that ended as planned.
        absent: the others, by name, and why they are not in the table.
    """
    config = planned[0].config
    summary = summarise(rows, metrics=shown(measured(planned)))
    view = task_named(config.task)(config).view() or make_view(config.view.name, config.view.options)
    results = {
        "recipe": recipe,
        "dataset": config.data.name,
        "optimiser": optimiser_line(config),
        "strategy": config.strategy,
        "epochs": config.epochs,
        "batch": config.batch,
        "view": view.describe(),
        "summary": summary,
        "runs": rows,
        "absent": dict(absent or {}),
        "remark": remark(planned) + _absence(absent or {}),
    }
    write_csv(out / "results.csv", rows)
    (out / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    for metric, name in charts(summary).items():
        accuracy_against_epsilon(summary, out / f"{name}.html", out / f"{name}.png", metric=metric)
    runs = gather([out])
    columns = picture_columns(runs, people, overlays)
    drawn = sheet(columns)
    if drawn is not None:
        save_png(out / "overlays.png", drawn)
    else:
        (out / "overlays.png").unlink(missing_ok=True)
    task = task_named(config.task)(config)
    drawings = figure_sections(write_figures(out, task, judged_runs(runs)))
    page = report_page([out], pictures=rows_of_pictures(columns, task.drawn), drawings=drawings)
    (out / "index.html").write_text(page)
    return results


def _absence(absent: Mapping[str, str]) -> str:
    if not absent:
        return ""
    told = "; ".join(f"{name} ({why})" for name, why in absent.items())
    return f" Not in the table: {told}."


def charts(summary: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which metrics have a chart, and what its files are called: of poses the first number, of other tasks each that was measured."""
    named = _named(summary)
    first = headline(named)[0]
    wanted = [first] if has_headline(named) else shown(named)
    wanted = [name for name in wanted if any(_is_measured(row.get(name)) for row in summary)] or [first]
    slugs = {name: f"accuracy-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}" for name in wanted}
    return slugs | {wanted[0]: "accuracy"}


def _named(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics of summary rows, each once."""
    return list(dict.fromkeys(name for row in summary for name in row if isinstance(row[name], Mapping)))


def _is_measured(value: object) -> bool:
    return isinstance(value, Mapping) and math.isfinite(value["mean"])
