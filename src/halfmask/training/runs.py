"""Opening a finished run: its settings and its model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from halfmask.errors import HalfmaskError
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.setup import pick_device


@dataclass(frozen=True)
class TrainedRun:
    """A run folder, opened."""

    folder: Path
    config: RunConfig
    task: Task
    model: nn.Module
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
    why = came_to_nothing(folder)
    if why:
        raise HalfmaskError(
            f"{folder} holds a run that came to nothing ({why}): its weights are no result, only what was paid for. Train anew"
        )
    config = build_config(load_recipe(str(folder / "config.yaml")), {})
    where = pick_device(device or config.device)
    task = task_named(config.task)(config)
    # The weights the run began with may be gone; those it ended with are in the folder.
    return TrainedRun(folder, config, task, task.open(folder / "model.safetensors").to(where).eval(), where)


def came_to_nothing(folder: Path) -> str:
    """Why a run was given up, in the words of its log; empty for one that was not."""
    lines = (folder / "log.jsonl").read_text().splitlines() if (folder / "log.jsonl").is_file() else []
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return ""
    return str(last.get("came_to_nothing", ""))


def read_json(path: Path) -> dict[str, Any] | None:
    """A file of a run folder, or None if the run has none."""
    if not path.is_file():
        return None
    body: dict[str, Any] = json.loads(path.read_text())
    return body
