"""Rows of a table: runs that are made one after the other, each once, and printed with their spread.

Several processes may be started side by side: each takes the next run that nobody has taken. A run that was cut short is begun anew once
its folder and its `.taken` file are removed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from halfmask.training.config import build_config, load_recipe
from halfmask.training.running import run_training
from halfmask.training.runs import read_json


@dataclass(frozen=True)
class Row:
    """One line of a table: a method at an ε with its settings."""

    name: str
    method: str
    epsilon: float = 5.0
    seeds: int = 3
    settings: tuple[str, ...] = ()

    def runs(self) -> list[tuple[str, int]]:
        return [(f"{self.name}-{self.epsilon:g}-{seed}".replace(" ", "_").replace("/", "_"), seed) for seed in range(self.seeds)]


def options_for(doc: str | None, datasets: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc)
    if datasets:
        parser.add_argument("dataset", choices=datasets)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="rows by how their names begin, separated by semicolons; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="others", action="append", default=[], help="for all of them")
    parser.add_argument("--show", action="store_true", help="run nothing")
    return parser


def chosen(rows: Sequence[Row], options: argparse.Namespace) -> list[Row]:
    wanted = options.only.split(";") if options.only else [""]
    return [row for row in rows if any(row.name.startswith(one) for one in wanted)]


def make(rows: Sequence[Row], recipe: str, options: argparse.Namespace) -> None:
    """Run what is not there yet, seed by seed: a table cut short has every row once before it has any twice."""
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    order = sorted(((seed, row, name) for row in rows for name, seed in row.runs() if seed < options.seeds), key=lambda run: run[0])
    for seed, row, name in order:
        if options.show:
            return
        try:
            (options.out / f"{name}.taken").touch(exist_ok=False)
        except FileExistsError:
            continue
        started = time.monotonic()
        flags = {"method": row.method, "epsilon": row.epsilon, "seed": seed, "even_so": True}
        run_training(build_config(load_recipe(recipe), flags, [*row.settings, *options.others]), options.out / name)
        scores = (read_json(options.out / name / "metrics.json") or {})["metrics"]
        print(f"{name:44s} {next(iter(scores.values())):6.2f}   {time.monotonic() - started:5.0f} s", flush=True)


def show(out: Path, rows: Sequence[Row], metrics: Sequence[str]) -> None:
    """Mean ± standard deviation over the seeds that are there."""
    print(f"| method | ε | runs | {' | '.join(metrics)} |")
    print("|" + "---|" * (len(metrics) + 3))
    for row in rows:
        found = [read_json(out / name / "metrics.json") for name, _ in row.runs()]
        scores = [body["metrics"] for body in found if body is not None]
        if not scores:
            continue
        private = row.method not in ("public-only", "non-private")
        shown = f"{row.epsilon:g}" if private else ("—" if row.method == "public-only" else "∞")
        cells = [_spread([score[metric] for score in scores], metric) for metric in metrics]
        print(f"| {row.name} | {shown} | {len(scores)} | {' | '.join(cells)} |", flush=True)


def _spread(values: list[float], metric: str) -> str:
    digits = 4 if metric.endswith("mse") else 2
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"
