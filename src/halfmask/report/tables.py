"""Tables of results: runs gathered over seeds, then shown on screen, in Markdown or as CSV.

A summary row, as `summarise` makes it, holds the fields that tell groups apart, the number of `seeds`, and
under each metric's name a mapping with `mean`, `spread` and `seeds`. The other functions take summary rows as
well as plain rows whose metrics are numbers.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.metrics.names import HEADLINES, about, printed, shown, value_with_unit

Row = Mapping[str, Any]

DEFAULT_METRICS: tuple[str, ...] = tuple(name for pair in HEADLINES for name in pair)
UNKNOWN = "—"

_HEADINGS = {"method": "Method", "epsilon": "ε", "clip_norm": "Clip norm", "seeds": "Seeds", "seed": "Seed"}
_LEFT_ALIGNED = {"method"}


def is_non_private(method: object) -> bool:
    """Say whether a method is the one trained on the private images with no protection at all."""
    return "".join(c for c in str(method).lower() if c.isalnum()) == "nonprivate"


def summarise(
    runs: Sequence[Row],
    by: Sequence[str] = ("method", "epsilon", "clip_norm"),
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> list[dict[str, Any]]:
    """Gather runs that differ only in their seed.

    Args:
        runs: One mapping for each run, with the fields of `by`, a `seed`, and numbers under the metrics'
            names. A field that a run lacks counts as None.
        by: The fields that tell groups apart.
        metrics: What to average. A group in which no run has a metric goes without it.

    Returns:
        One row for each group in the order first seen. `spread` is the sample standard deviation over seeds,
        and None for a single seed, which says nothing about spread.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for run in runs:
        groups.setdefault(tuple(run.get(field) for field in by), []).append(run)
    rows = []
    for key, members in groups.items():
        fields = dict(zip(by, key, strict=True))
        _check_seeds_differ(fields, members)
        row: dict[str, Any] = {**fields, "seeds": len(members)}
        for metric in metrics:
            values = [float(run[metric]) for run in members if run.get(metric) is not None]
            if values:
                row[metric] = _mean_and_spread(values)
        rows.append(row)
    return rows


def format_epsilon(method: object, epsilon: float | None) -> str:
    """Write a privacy loss for reading.

    Training without protection has no bound, which is ∞. A method that never touches the private images gets
    a dash: there is no mechanism whose loss could be stated, and "0" would read as a measured guarantee.
    """
    if epsilon is None:
        return "∞" if is_non_private(method) else UNKNOWN
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


def format_metric(value: object, seeds: int | None = None, digits: int | None = 1) -> str:
    """Write a metric as "84.2 ± 0.6", or as "84.2" when there is only one seed.

    When fewer seeds have the metric than the row counts (`seeds`), the text says so: a mean over part of the
    runs must not pass for one over all. Without a number of `digits` after the point there are four in all.
    """
    if not isinstance(value, Mapping):
        return _format_number(value, digits)
    text = _format_number(value["mean"], digits)
    if value.get("spread") is not None:
        text += f" ± {_format_number(value['spread'], digits)}"
    if seeds is not None and value.get("seeds", seeds) < seeds:
        text += f" ({value['seeds']} of {seeds} seeds)"
    return text


def format_cell(row: Row, column: str) -> str:
    """Write the cell of one row for reading."""
    value = row.get(column)
    if column == "epsilon":
        return format_epsilon(row.get("method"), value)
    if isinstance(value, Mapping):
        return format_metric(value, row.get("seeds"), about(column).digits)
    if isinstance(value, float):
        return _format_number(value, about(column).digits)
    return UNKNOWN if value is None else str(value)


def score_line(metrics: Row) -> str:
    """The numbers that stand for a model in one line, with their units; those that were not measured are left out."""
    found = [name for name in shown(metrics) if metrics[name] is not None]
    return "   ".join(f"{printed(name)} {value_with_unit(name, format_metric(metrics[name], digits=about(name).digits))}" for name in found)


def heading(column: str) -> str:
    """Name a column for readers; "pckh@0.5/head" becomes "Head", as in published tables.

    What is no percentage says its unit, and what is better when it is lower has an arrow that points down.
    """
    if column in _HEADINGS:
        return _HEADINGS[column]
    metric, slash, part = column.partition("/")
    if slash:
        return part.capitalize()
    info = about(metric)
    unit = f" ({info.unit})" if info.unit and info.unit != "%" else ""
    return printed(metric) + unit + ("" if info.higher_is_better else " ↓")


def method_table(rows: Sequence[Row], columns: Sequence[str] | None = None, *, title: str | None = None) -> Table:
    """Lay rows out for the terminal.

    Args:
        rows: Summary rows or plain rows.
        columns: Which to show, in order. By default every column but those that are empty throughout.
        title: Printed above the table.
    """
    shown = _checked_columns(rows, columns)
    table = Table(title=title)
    for column in shown:
        # What tells rows apart is never cut; the names of metrics go over several lines instead.
        table.add_column(heading(column), justify="left" if column in _LEFT_ALIGNED else "right", no_wrap=" " not in heading(column))
    for row in rows:
        table.add_row(*(format_cell(row, column).replace("[", r"\[") for column in shown))
    return table


def method_tables(rows: Sequence[Row], metrics: Sequence[str], at_once: int = 3) -> list[Table]:
    """Lay rows out for a narrow terminal: `at_once` metrics in a table, each table with what tells the rows apart."""
    columns = _checked_columns(rows, None)
    told_apart = [column for column in columns if column not in metrics]
    kept = [name for name in metrics if name in columns]
    parts = [kept[start : start + at_once] for start in range(0, len(kept), at_once)] or [[]]
    return [method_table(rows, [*told_apart, *part]) for part in parts]


def markdown_table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """Lay rows out as a Markdown table that ends in a line break. Columns are chosen as in `method_table`."""
    shown = _checked_columns(rows, columns)
    lines = [
        _markdown_line(heading(column) for column in shown),
        _markdown_line(":---" if column in _LEFT_ALIGNED else "---:" for column in shown),
        *(_markdown_line(format_cell(row, column) for column in shown) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def write_csv(path: str | Path, rows: Sequence[Row]) -> None:
    """Write rows unrounded for other programs, making the folders on the way to the file.

    The mapping of a metric becomes three columns such as "pckh@0.5 mean". An unknown value is an empty cell.
    """
    flat = [_flattened(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def _mean_and_spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": len(values),
    }


def _check_seeds_differ(fields: Row, members: list[Row]) -> None:
    seeds = [run["seed"] for run in members if run.get("seed") is not None]
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1}, key=str)
    if repeated:
        group = ", ".join(f"{name} {value}" for name, value in fields.items())
        raise HalfmaskError(
            f"seed {repeated[0]} occurs {seeds.count(repeated[0])} times among the runs with {group}; "
            "expected each seed once, or the spread comes out too small: drop the repeated run, or group "
            "by the field it differs in"
        )


def _format_number(value: object, digits: int | None) -> str:
    if not isinstance(value, (int, float)) or math.isnan(value):
        return UNKNOWN
    return f"{value:.4g}" if digits is None else f"{value:.{digits}f}"


def _checked_columns(rows: Sequence[Row], columns: Sequence[str] | None) -> list[str]:
    known = list(dict.fromkeys(column for row in rows for column in row))
    if columns is None:
        # ε stays although empty: that a method states none is what the reader wants to know.
        return [c for c in known if c == "epsilon" or any(row.get(c) is not None for row in rows)]
    if rows:
        for column in columns:
            if column not in known:
                raise unknown_name("column", column, known)
    return list(columns)


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _flattened(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for column, value in row.items():
        if isinstance(value, Mapping):
            flat.update({f"{column} {part}": number for part, number in value.items()})
        else:
            flat[column] = value
    return flat
