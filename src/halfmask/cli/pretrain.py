"""`halfmask pretrain`: initial weights from public people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import (
    OUTPUT_PANEL,
    RUN_PANEL,
    DeviceOption,
    JsonOption,
    SetOption,
    ThreadsOption,
    default_folder,
    resolve,
    use_threads,
)

_DEFAULT = "pose/pretrain"


def pretrain(
    recipe: Annotated[str, typer.Argument(help="Name or path of a recipe.")] = _DEFAULT,
    epochs: Annotated[float | None, typer.Option(help="Passes over the public people.", rich_help_panel="Training")] = None,
    assignments: SetOption = None,
    seed: Annotated[int | None, typer.Option(help="Fixes all randomness.", rich_help_panel=RUN_PANEL)] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder to write. (default: runs/<recipe>-public-<time>)",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train on public people alone, without privacy: where the initial weights of private runs come from."""
    config = resolve(recipe, {"epochs": epochs, "seed": seed, "device": device}, assignments)
    use_threads(threads)
    folder = out or default_folder(recipe, config.task, "public")

    from halfmask.cli.console import TerminalProgress, note, say, say_json
    from halfmask.report.tables import score_line
    from halfmask.training.pretrain import pretrain as train_on_public
    from halfmask.training.runs import read_json

    try:
        with TerminalProgress() as progress:
            train_on_public(config, folder, progress)
    except KeyboardInterrupt:
        note(f"stopped; {folder} holds no weights: pre-training cannot be resumed")
        raise typer.Exit(130) from None
    metrics = read_json(folder / "metrics.json")
    assert metrics is not None
    if as_json:
        say_json({"run": str(folder), "metrics": metrics})
        return
    say(f"{score_line(metrics['metrics'])}   (public people set aside)")
    # Where a task's network begins is its own setting, if it has one.
    how = "   (use them with --set model.weights=…)" if hasattr(config.model, "weights") else ""
    say(f"weights: {folder / 'model.safetensors'}{how}")
