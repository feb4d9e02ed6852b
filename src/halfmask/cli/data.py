"""`halfmask data`: datasets on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import JsonOption

app = typer.Typer(no_args_is_help=True, help="Datasets on disk.")

_HOW_MANY = "How many people"


@app.callback()
def _data() -> None:
    """Datasets on disk."""


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset folder to write.")],
    private: Annotated[int, typer.Option(min=0, help="People to protect.", rich_help_panel=_HOW_MANY)] = 60,
    public: Annotated[int, typer.Option(min=0, help="Public people.", rich_help_panel=_HOW_MANY)] = 60,
    test: Annotated[int, typer.Option(min=0, help="People to score on.", rich_help_panel=_HOW_MANY)] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Which world to draw.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write people of the embedded world as a folder dataset: an example of the format."""
    from halfmask.cli.console import TerminalProgress, say, say_json
    from halfmask.data.export import export_figures

    counts = {"private": private, "public": public, "test": test}
    with TerminalProgress() as progress:
        pictures = export_figures(folder, counts, seed, progress.stage)
    if as_json:
        say_json({"folder": str(folder), "pictures": pictures, "people": counts})
        return
    say(f"{sum(counts.values())} people on {pictures} pictures: {folder / 'annotations.json'}")
    say(f"train on them with: halfmask train --data {folder}")
