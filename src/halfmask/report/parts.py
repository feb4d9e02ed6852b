"""The drawings that a task has of its own: what came of each class, and which are taken for which."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.report.class_plot import BASELINE, REFERENCE, class_chart, class_picture
from halfmask.report.confusion import confusion_chart, confusion_picture
from halfmask.report.gather import DONE, ReportRun
from halfmask.report.markup import folded, image
from halfmask.report.overlay import save_png
from halfmask.tasks.base import Figure, Judged, Scores, Task

_WRITTEN = ("task", "dataset", "split", "metrics", "parts")


def judged_runs(runs: Sequence[ReportRun]) -> list[Judged]:
    """What came of finished runs, the seeds of a combination together, in their order. Of several strategies or views, the first: a
    drawing has a method and its ε beside each other, and nothing else.
    """
    done = [run for run in runs if run.state == DONE and run.scores]
    groups: dict[tuple[str, float | None, float | None], list[ReportRun]] = {}
    for run in done:
        groups.setdefault((run.method, run.epsilon, run.clip_norm), []).append(run)
    alike = {key: [run for run in found if (run.strategy, run.view, run.variant) == _kind(found[0])] for key, found in groups.items()}
    return [Judged(*key, tuple(_scores(run.scores) for run in found)) for key, found in alike.items()]


def _kind(run: ReportRun) -> tuple[str, str | None, str]:
    return run.strategy, run.view, run.variant


def _scores(body: Mapping[str, Any]) -> Scores:
    """Scores as `metrics.json` has them; what was never measured is null there."""
    metrics, parts = ({name: math.nan if value is None else value for name, value in body[part].items()} for part in ("metrics", "parts"))
    return Scores(metrics, parts, tables={name: table for name, table in body.items() if name not in _WRITTEN and isinstance(table, list)})


def title_of(judged: Judged) -> str:
    """A method and its ε."""
    return judged.method if judged.epsilon is None else f"{judged.method} ε={judged.epsilon:g}"


def mean_parts(judged: Judged) -> dict[str, float]:
    """Each part, over the seeds in which it was measured."""
    names = dict.fromkeys(name for scores in judged.scores for name in scores.parts)
    known = {name: [value for scores in judged.scores if math.isfinite(value := scores.parts.get(name, math.nan))] for name in names}
    return {name: float(np.mean(values)) if values else math.nan for name, values in known.items()}


def write_figures(out: Path, task: Task, judged: Sequence[Judged]) -> list[Figure]:
    """Write a task's own drawings beside the page, each as a picture and to be explored."""
    figures = task.figures(judged)
    for figure in figures:
        save_png(out / f"{figure.name}.png", figure.picture)
        if figure.chart is not None:
            figure.chart.write_html(out / f"{figure.name}.html", include_plotlyjs=True)
    return figures


def figure_sections(figures: Sequence[Figure]) -> str:
    """Drawings on a page: the first as it is, and the others to be opened."""
    images = [(figure.title, image(_packed(figure.picture), figure.title)) for figure in figures]
    return "\n".join(body if number == 0 else folded(title, body) for number, (title, body) in enumerate(images))


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
