"""The table on Leeds Sports Pose Extended: `python -m benchmarks.lspet WEIGHTS OUT`, where WEIGHTS is what `pose/lspet-pretrain` made.

Runs what is not there yet and prints the table of what is. Several may be started side by side: each takes the next run that nobody
has taken. A run that was cut short is resumed once its `.taken` file is removed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from halfmask.data.datasets import load_test
from halfmask.data.pose_records import PoseRecords
from halfmask.models.pose import build_model
from halfmask.tasks.pose import PoseTask, evaluate
from halfmask.training.config import build_config, load_recipe
from halfmask.training.running import run_training
from halfmask.training.runs import read_json
from halfmask.training.strategy import with_lower_features

# What all rows but ours leave out.
WITHOUT = ("augment.times=0", "subspace.whiten=false", "private.calibrate=false", "private.optimiser=shared", "public.first=0")
# As published: batches of 64, 50 directions of whole gradients, the noised half added to the public one. As many public images as ours.
PUBLISHED = (
    *WITHOUT,
    "epochs=3",
    "batch=64",
    "subspace.kind=gradients",
    "subspace.dim=50",
    "subspace.project_first=false",
    "public.steps=1",
    "public.batch=46",
)
PLAIN = (*WITHOUT, "epochs=3", "batch=450", "optimiser.name=sgd", "optimiser.weight_decay=0", "optimiser.learning_rate=0.003")
ONCE = ("augment.times=0",)


@dataclass(frozen=True)
class Row:
    """One line of the table: a method at an ε with its settings.

    Attributes:
        after: the row of the same seed whose weights it starts from, in place of taking the same public steps once more.
    """

    name: str
    method: str
    epsilon: float
    seeds: int
    settings: tuple[str, ...] = ()
    after: str = ""

    def runs(self) -> list[tuple[str, int]]:
        return [(f"{self.name}-{self.epsilon:g}-{seed}", seed) for seed in range(self.seeds)]


ROWS = (
    Row("public-only", "public-only", 0.8, 3, ("augment.times=0",)),
    Row("ours", "feature-projective", 0.8, 3, after="public-only"),
    # The rate goes down with the noise, so that noise alone moves the weights about as far.
    Row("ours", "feature-projective", 0.2, 3, ("private.learning_rate=0.8",), after="public-only"),
    Row("ours", "feature-projective", 2.0, 1, ("private.learning_rate=3",), after="public-only"),
    Row("non-private", "non-private", 0.8, 1, (*WITHOUT, "epochs=3", "batch=32")),
    Row("dpsgd", "dpsgd", 0.8, 1, (*PLAIN, "clip_norm=1")),
    Row("feature-projective", "feature-projective", 0.8, 3, PUBLISHED),
    Row("projected", "projected", 0.8, 1, (*PLAIN, "subspace.kind=gradients", "subspace.dim=50", "subspace.project_first=false")),
    Row("feature", "feature", 0.8, 1, (*PUBLISHED, "clip_norm=0.01")),
    Row("feature-projective", "feature-projective", 0.2, 1, PUBLISHED),
    Row("feature-projective", "feature-projective", 2.0, 1, PUBLISHED),
    Row("dpsgd-smaller-c", "dpsgd", 0.8, 1, (*PLAIN, "clip_norm=0.1")),
    # What parts of ours bring: without several showings, and then without one part more.
    Row("one-showing", "feature-projective", 0.8, 3, (*ONCE, "private.learning_rate=3"), after="public-only"),
    Row(
        "one-showing-plain",
        "feature-projective",
        0.8,
        1,
        (*ONCE, "private.learning_rate=0.6", "subspace.whiten=false"),
        after="public-only",
    ),
    Row(
        "one-showing-sure", "feature-projective", 0.8, 1, (*ONCE, "private.learning_rate=3", "private.calibrate=false"), after="public-only"
    ),
    Row("one-showing-few", "feature-projective", 0.8, 1, (*ONCE, "private.learning_rate=3", "subspace.dim=500"), after="public-only"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="rows by name, separated by commas; all by default")
    parser.add_argument("--show", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    # Seed by seed, so that a table cut short has every row once before it has any twice.
    rows = [row for row in ROWS if not options.only or row.name in options.only.split(",")]
    order = sorted(((seed, row, name) for row in rows for name, seed in row.runs()), key=lambda run: run[0])
    for seed, row, name in order:
        taken = options.out / f"{name}.taken"
        if options.show:
            break
        try:
            taken.touch(exist_ok=False)
        except FileExistsError:
            continue
        weights, settings = options.weights, list(row.settings)
        if row.after:
            weights = options.out / f"{row.after}-0.8-{seed}" / "model.safetensors"
            settings += ["public.first=0"]
            if not weights.is_file():
                taken.unlink()
                continue
        settings += [f"model.weights={weights}"]
        config = build_config(load_recipe("pose/lspet"), {"method": row.method, "epsilon": row.epsilon, "seed": seed}, settings)
        run_training(config, options.out / name, resume=(options.out / name).exists())
        print(name, flush=True)
    show(options.out)


def show(out: Path) -> None:
    """Mean ± standard deviation over the seeds that are there: of one look at each crop, and with the mirror image besides."""
    print(f"{'':20s} {'ε':>4s}  runs  PCK@0.5        PCK@0.2        with flip test: @0.5, @0.2")
    for row in ROWS:
        folders = [out / name for name, _ in row.runs() if (out / name / "metrics.json").is_file()]
        if folders:
            looks = [one_look(folder) for folder in folders]
            flips = [(read_json(folder / "metrics.json") or {})["metrics"] for folder in folders]
            cells = [
                f"{_spread([score[metric] for score in scores]):13s}" for scores in (looks, flips) for metric in ("pck@0.5", "pck@0.2")
            ]
            print(f"{row.name:20s} {row.epsilon:4g}  {len(folders):4d}  {'  '.join(cells)}", flush=True)


def one_look(folder: Path) -> dict[str, float]:
    """The scores of a run's model without flip test, computed once."""
    known = read_json(folder / "one_look.json")
    if known is None:
        config = build_config(load_recipe("pose/lspet"), {}, [f"model.weights={folder / 'model.safetensors'}"])
        test = load_test(config.data, config.model.input_size)
        model = build_model(config.model, joints=test.joints.shape[1]).eval()
        task = PoseTask(config)
        seen = with_lower_features(test, task, task.lower(model), mirrored=True)
        assert isinstance(seen, PoseRecords)
        known, _ = evaluate(model, seen, flip_test=False)
        (folder / "one_look.json").write_text(json.dumps(known))
    return known


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
