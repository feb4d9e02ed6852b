"""The table on Leeds Sports Pose Extended: `python -m benchmarks.lspet WEIGHTS OUT`, where WEIGHTS is what `pose/lspet-pretrain` made.

Runs what is not there yet and prints the table of what is. Several may be started side by side: each takes the next run that nobody
has taken. A run that was cut short is resumed once its `.taken` file is removed.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from halfmask.training.config import build_config, load_recipe
from halfmask.training.loop import run_training
from halfmask.training.runs import read_json

# As published: batches of 64, 50 directions of whole gradients, the noised half added to the public one. As many public images as ours.
PUBLISHED = (
    "batch=64",
    "subspace.kind=gradients",
    "subspace.dim=50",
    "subspace.project_first=false",
    "private.optimiser=shared",
    "private.calibrate=false",
    "public.steps=1",
    "public.batch=46",
)
PLAIN = ("private.optimiser=shared", "private.calibrate=false", "optimiser.name=sgd", "optimiser.weight_decay=0")
# A third of the public steps, at less than half the rate; with it the noised half may move the weights more.
SHORTER = ("public.steps=3", "optimiser.learning_rate=0.0002", "optimiser.weight_decay=0.1", "private.learning_rate=0.012")


@dataclass(frozen=True)
class Row:
    """One line of the table: a method at an ε with its settings."""

    name: str
    method: str
    epsilon: float
    seeds: int
    settings: tuple[str, ...] = ()

    def runs(self) -> list[tuple[str, int]]:
        return [(f"{self.name}-{self.epsilon:g}-{seed}", seed) for seed in range(self.seeds)]


ROWS = (
    Row("public-only", "public-only", 0.8, 3),
    Row("ours", "feature-projective", 0.8, 3),
    Row("non-private", "non-private", 0.8, 1, ("batch=32", "private.optimiser=shared")),
    Row("dpsgd", "dpsgd", 0.8, 1, (*PLAIN, "clip_norm=1", "optimiser.learning_rate=0.003")),
    Row("public-only-shorter", "public-only", 0.8, 1, SHORTER),
    Row("ours-shorter", "feature-projective", 0.8, 1, SHORTER),
    Row("ours-shorter", "feature-projective", 0.2, 1, SHORTER),
    Row("feature-projective", "feature-projective", 0.8, 3, PUBLISHED),
    Row("ours", "feature-projective", 0.2, 1),
    Row("ours", "feature-projective", 2.0, 1),
    Row("dpsgd-smaller-c", "dpsgd", 0.8, 1, (*PLAIN, "clip_norm=0.1", "optimiser.learning_rate=0.003")),
    Row("projected", "projected", 0.8, 1, (*PLAIN, "subspace.kind=gradients", "subspace.dim=50", "subspace.project_first=false")),
    Row("feature", "feature", 0.8, 1, (*PUBLISHED, "clip_norm=0.01")),
    Row("feature-projective", "feature-projective", 0.2, 1, PUBLISHED),
    Row("feature-projective", "feature-projective", 2.0, 1, PUBLISHED),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that a table cut short has every row once before it has any twice.
    order = sorted(((seed, row, name) for row in ROWS for name, seed in row.runs()), key=lambda run: run[0])
    for seed, row, name in order:
        taken = options.out / f"{name}.taken"
        if options.show:
            break
        try:
            taken.touch(exist_ok=False)
        except FileExistsError:
            continue
        settings = [f"model.weights={options.weights}", *row.settings]
        config = build_config(load_recipe("pose/lspet"), {"method": row.method, "epsilon": row.epsilon, "seed": seed}, settings)
        run_training(config, options.out / name, resume=(options.out / name).exists())
        print(name, flush=True)
    show(options.out)


def show(out: Path) -> None:
    """Mean ± standard deviation over the seeds that are there."""
    print(f"{'':24s} {'ε':>4s}  runs  PCK@0.5        PCK@0.2")
    for row in ROWS:
        found = [read_json(out / name / "metrics.json") for name, _ in row.runs()]
        scores = [metrics["metrics"] for metrics in found if metrics is not None]
        if scores:
            cells = []
            for metric in ("pck@0.5", "pck@0.2"):
                values = [score[metric] for score in scores]
                spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.2f}{spread}")
            print(f"{row.name:24s} {row.epsilon:4g}  {len(scores):4d}  {cells[0]:13s}  {cells[1]}")


if __name__ == "__main__":
    main()
