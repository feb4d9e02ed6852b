"""The tables of the face task: `python -m benchmarks.face figures OUT` or `python -m benchmarks.face ytf68 OUT --weights START`.

Runs what is not there yet and prints the table of what is. Several may be started side by side: each takes the next run that nobody has
taken. A run that was cut short is begun anew once its folder and its `.taken` file are removed.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from halfmask.training.config import build_config, load_recipe
from halfmask.training.running import run_training
from halfmask.training.runs import read_json

METRICS = ("detection_accuracy", "detection_ap", "landmark_error", "visibility_mse", "pose_error", "attribute_accuracy")


@dataclass(frozen=True)
class Row:
    """One line of a table: a method at an ε with its settings."""

    name: str
    method: str
    epsilon: float = 5.0
    seeds: int = 3
    settings: tuple[str, ...] = ()

    def runs(self) -> list[tuple[str, int]]:
        return [(f"{self.name}-{self.epsilon:g}-{seed}", seed) for seed in range(self.seeds)]


# Views first, then both halves: what is public of these people teaches without noise.
FEATURE = ("public.first=400", "public.steps=4")
# Few steps in many whitened coordinates of public people's gradients.
PROJECTED = (
    "subspace.kind=layers",
    "subspace.dim=3000",
    "subspace.project_first=true",
    "subspace.whiten=true",
    "private.optimiser=sgd",
    "private.momentum=0",
    "private.learning_rate=0.03",
    "clip_norm=1",
    "epochs=6",
)
SUBJECTS = ("unit=subject", "batch=64", "epochs=10", "records_per_unit=24")
# Steps that cost nothing, or that nobody counts, on smaller batches and at a rate that suits those.
OPEN = ("batch=64", "optimiser.learning_rate=0.0003")
ROWS = [
    Row("initial weights", "public-only", seeds=1, settings=("epochs=0.001", "optimiser.learning_rate=1.0e-9")),
    Row("public-only", "public-only", settings=(*OPEN, "epochs=4.5")),
    *(Row("dpsgd", "dpsgd", epsilon) for epsilon in (5.0, 0.7, 10.0)),
    *(Row("feature", "feature", epsilon, settings=FEATURE) for epsilon in (5.0, 0.7, 10.0)),
    Row("projected", "projected", settings=PROJECTED),
    Row("dpsgd, equal weights", "dpsgd", settings=("model.weighting=equal",)),
    Row("dpsgd, clipped by task", "dpsgd", seeds=1, settings=("model.clip=by-task",)),
    Row("dpsgd, subjects", "dpsgd", settings=SUBJECTS),
    # Last: a run without privacy ends the account of these people.
    Row("non-private", "non-private", settings=(*OPEN, "epochs=10")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=("figures", "ytf68"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="rows by name, separated by semicolons; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", help="what face/ytf68-pretrain made, for ytf68")
    parser.add_argument("--show", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [row for row in ROWS if not options.only or row.name in options.only.split(";")]
    # Seed by seed, so that a table cut short has every row once before it has any twice.
    order = sorted(((seed, row, name) for row in rows for name, seed in row.runs() if seed < options.seeds), key=lambda run: run[0])
    for seed, row, name in order:
        if options.show:
            break
        try:
            (options.out / f"{name}.taken").touch(exist_ok=False)
        except FileExistsError:
            continue
        flags = {"method": row.method, "epsilon": row.epsilon, "seed": seed, "even_so": True}
        settings = [*row.settings, *([f"model.weights={options.weights}"] if options.weights else [])]
        run_training(build_config(load_recipe(f"face/{options.dataset}"), flags, settings), options.out / name)
        print(name, flush=True)
    show(options.out, rows)


def show(out: Path, rows: list[Row]) -> None:
    """Mean ± standard deviation over the seeds that are there."""
    print(f"| method | ε | runs | {' | '.join(METRICS)} |")
    print("|" + "---|" * (len(METRICS) + 3))
    for row in rows:
        found = [read_json(out / name / "metrics.json") for name, _ in row.runs()]
        scores = [body["metrics"] for body in found if body is not None]
        if not scores:
            continue
        private = row.method not in ("public-only", "non-private")
        shown = f"{row.epsilon:g}" if private else ("—" if row.method == "public-only" else "∞")
        cells = [_spread([score[metric] for score in scores], metric) for metric in METRICS]
        print(f"| {row.name} | {shown} | {len(scores)} | {' | '.join(cells)} |", flush=True)


def _spread(values: list[float], metric: str) -> str:
    digits = 4 if metric.endswith("mse") else 2
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    main()
