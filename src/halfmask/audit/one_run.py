"""From guesses about who took part to a lower bound on ε.

Each of m canaries is in the data by a fair coin. An attacker sees the release and names r of them, "in" or "out". A mechanism that is
(ε, δ)-private lets no attacker be right much more often than e^ε/(1+e^ε) of the time, so many right guesses refute a claimed ε.
One run gives m coins, where the classical test needs m runs (Steinke, Nasr and Jagielski, 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from halfmask.errors import HalfmaskError

# The bound is searched for up to here; more than the guesses can ever show.
_LARGEST = 20.0


@dataclass(frozen=True)
class Guesses:
    """How an attacker did: `right` of `made` guesses about `canaries` coins."""

    canaries: int
    made: int
    right: int

    def refuted(self, epsilon: float, delta: float) -> float:
        """The probability that any attacker is right this often against an (ε, δ)-private mechanism.

        A valid p-value: P[Bin(r, e^ε/(1+e^ε)) ≥ v], plus what δ lets slip, 2mδ · max_i P[v > Bin ≥ v − i]/i.
        """
        chance = 1 / (1 + math.exp(-epsilon))
        steps = np.arange(1, self.right + 1)
        below = stats.binom.cdf(self.right - 1, self.made, chance)
        slipped = (below - stats.binom.cdf(self.right - steps - 1, self.made, chance)) / steps
        extra = 2 * self.canaries * delta * (float(slipped.max()) if len(slipped) else 0.0)
        return min(1.0, float(stats.binom.sf(self.right - 1, self.made, chance)) + extra)

    def lower_bound(self, delta: float, p_value: float) -> float:
        """The largest ε that these guesses refute; a mechanism with a smaller one would do this with probability at most `p_value`."""
        if self.refuted(0.0, delta) > p_value:
            return 0.0
        low, high = 0.0, _LARGEST
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if self.refuted(middle, delta) <= p_value else (low, middle)
        return low


def guess(scores: np.ndarray, present: np.ndarray, made: int) -> Guesses:
    """Name the highest scores "in" and the lowest "out", half of the guesses each, and count.

    Ties are broken by position, which is independent of the coins.
    """
    if not 2 <= made <= len(scores):
        raise HalfmaskError(f"{made} guesses about {len(scores)} canaries: expected between 2 and the number of canaries")
    order = np.argsort(scores, kind="stable")
    half = made // 2
    right = int((~present[order[:half]]).sum() + present[order[len(order) - half :]].sum())
    return Guesses(len(scores), 2 * half, right)


def largest_provable(canaries: int, made: int, delta: float, p_value: float) -> float:
    """What even a perfect attacker could prove: a claim above this cannot be refuted with so few guesses."""
    return Guesses(canaries, made, made).lower_bound(delta, p_value)
