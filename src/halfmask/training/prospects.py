"""Can a plan work at all? What its noise leaves of its signal, told before anything is spent.

A step releases the mean of clipped gradients with noise on every coordinate. The mean is at most as long as the clip norm C, which it
would be if everybody's gradient pointed the same way; the noise is about σC√d/B̄ long in d coordinates. Over T steps signal adds up and
noise averages out, so that at the very best

    signal / noise  =  √T · B̄ / (σ √d).

Nothing of this looks at anybody: N, B̄, T, σ and d are public. Where even that best case is buried in noise, training is a random walk,
and the budget buys a ruined model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfmask.errors import HalfmaskError

# Below the first, even people who all agree are ten times weaker than the noise; below the second, noise is the greater part at best.
HOPELESS, DOUBTFUL = 0.1, 1.0
_ENOUGH_STEPS = 20


@dataclass(frozen=True)
class Prospect:
    """A plan in numbers.

    Attributes:
        coordinates: how many numbers are noised in a step: trainable weights, or the dimension of a subspace.
        projected: methods that would noise fewer, in a subspace, with no less of a public half; none for one that has a subspace.
    """

    units: int
    unit: str
    batch: float
    steps: int
    noise_multiplier: float
    coordinates: int
    projected: tuple[str, ...] = ()

    @property
    def step_signal(self) -> float:
        """The most that one step's signal can be, in units of its noise."""
        return self.batch / (self.noise_multiplier * math.sqrt(self.coordinates)) if self.noise_multiplier else math.inf

    @property
    def signal(self) -> float:
        """The same over the whole run."""
        return self.step_signal * math.sqrt(self.steps)

    @property
    def affordable(self) -> int:
        """In how many coordinates the signal could at best be as long as the noise."""
        return max(1, int(self.steps * (self.batch / self.noise_multiplier) ** 2)) if self.noise_multiplier else self.coordinates

    def words(self) -> str:
        """One line for people."""
        return (
            f"{self.units:,} {self.unit}s, {self.steps:,} steps of {self.batch:g} expected, noise σ = {self.noise_multiplier:.3g} on "
            f"{self.coordinates:,} coordinates: at best the signal is {self.signal:.2g} of the noise over the run "
            f"({self.step_signal:.2g} in a step)"
        )

    def advice(self) -> str:
        """What would help."""
        smaller = "a subspace of that size or less (--set subspace.dim=…)"
        if self.projected:
            smaller = (
                "a method with a subspace of that size or less "
                f"(--method {' or '.join(self.projected)}, --set subspace.dim=…; its directions come from public records, "
                "subspace.samples, or from views, subspace.views)"
            )
        return (
            f"at most {self.affordable:,} coordinates could carry as much signal as noise here. Take {smaller}, a larger --batch, a larger "
            "--epsilon, or more people"
        )


def check_prospect(prospect: Prospect, even_so: bool) -> str | None:
    """Refuse a plan that cannot work, unless told to go on; return a warning about one that hardly can."""
    if prospect.signal >= DOUBTFUL:
        return None
    found = f"{prospect.words()}. {prospect.advice()[0].upper()}{prospect.advice()[1:]}"
    if prospect.signal < HOPELESS and not even_so:
        raise HalfmaskError(f"this plan cannot work and would spend its ε for nothing: {found}. To go on all the same: --even-so")
    return found


def suggested_batch(units: int, epochs: float, planned: int) -> int:
    """The largest expected batch that leaves enough steps to learn in, and no smaller one than was planned.

    At a given number of epochs the work is the same whatever the batch, and the signal is the stronger the larger it is.
    """
    return min(units, max(planned, int(epochs * units / _ENOUGH_STEPS)))
