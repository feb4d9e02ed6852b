"""What a comparison leaves behind: results for programs, a chart, pictures, and a page that stands alone."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.data.records import Records
from halfmask.data.viewing import with_view
from halfmask.metrics.names import about, has_headline, headline, is_percentage, printed, shown
from halfmask.privacy.certificate import promise_in
from halfmask.report.audits import audit_sections
from halfmask.report.overlay import contact_sheet, save_png
from halfmask.report.parts import embedded, judged_runs, parts_sections, write_figures
from halfmask.report.plots import accuracy_against_epsilon
from halfmask.report.style import STYLE
from halfmask.report.tables import format_cell, heading, summarise, write_csv
from halfmask.tasks.base import Task, task_named
from halfmask.training.runs import open_run
from halfmask.training.sweep import PlannedRun, measured, optimiser_line, pictured, read_certificate, remark
from halfmask.views import make_view
from halfmask.words import a_or_an

_COLUMNS = ("method", "epsilon", "clip_norm", "seeds")
_PICTURED = "first seed, largest ε and first clip norm of each method, chosen before looking at any score"


def write_results(
    out: Path,
    recipe: str,
    planned: Sequence[PlannedRun],
    rows: list[dict[str, Any]],
    people: Records,
    overlays: int,
) -> dict[str, Any]:
    """Write every file of a comparison; returns the content of `results.json`."""
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
        "remark": remark(planned),
    }
    write_csv(out / "results.csv", rows)
    (out / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    for metric, name in charts(summary).items():
        accuracy_against_epsilon(summary, out / f"{name}.html", out / f"{name}.png", metric=metric)
    sheet = overlay_sheet(pictured(planned), people, overlays) if overlays else None
    if sheet is not None:
        save_png(out / "overlays.png", sheet)
    else:
        (out / "overlays.png").unlink(missing_ok=True)
    judged = judged_runs(planned)
    task = task_named(config.task)(config)
    more = parts_sections(judged, task.parted, write_figures(out, task, judged))
    (out / "index.html").write_text(page(out, results, pictured(planned), more))
    return results


def charts(summary: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which metrics have a chart, and what its files are called: of poses the first number, of other tasks each that was measured."""
    named = _named(summary)
    first = headline(named)[0]
    wanted = [first] if has_headline(named) else shown(named)
    wanted = [name for name in wanted if any(_is_measured(row.get(name)) for row in summary)] or [first]
    slugs = {name: f"accuracy-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}" for name in wanted}
    return slugs | {wanted[0]: "accuracy"}


def _as_large(image: np.ndarray, beside: np.ndarray) -> np.ndarray:
    if image.shape == beside.shape:
        return image
    return cv2.resize(image, (beside.shape[1], beside.shape[0]), interpolation=cv2.INTER_CUBIC)


def overlay_sheet(runs: Sequence[PlannedRun], people: Records, count: int) -> np.ndarray | None:
    """Test people as rows; the truth, what is public of them, and each method's answer as columns. None for a task that draws nothing."""
    # Spread over the test set: neighbours in it are often on the same picture.
    shown = people.take(np.unique(np.linspace(0, len(people) - 1, min(count, len(people))).astype(int)))
    config = runs[0].config
    task = task_named(config.task)(config)
    truth = task.pictures(None, shown)
    if truth is None:
        return None
    titles, columns = ["truth"], [truth]
    public = _public_pictures(task, shown, truth)
    if public is not None:
        titles.append(f"public view ({config.view.name})")
        columns.append(public)
    for run in runs:
        trained = open_run(run.folder)
        columns.append(trained.task.pictures(trained.model, shown, trained.device) or truth)
        epsilon = run.combination.epsilon
        titles.append(run.combination.method if epsilon is None else f"{run.combination.method} ε={epsilon:g}")
    rows = [list(row) for row in zip(*columns, strict=True)]
    return contact_sheet(rows, [""] * len(rows), titles)


def _public_pictures(task: Task, shown: Records, truth: Sequence[np.ndarray]) -> list[np.ndarray] | None:
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
    pixels = [_pixels(image) for image in seen.rows(np.arange(len(shown)))["image"]]
    # As large as the pictures beside them, which a task may enlarge.
    return [_as_large(image, beside) for image, beside in zip(pixels, truth, strict=True)]


def page(out: Path, results: Mapping[str, Any], runs: Sequence[PlannedRun], more: Sequence[str] = ()) -> str:
    """The readable page. Pictures are inside it, so it can be sent as one file.

    Args:
        more: what a task has to show besides, from `parts_sections`.
    """
    say = html.escape
    named = _named(results["summary"])
    percent = " are percentages" if all(map(is_percentage, named)) else ""
    facts = (
        f"Optimiser: {results['optimiser']}. Strategy {results['strategy']}, {results['epochs']:g} epochs, "
        f"expected batch {results['batch']}. Public view ψ: {results['view']}. Scores{percent} "
        "on the test split, mean ± sample standard deviation over seeds."
    )
    if any(not about(name).higher_is_better for name in named):
        facts += " ↓: the lower, the better."
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{say(results['recipe'])}: methods compared</title><style>{STYLE}</style></head><body>",
        f"<h1>Methods compared on {say(results['dataset'])}</h1>",
        f"<p>Recipe <code>{say(results['recipe'])}</code>. {say(facts)}</p>",
        _table(results["summary"]),
        f'<p class="remark">{say(results["remark"])}</p>',
        f"<h2>{'Accuracy' if percent else 'Scores'} against privacy loss</h2>",
        *_charts(out, results["summary"]),
        *more,
    ]
    if (out / "overlays.png").is_file():
        parts += [
            "<h2>What the models see</h2>",
            embedded((out / "overlays.png").read_bytes(), task_named(runs[0].config.task).drawn),
            f'<p class="small">Shown: {say(_PICTURED)}.</p>',
        ]
    parts.append("<h2>What is promised</h2>")
    for run in runs:
        parts += _certificate(out, run)
    for folder in (out, *(run.folder for run in runs)):
        parts += audit_sections(folder / "audit")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _certificate(out: Path, run: PlannedRun) -> list[str]:
    """A run's certificate in plain language, with the list of what it takes to be public."""
    promise = promise_in((run.folder / "certificate.md").read_text())
    first, *rest = html.escape(promise).split("**")
    words = first + "".join(f"<strong>{part}</strong>" if i % 2 == 0 else part for i, part in enumerate(rest))
    where = html.escape(run.folder.relative_to(out).as_posix())
    body = read_certificate(run.folder)
    assumed = [html.escape(line).replace("**", "") for line in body["public_assumptions"]]
    larger = [
        f"For one {name} of up to {each['most']} {body['unit']}s that factor is at most e^{float(each['epsilon']):.4g}."
        for name, each in body.get("coarser", {}).items()
    ] + [f"For one {name} of {a_or_an(body['unit'])} it is at most e^{float(cost):.4g}." for name, cost in body.get("finer", {}).items()]
    return [
        f"<h3>{html.escape(run.combination.label)}</h3><p>{words}</p>",
        *([f"<p>{html.escape(' '.join(larger))}</p>"] if larger else []),
        *(f"<p>{html.escape(line)}</p>" for line in private_half(run.folder)),
        "<details><summary>Assumed public</summary><ul>",
        *(f"<li>{line}</li>" for line in assumed),
        f'</ul></details><p class="small">Whole: <a href="{where}/certificate.md">{where}/certificate.md</a></p>',
    ]


def private_half(folder: Path) -> list[str]:
    """How much of what a run learnt came from private people, as its log tells, epoch by epoch; nothing for runs without such a half."""
    log = folder / "log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    lines = []
    for name, words in (
        ("private_share", "The noised half's share of all movement of the weights, by epoch"),
        ("private_signal", "Length of the private signal in what was released, in units of its noise, by epoch"),
    ):
        values = [f"{event[name]:.2f}" for event in events if event.get("event") == "epoch" and name in event]
        if values:
            lines.append(f"{words}: {', '.join(values)}.")
    return lines


def _table(summary: Sequence[Mapping[str, Any]]) -> str:
    columns = (*_COLUMNS, *shown(_named(summary)))
    head = "".join(f"<th>{html.escape(heading(column))}</th>" for column in columns)
    lines = ["".join(f"<td>{html.escape(format_cell(row, column))}</td>" for column in columns) for row in summary]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _charts(out: Path, summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """The chart of the first metric, and those of the others to be opened."""
    parts: list[str] = []
    for metric, name in charts(summary).items():
        image = embedded((out / f"{name}.png").read_bytes(), f"{printed(metric)} of each method against ε")
        parts.append(f"<details><summary>{html.escape(heading(metric))}</summary>{image}</details>" if parts else image)
    return parts


def _named(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics of summary rows, each once."""
    return list(dict.fromkeys(name for row in summary for name in row if isinstance(row[name], Mapping)))


def _is_measured(value: object) -> bool:
    return isinstance(value, Mapping) and math.isfinite(value["mean"])


def _pixels(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image.transpose(1, 2, 0))
