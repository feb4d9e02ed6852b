"""What a plan costs, or how much noise a budget buys, before anything is trained.

>>> found = account(units=22146, batch=256, epochs=25, noise_multiplier=2.3773, delta=4e-5)
>>> round(found["epsilon"], 2), found["steps"]
(0.8, 2163)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, calibrate
from halfmask.privacy.accounting import epsilon as epsilon_of
from halfmask.privacy.adjacency import Adjacency


def account(
    units: int,
    batch: float,
    epochs: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    adjacency: str = "zero-out",
    accountant: str = "pld",
    noise_multiplier: float | None = None,
    *,
    steps: int | None = None,
    units_per_image: int = 1,
    shared_batch: bool = False,
) -> dict[str, Any]:
    """The noise multiplier for a budget, or the ε of a noise multiplier; the numbers of `halfmask account --json`.

    Args:
        units: N, how many private units there are.
        batch: B̄, the expected number of units in a step.
        epochs: how often each unit is expected to be read; or give `steps`.
        epsilon: find the noise for this budget; or give `noise_multiplier`, to find its ε.
        delta: the probability with which ε may fail; well below 1/N, or publishing one unit outright would satisfy it.
        units_per_image: also what one image with this many units in it is promised.
        shared_batch: also what is left if the exact public gradient is computed on the very people of the private batch.

    Formal guarantees: `epsilon` is an upper bound for Poisson-sampled Gaussian steps of this plan under the adjacency; see
    `halfmask.privacy.accounting`. It is infinite where there is no bound.
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise HalfmaskError("give either epsilon (to find the noise) or noise_multiplier (to find ε), and not both")
    if (epochs is None) == (steps is None):
        raise HalfmaskError("give either epochs or steps, and not both")
    if not 1 <= batch <= units:
        raise HalfmaskError(f"the batch is {batch:g} of {units} units: expected between 1 and {units}")
    if not 0 < delta < 1:
        raise HalfmaskError(f"delta is {delta}: expected a probability between 0 and 1, well below 1/N, such as 1e-5")
    if epochs is not None and not (math.isfinite(epochs) and epochs > 0):
        raise HalfmaskError(f"epochs is {epochs}: expected a number greater than 0")
    if steps is not None and steps < 1:
        raise HalfmaskError(f"steps is {steps}: expected at least 1")
    relation = Adjacency.parse(adjacency)
    rate = batch / units
    count = steps if steps is not None else math.ceil(epochs * units / batch)  # type: ignore[operator]
    if epsilon is not None:
        # The noise is what a correct run would use: a mistake does not change the noise, it changes what the noise is worth.
        noise_multiplier = calibrate(epsilon, delta, rate, count, relation, accountant)
    assert noise_multiplier is not None
    plan = SampledGaussian(noise_multiplier, rate, count, relation)
    result: dict[str, Any] = {
        "noise_multiplier": noise_multiplier,
        "epsilon": epsilon_of([plan], delta, accountant),
        "delta": delta,
        "steps": count,
        "sampling_rate": rate,
        "adjacency": relation.value,
        "accountant": accountant,
    }
    if shared_batch:
        result["epsilon_shared_batch"] = epsilon_of([replace(plan, visible_batches=True)], delta, accountant)
    if units_per_image > 1:
        result["units_per_image"] = units_per_image
        result["epsilon_image"] = epsilon_of([replace(plan, group_size=units_per_image)], delta, accountant)
    return result
