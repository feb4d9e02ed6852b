"""`halfmask account`: what a plan costs, or how much noise a budget buys, before anything is trained."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from halfmask.cli.settings import JsonOption
from halfmask.errors import HalfmaskError

_BUDGET, _PLAN, _MISTAKES = "Budget or noise (one of the two)", "The plan", "What would change it"


def account(
    size: Annotated[int, typer.Option(min=1, help="Number of private units N.", rich_help_panel=_PLAN)],
    batch: Annotated[float, typer.Option(help="Expected number of units in a step.", rich_help_panel=_PLAN)],
    delta: Annotated[float, typer.Option(help="The probability δ with which ε may fail; well below 1/N.", rich_help_panel=_PLAN)],
    epsilon: Annotated[float | None, typer.Option(help="Find the noise multiplier for this ε.", rich_help_panel=_BUDGET)] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Find the ε of this noise multiplier σ.", rich_help_panel=_BUDGET)] = None,
    epochs: Annotated[float | None, typer.Option(help="How often each unit is expected to be read.", rich_help_panel=_PLAN)] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps, instead of --epochs.", rich_help_panel=_PLAN)] = None,
    adjacency: Annotated[
        str, typer.Option(help="What is hidden about a unit: zero-out, replace-one or add-remove.", rich_help_panel=_PLAN)
    ] = "zero-out",
    accountant: Annotated[str, typer.Option(help="pld (tighter) or rdp.", rich_help_panel=_PLAN)] = "pld",
    units_per_image: Annotated[
        int,
        typer.Option(min=1, help="Also: what one image with this many units in it is promised.", rich_help_panel=_MISTAKES),
    ] = 1,
    shared_batch: Annotated[
        bool,
        typer.Option(
            "--shared-batch",
            help="Account a public gradient computed on the same people as the private one: it reveals the batch.",
            rich_help_panel=_MISTAKES,
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the noise for a budget, or the budget of a noise."""
    from halfmask.cli.console import say, say_json
    from halfmask.cli.settings import quieten
    from halfmask.privacy.costs import account as cost

    quieten()
    if (epsilon is None) == (noise_multiplier is None):
        raise HalfmaskError("give either --epsilon (to find the noise) or --noise-multiplier (to find ε), and not both")
    if (epochs is None) == (steps is None):
        raise HalfmaskError("give either --epochs or --steps, and not both")
    found = cost(
        size,
        batch,
        epochs,
        epsilon,
        delta,
        adjacency,
        accountant,
        noise_multiplier,
        steps=steps,
        units_per_image=units_per_image,
        shared_batch=shared_batch,
    )
    result = {name: _word(value) if name.startswith("epsilon") else value for name, value in found.items()}
    if as_json:
        say_json(result)
        return
    say(f"noise multiplier σ = {result['noise_multiplier']:.5g}   ε = {_shown(result['epsilon'])}   δ = {delta:g}")
    say(f"{result['steps']:,} steps, sampling rate {result['sampling_rate']:.6g}, {adjacency}, {accountant}")
    if delta >= 1 / size:
        say(f"warning: δ is not below 1/N = {1 / size:.2g}: publishing one unit outright would satisfy it", "yellow")
    if units_per_image > 1:
        say(f"an image with {units_per_image} units: ε = {_shown(result['epsilon_image'])}")
    if shared_batch:
        say(f"with a public batch of the same people: ε = {_shown(result['epsilon_shared_batch'])} (sampling hides nothing then)")


def _word(value: float) -> float | str:
    return value if math.isfinite(value) else "infinity"


def _shown(value: float | str) -> str:
    return "∞" if isinstance(value, str) else f"{value:.4g}"
