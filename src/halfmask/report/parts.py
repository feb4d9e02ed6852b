"""What a comparison shows besides its metrics: the parts of a task's scores as a table, and the drawings that a task has of its own."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.report.class_plot import BASELINE, REFERENCE, class_chart, class_picture
from halfmask.report.confusion import confusion_chart, confusion_picture
from halfmask.report.overlay import save_png
from halfmask.report.tables import format_metric
from halfmask.tasks.base import Figure, Judged, Scores, Task
from halfmask.training.sweep import PlannedRun, is_done

_WRITTEN = ("task", "dataset", "split", "metrics", "parts")


def judged_runs(planned: Sequence[PlannedRun]) -> list[Judged]:
    """What came of the finished runs of a sweep, the seeds of a combination together, in the order in which they were planned."""
    groups: dict[tuple[str, float | None, float | None], list[Scores]] = {}
    for run in planned:
        if is_done(run.folder):
            body = json.loads((run.folder / "metrics.json").read_text())
            combination = run.combination
            groups.setdefault((combination.method, combination.epsilon, combination.clip_norm), []).append(_scores(body))
    return [Judged(*key, tuple(scores)) for key, scores in groups.items()]


def _scores(body: Mapping[str, Any]) -> Scores:
    """Scores as `metrics.json` has them; what was never measured is null there."""
    metrics, parts = ({name: math.nan if value is None else value for name, value in body[part].items()} for part in ("metrics", "parts"))
    return Scores(metrics, parts, tables={name: table for name, table in body.items() if name not in _WRITTEN and isinstance(table, list)})


def title_of(judged: Judged, several_clips: bool = False) -> str:
    """A method and its ε, as a column is headed."""
    words = judged.method if judged.epsilon is None else f"{judged.method} ε={judged.epsilon:g}"
    return words + (f" C={judged.clip_norm:g}" if several_clips and judged.clip_norm is not None else "")


def mean_parts(judged: Judged) -> dict[str, float]:
    """Each part, over the seeds in which it was measured."""
    return {name: value["mean"] for name, value in _means(judged).items()}


def _means(judged: Judged) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for scores in judged.scores for name in scores.parts):
        values = [scores.parts[name] for scores in judged.scores if math.isfinite(scores.parts.get(name, math.nan))]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        found[name] = {"mean": float(np.mean(values)) if values else math.nan, "spread": spread}
    return found


def parts_table(judged: Sequence[Judged], title: str) -> str:
    """Parts down, methods across; to be opened, because it is long. Nothing where no part was measured."""
    columns = [_means(one) for one in judged]
    names = list(dict.fromkeys(name for column in columns for name in column))
    if not names or not title:
        return ""
    several = len({one.clip_norm for one in judged if one.clip_norm is not None}) > 1
    head = "".join(f"<th>{html.escape(word)}</th>" for word in ("", *(title_of(one, several) for one in judged)))
    lines = []
    for name in names:
        values = [column.get(name, {"mean": math.nan}) for column in columns]
        cells = (
            format_metric(value, len(one.scores), 1) if math.isfinite(value["mean"]) else "–"
            for value, one in zip(values, judged, strict=True)
        )
        lines.append("".join(f"<td>{html.escape(cell)}</td>" for cell in (name, *cells)))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>As a table</summary>{table}</details>"


def write_figures(out: Path, task: Task, judged: Sequence[Judged]) -> list[Figure]:
    """Write a task's own drawings beside the page, each as a picture and to be explored."""
    figures = task.figures(judged)
    for figure in figures:
        save_png(out / f"{figure.name}.png", figure.picture)
        if figure.chart is not None:
            figure.chart.write_html(out / f"{figure.name}.html", include_plotlyjs=True)
    return figures


def parts_sections(judged: Sequence[Judged], title: str, figures: Sequence[Figure]) -> list[str]:
    """What a page says of parts: the drawings, the first as it is and the others to be opened, and the table."""
    sections: list[str] = []
    for figure in figures:
        image = embedded(_packed(figure.picture), figure.title)
        sections.append(f"<details><summary>{html.escape(figure.title)}</summary>{image}</details>" if sections else image)
    table = parts_table(judged, title)
    return [f"<h2>{html.escape(title)}</h2>" if title else "<h2>Part by part</h2>", *sections, table] if sections or table else []


def embedded(png: bytes, about: str) -> str:
    """A picture inside a page, so that the page can be sent as one file."""
    return f'<img alt="{html.escape(about)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _packed(picture: np.ndarray) -> bytes:
    return bytes(cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))[1])


def class_figures(judged: Sequence[Judged], shares: Mapping[str, float] | None = None) -> list[Figure]:
    """The drawings of a task whose parts are classes in %, and whose tables are `classes` and `confusion`.

    For each ε, what privacy lost of every class and what methods regain; and for each method, at its largest ε, which classes are taken
    for which.

    Args:
        shares: of each class among the records learnt from, where that is public; else those of the test set stand for them.
    """
    known = [one for one in judged if one.scores and "confusion" in one.scores[0].tables]
    if not known:
        return []
    shares = shares or _shares(known[0].scores[0])
    clip = next((one.clip_norm for one in known if one.clip_norm is not None), None)
    figures = []
    for epsilon in dict.fromkeys(one.epsilon for one in known if one.epsilon is not None):
        # Methods without noise stand beside every ε; of several clip norms the first, chosen before any score was seen.
        beside = [one for one in known if one.epsilon is None or (one.epsilon == epsilon and one.clip_norm == clip)]
        beside.sort(key=lambda one: (one.method != REFERENCE, one.method != BASELINE))
        values = {one.method: mean_parts(one) for one in beside}
        title = f"What privacy loses of each class, and what is regained, at ε = {epsilon:g}"
        figures.append(Figure(f"classes-eps{epsilon:g}", title, class_picture(values, shares, title), class_chart(values, shares, title)))
    chosen: dict[str, Judged] = {}
    for one in known:
        if one.clip_norm in (None, clip) and (one.method not in chosen or (one.epsilon or 0) > (chosen[one.method].epsilon or 0)):
            chosen[one.method] = one
    for method, one in chosen.items():
        counts = np.sum([scores.tables["confusion"] for scores in one.scores], axis=0)
        classes = [str(name) for name in one.scores[0].tables["classes"]]
        title = f"{title_of(one)}: which classes are taken for which"
        title += f" (all {len(one.scores)} seeds)" if len(one.scores) > 1 else ""
        figures.append(
            Figure(f"confusion-{method}", title, confusion_picture(counts, classes, title), confusion_chart(counts, classes, title))
        )
    return figures


def _shares(scores: Scores) -> dict[str, float]:
    """Of each class in the test set."""
    counts = np.sum(scores.tables["confusion"], axis=1).astype(float)
    return dict(zip(map(str, scores.tables["classes"]), (counts / max(counts.sum(), 1e-12)).tolist(), strict=True))
