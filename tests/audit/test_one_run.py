"""From guesses to a lower bound: a valid p-value, and known cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from halfmask.audit.one_run import Guesses, guess, largest_provable
from halfmask.errors import HalfmaskError


def test_without_delta_the_p_value_is_a_binomial_tail() -> None:
    for epsilon in (0.0, 0.5, 2.0):
        chance = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert Guesses(1000, 200, 150).refuted(epsilon, 0.0) == pytest.approx(stats.binom.sf(149, 200, chance), rel=1e-9)


def test_delta_only_ever_weakens_the_claim() -> None:
    bounds = [Guesses(1000, 200, 180).lower_bound(delta, 1e-3) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[3]


def test_known_bounds() -> None:
    assert Guesses(1000, 200, 100).lower_bound(1e-6, 1e-3) == 0.0
    assert largest_provable(1000, 200, 1e-6, 1e-3) == pytest.approx(3.3, abs=0.1)
    assert 0.2 < Guesses(1000, 200, 138).lower_bound(1e-6, 1e-3) < 0.45


def test_a_correct_mechanism_is_rarely_accused() -> None:
    """Randomised response is exactly ε-private and worst: over 2,000 runs the bound at p = 0.05 passes ε in at most 5 % (+4σ)."""
    epsilon, rng = 0.7, np.random.default_rng(0)
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    accused = sum(Guesses(200, 200, int(v)).refuted(epsilon, 0.0) <= 0.05 for v in rng.binomial(200, chance, 2000))
    assert 0.02 < accused / 2000 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_guesses_are_the_extremes() -> None:
    present = np.array([True, False, True, False, True, False])
    assert guess(np.array([9.0, -9, 8, -8, 0, 0]), present, 4) == Guesses(6, 4, 4)
    assert guess(np.array([-9.0, 9, -8, 8, 0, 0]), present, 4).right == 0
    with pytest.raises(HalfmaskError, match="7 guesses about 6"):
        guess(np.zeros(6), present, 7)
