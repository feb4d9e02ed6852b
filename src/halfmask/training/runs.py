"""Opening a finished run: its settings and its model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError
from halfmask.models.checkpoints import read_state
from halfmask.models.simcc import PoseModel
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.setup import build_model, pick_device


@dataclass(frozen=True)
class TrainedRun:
    """A run folder, opened."""

    folder: Path
    config: RunConfig
    model: PoseModel
    device: torch.device


def open_run(folder: Path, device: str | None = None) -> TrainedRun:
    """Read a run's settings and released weights.

    Args:
        device: where to put the model; the run's own choice if not given.
    """
    if not folder.is_dir():
        raise HalfmaskError(f"no run at {folder}: give the folder that 'halfmask train' wrote")
    for name in ("config.yaml", "model.safetensors"):
        if not (folder / name).is_file():
            raise HalfmaskError(f"{folder} has no {name}: expected the folder of a run that 'halfmask train' wrote to its end")
    config = build_config(load_recipe(str(folder / "config.yaml")), {})
    where = pick_device(device or config.device)
    # The weights the run began with may be gone; those it ended with are in the folder.
    settings = replace(config.model, weights=str(folder / "model.safetensors"))
    model = build_model(settings, joints=_joints_of(folder / "model.safetensors"))
    return TrainedRun(folder, config, model.to(where).eval(), where)


def _joints_of(path: Path) -> int:
    """How many joints a model places: one map of its head for each. Another kind of file is refused where its weights are read."""
    weight = read_state(path).get("head.conv.weight")
    return len(MPII) if weight is None else len(weight)


def read_json(path: Path) -> dict[str, Any] | None:
    """A file of a run folder, or None if the run has none."""
    if not path.is_file():
        return None
    body: dict[str, Any] = json.loads(path.read_text())
    return body
