"""What the charts of a report are drawn from: points over seeds, single runs, training curves, spectra, and published figures.

Means and spreads are computed here; the page's script only chooses which of them to show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from halfmask.metrics.names import about, printed, shown, with_unit
from halfmask.report import canvas
from halfmask.report.gather import DONE, ReportRun
from halfmask.report.published import published_for
from halfmask.report.remainder import number
from halfmask.report.tables import format_metric, is_non_private, summarise

# What runs are told apart by; those that differ in none of it differ in their seed alone.
TOLD_APART = ("group", "method", "epsilon", "clip_norm", "strategy", "view", "variant")
SWITCHES = {"group": "Task and data", "strategy": "Strategy", "clip_norm": "Clip norm", "view": "View", "variant": "Settings"}
_CURVES = {
    "public_loss": "loss on public people",
    "epsilon": "ε spent",
    "private_share": "share of the noised half in all movement of the weights",
    "private_signal": "length of the private signal, in units of its noise",
    "learning_rate": "learning rate",
}
_GREY, _FAINT = "#808080", "#a0a0a0"


def row_of(run: ReportRun) -> dict[str, Any]:
    """A run as `summarise` takes it."""
    fields = {name: getattr(run, name) for name in (*TOLD_APART, "seed")}
    return fields | (run.metrics if run.state == DONE else {})


def summaries(runs: Sequence[ReportRun]) -> list[dict[str, Any]]:
    """Finished runs over their seeds. Two runs of one seed and the same settings are both kept: their noise differs."""
    rows, known = [], set()
    for run in runs:
        if run.state != DONE or not run.metrics:
            continue
        row = row_of(run)
        key = tuple(row[name] for name in (*TOLD_APART, "seed"))
        rows.append(row | {"seed": None} if key in known else row)
        known.add(key)
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    return summarise(rows, TOLD_APART, shown_metrics(names))


def shown_metrics(names: Sequence[str]) -> list[str]:
    """Metrics that stand for models on the page, whatever tasks are on it: those of each task, and no part of one."""
    return list(dict.fromkeys([*shown(names), *(name for name in names if "/" not in name)])) if names else []


def chart_data(runs: Sequence[ReportRun], summary: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the script of a page knows."""
    metrics = list(dict.fromkeys(name for row in summary for name in row if isinstance(row[name], Mapping)))
    methods = list(dict.fromkeys(run.method for run in runs))
    return {
        "metrics": [
            {"name": name, "title": printed(name), "axis": with_unit(name), "higher": about(name).higher_is_better} for name in metrics
        ],
        "methods": {name: _look(name, methods) for name in methods},
        "switches": [
            {"name": name, "title": title, "values": values} for name, title in SWITCHES.items() if (values := _values(runs, name))
        ],
        "points": [_point(row, metrics, runs) for row in summary],
        "runs": [_run(run) for run in runs],
        "curves": {name: title for name, title in _CURVES.items() if any(_finite(line.get(name)) for run in runs for line in run.epochs)},
        "published": published_for({run.task for run in runs}, metrics),
    }


def as_script(data: Mapping[str, Any]) -> str:
    """JSON that may stand inside a page: nothing in it can end the element that holds it."""
    body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (
        body.replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def choices(one: ReportRun | Mapping[str, Any]) -> dict[str, str]:
    """What a run or a row is chosen by, as the switches name it; empty for what it does not have, which belongs to every choice."""
    values = {name: one[name] if isinstance(one, Mapping) else getattr(one, name) for name in SWITCHES}
    return {name: "" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}


def _values(runs: Sequence[ReportRun], name: str) -> list[str]:
    found = [value for value in dict.fromkeys(choices(run)[name] for run in runs) if value]
    return sorted(found, key=float) if name == "clip_norm" else found


def _look(method: str, methods: Sequence[str]) -> dict[str, str]:
    """Colour and dash of a method: baselines are grey, as in every chart here."""
    if is_non_private(method):
        return {"colour": _GREY, "dash": "solid"}
    if method == "public-only":
        return {"colour": _FAINT, "dash": "dash"}
    coloured = [name for name in methods if not is_non_private(name) and name != "public-only"]
    # The last colour of the palette is black, which a dark page would swallow.
    red, green, blue = canvas.PALETTE[coloured.index(method) % (len(canvas.PALETTE) - 1)]
    return {"colour": f"rgb({red},{green},{blue})", "dash": "solid"}


def _point(row: Mapping[str, Any], metrics: Sequence[str], runs: Sequence[ReportRun]) -> dict[str, Any]:
    own = [run.name for run in runs if all(getattr(run, name) == row[name] for name in TOLD_APART) and run.state == DONE]
    values = {
        name: {
            "mean": row[name]["mean"],
            "spread": row[name]["spread"],
            "words": format_metric(row[name], row["seeds"], about(name).digits),
        }
        for name in metrics
        if name in row and math.isfinite(row[name]["mean"])
    }
    return {name: row[name] for name in ("method", "epsilon", "seeds")} | choices(row) | {"runs": own, "values": values}


def _run(run: ReportRun) -> dict[str, Any]:
    certificate = run.certificate
    last: Mapping[str, Any] = next(
        (line for line in reversed(run.log) if line.get("event") == "subspace" and isinstance(line.get("spectrum"), list)), {}
    )
    names = [name for name in _CURVES if any(_finite(line.get(name)) for line in run.epochs)]
    return (
        {name: getattr(run, name) for name in ("method", "epsilon", "name")}
        | choices(run)
        | {
            "certified": f"{number(run.bound)} ({certificate['adjacency']})" if certificate else "no certificate",
            "values": {name: value for name, value in run.metrics.items() if math.isfinite(value)} if run.state == DONE else {},
            "epochs": [line.get("epoch", line.get("step")) for line in run.epochs],
            "curves": {name: [_rounded(line.get(name)) for line in run.epochs] for name in names},
            "spectrum": [value for value in map(_rounded, last.get("spectrum", [])) if value is not None],
            "dimension": last.get("subspace_dim"),
            "captured": _rounded(last.get("captured_energy")),
        }
    )


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _rounded(value: Any) -> float | None:
    return float(f"{value:.5g}") if _finite(value) else None
