"""`halfmask recipes`: what can be run by name, what a recipe comes to, and what can be set."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from halfmask.cli.settings import JsonOption, SetOption

app = typer.Typer(help="What can be run by name, and what can be set.", invoke_without_command=True)


@app.callback()
def recipes(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the recipes inside the package, each with what it says of itself."""
    if context.invoked_subcommand is not None:
        return
    from halfmask.cli.console import say, say_json
    from halfmask.training.config import recipe_names, recipe_text

    found = {name: description(recipe_text(name)) for name in recipe_names()}
    if as_json:
        say_json([{"name": name, "about": about} for name, about in found.items()])
        return
    width = max(map(len, found), default=0)
    for name, about in found.items():
        say(f"{name:<{width}}  {about}".rstrip())


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name or path of a recipe.")],
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a recipe with every default resolved: a recipe itself, to change and to run."""
    from halfmask.cli.console import say_json
    from halfmask.cli.settings import resolve
    from halfmask.training.config import recipe_text

    config = resolve(name, {}, assignments)
    if as_json:
        say_json(config.plain())
        return
    # Plain print: Rich would read :words: between colons as pictures.
    print(opening_comment(recipe_text(name)) + config.to_yaml(), end="")


@app.command()
def settings(as_json: JsonOption = False) -> None:
    """Print every setting with its meaning, its default and what is expected."""
    from dataclasses import asdict

    from halfmask.cli.console import say_json
    from halfmask.report.settings_page import all_entries, settings_page

    if as_json:
        say_json([asdict(entry) for entry in all_entries()])
        return
    print(settings_page(), end="")


def description(text: str) -> str:
    """What a recipe says of itself: the first sentence of the comment that it opens with, whole."""
    whole = " ".join(line.lstrip("# ").rstrip() for line in opening_comment(text).splitlines())
    # A full stop within a sentence ("et al. (2024)", "σ = 0.5") is not followed by a capital.
    end = re.search(r"[.!?](?=\s+[A-Z`]|$)", whole)
    return whole if end is None else whole[: end.end()]


def opening_comment(text: str) -> str:
    """The comment that a recipe opens with, line by line; empty if it opens with something else."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line + "\n")
    return "".join(lines)
