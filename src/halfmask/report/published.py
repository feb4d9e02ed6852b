"""Figures that papers print, as facts with their source: to be shown beside ours, marked as theirs, and never among our results.

Each file of `published/` is the table, or tables, of a paper as printed; `sources.yaml` says which and what their ε means. The papers'
words for methods and strategies are replaced by ours.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

_ROOM = files("halfmask.report") / "published"


@lru_cache(maxsize=1)
def sources() -> list[dict[str, Any]]:
    """What there is: for each file its task, dataset, source, remark, and which of its columns is which of our metrics."""
    body: list[dict[str, Any]] = yaml.safe_load((_ROOM / "sources.yaml").read_text())
    return body


@lru_cache(maxsize=8)
def rows(file: str) -> list[dict[str, str]]:
    """The rows of a file as they are printed; an empty cell is what the paper does not print."""
    return list(csv.DictReader((_ROOM / file).read_text().splitlines()))


def published_for(tasks: Collection[str], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Layers for a chart: one for each dataset, kind of data, strategy and clip norm that a paper has figures of."""
    layers: dict[tuple[str, ...], dict[str, Any]] = {}
    for source in sources():
        columns: Mapping[str, str] = {name: column for name, column in source["metrics"].items() if name in metrics}
        if source["task"] not in tasks or not columns:
            continue
        baselines = [row for row in rows(source["file"]) if not row["epsilon"]]
        for row in rows(source["file"]):
            if not row["epsilon"]:
                continue
            key = (row["dataset"], row["data"], row["strategy"], row["clip_norm"])
            layer = layers.setdefault(key, _layer(key, source, columns, baselines))
            layer["points"].append(_point(row, columns, float(row["epsilon"])))
            layer["tables"] = sorted({*layer["tables"], row["table"]}, key=lambda name: (len(name), name))
    for layer in layers.values():
        layer["title"] += f" (Table {', '.join(layer.pop('tables'))})"
    return list(layers.values())


def _layer(
    key: tuple[str, ...], source: Mapping[str, Any], columns: Mapping[str, str], baselines: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    dataset, data, strategy, clip = key
    words = [dataset, *filter(None, (data, strategy)), *([f"C = {clip}"] if clip else [])]
    # What a paper reports without noise stands beside each of its layers that it belongs to.
    beside = [row for row in baselines if row["dataset"] == dataset and row["strategy"] == strategy and row["data"] in ("", data)]
    return {
        "title": ", ".join(words),
        "source": f"{source['source']}. {source['remark']}",
        "tables": sorted({row["table"] for row in beside if row["table"].isdigit()}),
        "points": [_point(row, columns, None) for row in beside],
    }


def _point(row: Mapping[str, str], columns: Mapping[str, str], epsilon: float | None) -> dict[str, Any]:
    values = {metric: float(row[column]) for metric, column in columns.items() if row.get(column)}
    return {"method": row["method"], "epsilon": epsilon, "values": values}
