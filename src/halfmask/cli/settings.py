"""Options that several commands share, and the way from them to a run's settings."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.training.config import RunConfig

# What a user gets who names no recipe: for the method that the best recipe is made for, for those that need masks, and for all others.
_BEST_RECIPE, _BEST_METHOD, _PLAIN_RECIPE = "pose/best", "feature-projective", "pose/figures"
_MASKED_RECIPE = "action/figures"
DEFAULT_RECIPES = f"{_BEST_RECIPE}; for masked methods: {_MASKED_RECIPE}; for others than {_BEST_METHOD}: {_PLAIN_RECIPE}"

OUTPUT_PANEL, RUN_PANEL = "Output", "Where and how it runs"

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change any setting, such as optimiser.learning_rate=0.1. May be repeated; wins over all else.",
        rich_help_panel="Settings",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON on standard output.", rich_help_panel=OUTPUT_PANEL),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1 … (default: the recipe's)", rich_help_panel=RUN_PANEL),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Processor threads to use. (default: all cores)", rich_help_panel=RUN_PANEL),
]


def recipe_for(method: str | None) -> str:
    """The recipe of a run that names none."""
    from halfmask.gradients.mechanism import METHODS

    if method in (None, _BEST_METHOD):
        return _BEST_RECIPE
    # A name that is no method's is refused with the settings, where the nearest is suggested.
    return _MASKED_RECIPE if method in METHODS and METHODS[method].rest else _PLAIN_RECIPE


def resolve(recipe: str | None, flags: Mapping[str, Any], assignments: list[str] | None) -> RunConfig:
    """Defaults < recipe < flags < `--set`, checked."""
    from halfmask.training.config import build_config, load_recipe

    body = load_recipe(recipe)
    return build_config(body, flags, assignments)


def use_threads(threads: int | None) -> None:
    """Limit torch's threads, and keep libraries quiet."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    quieten()


def quieten() -> None:
    """Keep a library's remarks about its own convergence off the screen."""
    logging.getLogger("absl").setLevel(logging.ERROR)


def default_folder(recipe: str | None, task: str, method: str) -> Path:
    """`runs/<recipe or task>-<method>-<time>`."""
    return Path("runs") / f"{_folder_name(recipe or task)}-{method}-{datetime.now():%Y%m%d-%H%M%S}"


def default_sweep_folder(recipe: str) -> Path:
    """`runs/<recipe>`: without a time, for the same command goes on where it was stopped."""
    return Path("runs") / _folder_name(recipe)


def _folder_name(recipe: str) -> str:
    source = Path(recipe).stem if recipe.endswith((".yaml", ".yml")) else recipe
    return re.sub(r"[^A-Za-z0-9_.]+", "-", source).strip("-")


def numbers(text: str, option: str) -> list[float]:
    """A list such as `0.2,0.8`."""
    try:
        return [float(part) for part in names(text, option)]
    except ValueError:
        raise HalfmaskError(f"{option} is '{text}': expected numbers with commas between, such as 0.2,0.8") from None


def whole_numbers(text: str, option: str) -> list[int]:
    """A list such as `0,1,2`."""
    try:
        return [int(part) for part in names(text, option)]
    except ValueError:
        raise HalfmaskError(f"{option} is '{text}': expected whole numbers with commas between, such as 0,1,2") from None


def names(text: str, option: str) -> list[str]:
    """A list such as `dpsgd,feature`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise HalfmaskError(f"{option} is '{text}': expected values with commas between and none of them empty")
    return parts
