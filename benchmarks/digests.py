"""Are the weights still what they were? SHA-256 of the weights that short runs end with, one for each method and for the options of a step.

Before a change that should change no number, and after it:

    python benchmarks/digests.py --out before.json
    python benchmarks/digests.py --against before.json

One thread and a seed for coins and noise, so that sums have one order: equal digests mean that every step of every run was the same, byte
for byte. They are worth something on one machine and one version of torch alone, so none is kept here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import torch

from halfmask.gradients.mechanism import METHODS
from halfmask.training.config import build_config, load_recipe
from halfmask.training.running import run_training

_SMALL = ["data.private=120", "data.public=140", "data.test=8", "subspace.samples=40", "subspace.dim=20", "batch=16", "epochs=0.5"]
_TINY = ["data.private=40", "data.public=60", "subspace.samples=16", "subspace.dim=8", "batch=8", "epochs=0.6", "model.weights=null"]
_TINY += ["model.input_size=[64,48]", "data.test=8"]
_OPTIONS = {
    "finetune": ("feature-projective", ["strategy=finetune"]),
    "full": ("dpsgd", ["strategy=full"]),
    "scratch": ("feature", ["strategy=scratch"]),
    "showings": ("feature", ["strategy=full", "augment.times=2"]),
    "copies": ("feature-projective", ["strategy=top", "augment.times=2", "augment.copies=2"]),
    "residual": ("feature", ["strategy=top", "private.residual=true"]),
    "follow": ("projected", ["private.follow=0.5", "subspace.project_first=true"]),
    "layers": ("feature-projective", ["subspace.kind=layers", "subspace.project_first=true", "private.optimiser=sgd"]),
    "adam": ("feature-projective", ["private.optimiser=adam", "subspace.dim=0", "subspace.most=10"]),
    "calibrate": ("feature-projective", ["private.calibrate=true", "optimiser.average=0.9"]),
    "first": ("feature", ["public.first=3", "public.steps=2", "optimiser.name=adamw"]),
    "shared batch": ("feature", ["public.shared_batch=true"]),
    "views in the basis": ("feature-projective", ["subspace.views=12"]),
    "basis of private people": ("projected", ["subspace.source=private"]),
    "subjects": ("dpsgd", ["unit=subject", "records_per_unit=3"]),
    "rehearsal": ("feature-projective", ["rehearsal=true"]),
}


def digests() -> dict[str, str]:
    recipe = load_recipe("pose/figures")
    # Those that show the noised half what a view leaves have no meaning for poses.
    runs = {name: (name, _SMALL) for name, method in METHODS.items() if not method.rest}
    runs |= {name: (method, [*_TINY, *settings]) for name, (method, settings) in _OPTIONS.items()}
    found = {}
    for name, (method, settings) in runs.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HALFMASK_HOME"] = f"{folder}/home"
            config = build_config(recipe, {"method": method, "insecure_seed": 1, "even_so": True, "device": "cpu"}, settings)
            run = run_training(config, Path(folder) / "run")
            found[name] = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
        print(f"{name:24} {found[name][:16]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = digests()
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2))
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        changed = [name for name in before if found.get(name) != before[name]]
        print(f"{len(before) - len(changed)} of {len(before)} are the same" + (f"; changed: {', '.join(changed)}" if changed else ""))
        sys.exit(bool(changed))


if __name__ == "__main__":
    main()
