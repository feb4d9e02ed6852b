"""`halfmask account`: what a plan costs, or how much noise a budget buys, before anything is trained."""

from __future__ import annotations

import math
from typing import Annotated, Any

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
    from dataclasses import replace

    from halfmask.cli.console import say, say_json
    from halfmask.cli.settings import use_threads
    from halfmask.privacy.accounting import SampledGaussian, calibrate
    from halfmask.privacy.accounting import epsilon as epsilon_of
    from halfmask.privacy.adjacency import Adjacency

    use_threads(None)
    if (epsilon is None) == (noise_multiplier is None):
        raise HalfmaskError("give either --epsilon (to find the noise) or --noise-multiplier (to find ε), and not both")
    if (epochs is None) == (steps is None):
        raise HalfmaskError("give either --epochs or --steps, and not both")
    if not 1 <= batch <= size:
        raise HalfmaskError(f"the batch is {batch:g} of {size} units: expected between 1 and {size}")
    if not 0 < delta < 1:
        raise HalfmaskError(f"delta is {delta}: expected a probability between 0 and 1, well below 1/N, such as 1e-5")
    if epochs is not None and not epochs > 0:
        raise HalfmaskError(f"epochs is {epochs}: expected a number greater than 0")
    relation = Adjacency.parse(adjacency)
    rate = batch / size
    count = steps if steps is not None else math.ceil(epochs * size / batch)  # type: ignore[operator]
    if epsilon is not None:
        # The noise is what a correct run would use: a mistake does not change the noise, it changes what the noise is worth.
        noise_multiplier = calibrate(epsilon, delta, rate, count, relation, accountant)
    assert noise_multiplier is not None
    plan = SampledGaussian(noise_multiplier, rate, count, relation)
    result: dict[str, Any] = {
        "noise_multiplier": noise_multiplier,
        "epsilon": _word(epsilon_of([plan], delta, accountant)),
        "delta": delta,
        "steps": count,
        "sampling_rate": rate,
        "adjacency": relation.value,
        "accountant": accountant,
    }
    if shared_batch:
        result["epsilon_shared_batch"] = _word(epsilon_of([replace(plan, visible_batches=True)], delta, accountant))
    if units_per_image > 1:
        result["units_per_image"] = units_per_image
        result["epsilon_image"] = _word(epsilon_of([replace(plan, group_size=units_per_image)], delta, accountant))
    if as_json:
        say_json(result)
        return
    say(f"noise multiplier σ = {noise_multiplier:.5g}   ε = {_shown(result['epsilon'])}   δ = {delta:g}")
    say(f"{count:,} steps, sampling rate {rate:.6g}, {relation.value}, {accountant}")
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
