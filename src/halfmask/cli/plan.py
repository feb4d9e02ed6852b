"""`halfmask plan`: what a run would mean for this many people, before anything is spent."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from halfmask.cli.settings import DEFAULT_RECIPES, JsonOption, SetOption, recipe_for, resolve, use_threads

_PRIVACY, _TRAINING = "Privacy", "Training"


def plan(
    recipe: Annotated[
        str | None, typer.Argument(help=f"Name (see 'halfmask recipes') or path of a recipe. (default: {DEFAULT_RECIPES})")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="'figures', a dataset folder, or a name below $HALFMASK_DATA.", rich_help_panel=_TRAINING)
    ] = None,
    method: Annotated[str | None, typer.Option(help="The method to plan for.", rich_help_panel=_PRIVACY)] = None,
    epsilon: Annotated[float | None, typer.Option(help="The privacy loss ε to stay within.", rich_help_panel=_PRIVACY)] = None,
    delta: Annotated[float | None, typer.Option(help="Its δ; well below 1/N.", rich_help_panel=_PRIVACY)] = None,
    unit: Annotated[str | None, typer.Option(help="What is protected: crop, image or subject.", rich_help_panel=_PRIVACY)] = None,
    adjacency: Annotated[str | None, typer.Option(help="zero-out, replace-one or add-remove.", rich_help_panel=_PRIVACY)] = None,
    batch: Annotated[int | None, typer.Option(help="Expected number of units in a step.", rich_help_panel=_TRAINING)] = None,
    epochs: Annotated[float | None, typer.Option(help="How often each unit is expected to be read.", rich_help_panel=_TRAINING)] = None,
    strategy: Annotated[str | None, typer.Option(help="finetune, top, full or scratch.", rich_help_panel=_TRAINING)] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run without making it: overlaps, units, steps, noise, expected signal, and what would be left of budgets.

    Nothing is spent and nothing is trained. Exits with code 2 if the run would be refused.
    """
    from halfmask.cli.console import TerminalProgress, say, say_json
    from halfmask.training.plan import plan_run

    flags: dict[str, Any] = {
        "method": method,
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit,
        "adjacency": adjacency,
        "batch": batch,
        "epochs": epochs,
        "strategy": strategy,
        "data": None if data is None else {"name": data},
    }
    config = resolve(recipe or recipe_for(method), flags, assignments)
    use_threads(None)
    with TerminalProgress() as progress:
        found = plan_run(config, progress)
    if as_json:
        say_json(found.to_json())
        return
    for line, style in found.lines():
        say(line, style)
    if found.problems:
        raise typer.Exit(2)
