"""A table in the layout of a paper, our numbers above the published ones, which are marked as theirs.

The published numbers are facts of a paper, kept in `halfmask.report.published` with their source; ours are means over the seeds that were
run. A cell that was not run, or that the paper does not print, is a dash.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from halfmask.metrics.names import about, printed
from halfmask.report.published import rows as published_rows
from halfmask.report.published import sources
from halfmask.training.grids import Block, Grid

_DASH = "–"
# Of the columns that papers print, those whose name is not one of our metrics: what they are called in print, and what ours is.
_PRINTED = {
    "mean": ("Mean", "pckh@0.5"),
    "mean@0.1": ("Mean@0.1", "pckh@0.1"),
    **{part: (part.capitalize(), f"pckh@0.5/{part}") for part in ("head", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")},
    **{f"{kind}_{size}": (f"{kind.upper()}({size.upper()})", f"{kind}-{size}") for kind in ("ap", "ar") for size in "ml"},
}
_KEYS = ("table", "dataset", "data", "method", "strategy", "clip_norm", "epsilon")


@dataclass
class Line:
    """A row of the table.

    Attributes:
        ours: by column, the value of each run.
        theirs: of each dataset that the paper has such a row of, its cells by column, as printed.
    """

    block: str
    method: str
    clip_norm: float | None
    epsilon: float | None
    ours: dict[str, list[float]] = field(default_factory=dict)
    theirs: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        ours = {column: {"mean": statistics.fmean(values), "runs": values} for column, values in self.ours.items()}
        named = {"block": self.block, "method": self.method, "clip_norm": self.clip_norm, "epsilon": self.epsilon}
        theirs = {dataset: {column: float(cell) for column, cell in cells.items()} for dataset, cells in self.theirs.items()}
        return named | {"ours": ours, "published": theirs}


@dataclass
class PaperTable:
    """What is printed.

    Attributes:
        columns: their names, as in the file of published numbers or as our metrics.
        source: whose the published numbers are, and what their ε means; empty where there are none.
    """

    title: str
    columns: tuple[str, ...]
    lines: list[Line]
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        columns = {name: {"printed": _heading(name), "metric": _metric(name)} for name in self.columns}
        return {"title": self.title, "columns": columns, "source": self.source, "rows": [line.to_json() for line in self.lines]}

    def to_markdown(self) -> str:
        """The page: a row of ours, and below it theirs in italics."""
        text = [f"# {self.title}", ""]
        text += [f"Ours: mean ± standard deviation over seeds. *Theirs*: {self.source}", ""] if self.source else []
        block = None
        for line in self.lines:
            if line.block != block:
                block = line.block
                text += ["", f"## {block}", "", f"| | {' | '.join(map(_heading, self.columns))} |", "|---" * (len(self.columns) + 1) + "|"]
            text.append(f"| {_row_name(line)} | {' | '.join(_ours(line, name) for name in self.columns)} |")
            for dataset, cells in line.theirs.items():
                theirs = (f"*{cells[name]}*" if name in cells else _DASH for name in self.columns)
                text.append(f"| *theirs, {dataset}* | {' | '.join(theirs)} |")
        return "\n".join(text) + "\n"

    def to_rich(self) -> Table:
        """The same for a terminal."""
        table = Table(title=self.title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("")
        for name in self.columns:
            table.add_column(_heading(name), justify="right", no_wrap=True)
        block = None
        for line in self.lines:
            if line.block != block:
                block = line.block
                table.add_section()
                table.add_row(block, style="bold")
            table.add_row(_row_name(line), *(_ours(line, name) for name in self.columns))
            for dataset, cells in line.theirs.items():
                table.add_row(f"  theirs, {dataset}", *(cells.get(name, _DASH) for name in self.columns), style="dim")
        return table


def paper_table(grid: Grid, title: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> PaperTable:
    """Lay the runs of a grid out as the paper does.

    Args:
        title: for a table that is not in a paper.
        results: of each block, by its name, the rows of `halfmask.training.sweep.collect`.
    """
    number = str(grid.published.get("table", ""))
    theirs = [row for row in published_rows(str(grid.published["file"])) if row["table"] == number] if grid.published else []
    columns = tuple(name for name in theirs[0] if name not in _KEYS and any(row[name] for row in theirs)) if theirs else ()
    lines: dict[tuple[Any, ...], Line] = {}
    for block in grid.blocks:
        measured = results.get(block.name, ())
        for row in measured:
            key = (block.name, row["method"], row["clip_norm"], row["epsilon"])
            line = lines.setdefault(key, Line(*key))
            for name in columns or _own_columns(measured):
                # A metric of nobody (people of a size that the test has none of) is not a number.
                if row.get(_metric(name)) is not None:
                    line.ours.setdefault(name, []).append(float(row[_metric(name)]))
        for row in theirs:
            if row["strategy"] not in ("", str(block.settings.get("strategy", ""))) or row["data"] not in ("", block.data):
                continue
            for line in lines.values():
                if _is_of(row, line, block):
                    line.theirs[row["dataset"]] = {name: row[name] for name in columns if row[name]}
    shown = columns or tuple(dict.fromkeys(name for some in results.values() for name in _own_columns(some)))
    said = f"Table {number}: {grid.published.get('title', '')}".rstrip(": ") if number else title
    order = sorted(lines.values(), key=lambda line: _place(line, grid))
    return PaperTable(said, shown, order, _source(str(grid.published.get("file", ""))))


def _is_of(row: Mapping[str, str], line: Line, block: Block) -> bool:
    """Whether a printed row is of the same cell; papers that had one clip norm do not print it."""
    clip = _number(row["clip_norm"])
    same = line.block == block.name and line.method == row["method"] and line.epsilon == _number(row["epsilon"])
    return same and (clip is None or clip == line.clip_norm)


def _place(line: Line, grid: Grid) -> tuple[int, ...]:
    """Where a line stands: as the recipe lists blocks, methods and clip norms, then by ε."""
    place, block = next((i, one) for i, one in enumerate(grid.blocks) if one.name == line.block)
    method = block.methods.index(line.method) if line.method in block.methods else 0
    clip = block.clip_norms.index(line.clip_norm) if line.clip_norm in block.clip_norms else -1
    return place, method, clip, round(1e6 * (line.epsilon or 0))


def _own_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For a table that no paper prints: every metric whole."""
    return [name for name in (rows[0] if rows else {}) if about(name).unit == "%" and "/" not in name]


def _metric(column: str) -> str:
    return _PRINTED[column][1] if column in _PRINTED else column


def _heading(column: str) -> str:
    return _PRINTED[column][0] if column in _PRINTED else printed(column)


def _row_name(line: Line) -> str:
    parts = [line.method]
    if line.clip_norm is not None and line.epsilon is not None:
        parts += [f"C={line.clip_norm:g}", f"ε={line.epsilon:g}"]
    return " ".join(parts)


def _ours(line: Line, column: str) -> str:
    values = line.ours.get(column)
    if not values:
        return _DASH
    # As many digits as the paper prints.
    digits = max((len(cells.get(column, "").partition(".")[2]) for cells in line.theirs.values()), default=1) or 1
    spread = f"±{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def _number(text: str) -> float | None:
    return float(text) if text else None


def _source(file: str) -> str:
    found = next((one for one in sources() if one["file"] == file), None)
    return "" if found is None else f"{found['source']}. {found['remark']}"
