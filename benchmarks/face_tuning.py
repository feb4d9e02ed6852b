"""How the settings of the face recipes were chosen: `python -m benchmarks.face_tuning OUT [NAME …]`.

On another drawn world (`data.seed=1`) than the one that results are quoted from, so that nobody who is judged there was looked at here.
Prints the metrics of each setting at ε = 5.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from halfmask.training.config import build_config, load_recipe
from halfmask.training.running import run_training
from halfmask.training.runs import read_json

METRICS = ("detection_accuracy", "detection_ap", "landmark_error", "visibility_mse", "pose_error", "attribute_accuracy")
LAYERS = (
    "subspace.kind=layers",
    "subspace.samples=300",
    "subspace.dim=3000",
    "subspace.project_first=true",
    "subspace.whiten=true",
    "private.optimiser=sgd",
    "private.momentum=0",
)


def settings() -> dict[str, tuple[str, tuple[str, ...]]]:
    """By name: a method, and what is set besides the recipe."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {"start": ("public-only", ("epochs=0.001", "optimiser.learning_rate=1.0e-9"))}
    for rate in (0.0001, 0.0003, 0.001, 0.003):
        found[f"open {rate:g}"] = ("non-private", (f"optimiser.learning_rate={rate}", "batch=64"))
        found[f"public-only {rate:g}"] = ("public-only", (f"optimiser.learning_rate={rate}", "batch=64", "epochs=5"))
        for epochs, batch in ((20, 512), (20, 1024), (40, 1024), (20, 2048), (60, 2048)):
            found[f"dpsgd {rate:g} {epochs}×{batch}"] = (
                "dpsgd",
                (f"optimiser.learning_rate={rate}", f"epochs={epochs}", f"batch={batch}"),
            )
    for rate in (0.0001, 0.0003, 0.001):
        for steps in (1, 4):
            shape = ("epochs=20", "batch=2048", "public.batch=64", "public.first=400", f"public.steps={steps}")
            found[f"feature {rate:g} {steps}"] = ("feature", (f"optimiser.learning_rate={rate}", *shape))
    for strategy in ("finetune", "full"):
        found[f"open {strategy}"] = ("non-private", (f"strategy={strategy}", "batch=64", "epochs=8"))
        found[f"dpsgd {strategy}"] = ("dpsgd", (f"strategy={strategy}", "batch=1024"))
    for rate in (0.03, 0.1, 0.3, 1.0, 3.0):
        for epochs in (2, 6):
            found[f"projected layers {rate:g} {epochs}×1024"] = (
                "projected",
                (*LAYERS, f"private.learning_rate={rate}", f"epochs={epochs}", "batch=1024", "clip_norm=1"),
            )
    for rate in (0.003, 0.01, 0.03):
        shape = ("epochs=20", "batch=2048", "optimiser.name=sgd", f"optimiser.learning_rate={rate}", "optimiser.weight_decay=0")
        found[f"dpsgd sgd {rate:g}"] = ("dpsgd", shape)
    for rate, epochs, batch in ((0.03, 20, 2048), (0.05, 10, 2048), (0.1, 20, 2048)):
        shape = (f"private.learning_rate={rate}", f"epochs={epochs}", f"batch={batch}", "clip_norm=1")
        found[f"projected more {rate:g} {epochs}×{batch}"] = ("projected", (*LAYERS, *shape))
        adam = ("private.optimiser=adam", "private.momentum=0.9", f"private.learning_rate={rate / 30}")
        found[f"projected adam {rate / 30:.1g} {epochs}×{batch}"] = ("projected", (*LAYERS, *shape, *adam))
    for rate in (0.01, 0.03):
        shape = ("public.first=500", "public.steps=0", "public.batch=64", "optimiser.learning_rate=0.0003", "clip_norm=1")
        private = (f"private.learning_rate={rate}", "epochs=6", "batch=1024")
        found[f"both {rate:g}"] = ("feature-projective", (*LAYERS, *shape, *private))
    found["both public"] = ("public-only", ("optimiser.learning_rate=0.0003", "batch=64", "public.batch=64", "epochs=4.5"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--set", dest="others", action="append", default=[], help="for all of them")
    parser.add_argument("--recipe", default="face/figures")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, (method, changes) in settings().items():
        if options.names and not any(name.startswith(wanted) for wanted in options.names):
            continue
        place = options.out / name.replace(" ", "_")
        started = time.monotonic()
        if not (place / "metrics.json").is_file():
            flags = {"method": method, "even_so": True}
            run_training(build_config(load_recipe(options.recipe), flags, ["data.seed=1", *changes, *options.others]), place)
        scores = (read_json(place / "metrics.json") or {})["metrics"]
        cells = "  ".join(f"{scores[metric]:8.4g}" for metric in METRICS if metric in scores)
        print(f"{name:36s} {cells}   {time.monotonic() - started:5.0f} s", flush=True)


if __name__ == "__main__":
    main()
