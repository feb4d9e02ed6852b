"""The tables of a report: every metric of every method, and the parts of scores: joint by joint, class by class, task by task of a face."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from halfmask.metrics.names import about, is_percentage
from halfmask.report.drawn import TOLD_APART, choices
from halfmask.report.gather import DONE, ReportRun
from halfmask.report.markup import folded, table, text
from halfmask.report.tables import format_cell, format_epsilon, format_metric, heading

_PARTS = {"pose": "Joint by joint", "action": "Class by class", "face": "Task by task of a face"}


def numbers(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every metric of every method, over seeds."""
    metrics = _metrics(summary)
    shown = [name for name in ("strategy", "view", "variant", "group") if len({choices(row)[name] for row in summary} - {""}) > 1]
    head = ("Method", "ε", "Clip norm", *(name.capitalize() for name in shown), "Seeds", *map(heading, metrics))
    rows = [
        (
            row["method"],
            format_epsilon(row["method"], row["epsilon"]),
            choices(row)["clip_norm"] or "—",
            *(choices(row)[name] or "—" for name in shown),
            str(row["seeds"]),
            *(format_cell(row, name) for name in metrics),
        )
        for row in summary
    ]
    scores = "Scores are percentages" if all(map(is_percentage, metrics)) else "Scores are"
    words = f"{scores} on the test split, mean ± sample standard deviation over seeds."
    words += " ↓: the lower, the better." if any(not about(name).higher_is_better for name in metrics) else ""
    return [f'<p class="small">{text(words)}</p>', table(head, rows, "Scores of every method", [choices(row) for row in summary])]


def parts(runs: Sequence[ReportRun]) -> list[str]:
    """The parts of scores: a table for each task and dataset, and for each kind of part where their names say one (`landmarks/nose`)."""
    sections: list[str] = []
    for group in dict.fromkeys(run.group for run in runs):
        members = [run for run in runs if run.group == group and run.state == DONE and isinstance(run.scores.get("parts"), Mapping)]
        names = list(dict.fromkeys(name for run in members for name in run.scores["parts"]))
        if not names:
            continue
        title = _PARTS.get(members[0].task, "Part by part")
        body = _parts_table(members, names, title)
        sections.append(f'<div data-shown-for="{text(group)}">{folded(f"{title}: {group}", body, opened=len(names) <= 20)}</div>')
    return ["<h3>Part by part</h3>", *sections] if sections else []


def _parts_table(runs: Sequence[ReportRun], names: Sequence[str], title: str) -> str:
    groups: dict[tuple[Any, ...], list[ReportRun]] = {}
    for run in runs:
        groups.setdefault(tuple(getattr(run, name) for name in TOLD_APART), []).append(run)
    rows = []
    for members in groups.values():
        first = members[0]
        words = first.method if first.epsilon is None else f"{first.method} ε={first.epsilon:g} C={first.clip_norm:g}"
        # Joints and classes are percentages; the tasks of a face, or of somebody's own model, each have a unit of their own.
        digits = 1 if first.task in ("pose", "action") else None
        rows.append((words, *(_cell([run.scores["parts"].get(name) for run in members], digits) for name in names)))
    return table(("", *names), rows, title, [choices(members[0]) for members in groups.values()])


def _cell(values: Sequence[Any], digits: int | None) -> str:
    known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if not known:
        return "–"
    spread = statistics.stdev(known) if len(known) > 1 else None
    return format_metric({"mean": statistics.fmean(known), "spread": spread, "seeds": len(known)}, len(values), digits)


def _metrics(summary: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in summary for name in row if isinstance(row[name], Mapping)))
