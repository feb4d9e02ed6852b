"""Intervals that hold as often as they say, and rates that are not spoken of where nobody could measure them."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.audit.separation import at_chance, auc, caught_at, separation
from halfmask.errors import HalfmaskError


def test_auc_by_hand() -> None:
    members, others = np.arange(10.0, 20.0), np.arange(0.0, 10.0)
    assert auc(members, others).value == 1.0 and auc(others, members).value == 0.0
    assert auc(members, members).value == pytest.approx(0.5), "ties count half"


def test_the_interval_of_auc_covers_the_truth() -> None:
    """Gaussians one apart have AUC Φ(1/√2) = 0.760; of 300 intervals about 285 hold it."""
    rng = np.random.default_rng(0)
    held = sum(auc(rng.normal(1, 1, 80), rng.normal(0, 1, 120)).holds(0.7602) for _ in range(300))
    assert 270 <= held <= 297


def test_the_interval_of_the_rate_covers_the_truth() -> None:
    """At 10 % false alarms Gaussians two apart are caught with probability Φ(2 − 1.2816) = 0.764."""
    rng = np.random.default_rng(0)
    held = sum(caught_at(rng.normal(2, 1, 150), rng.normal(0, 1, 300), 0.1, draws=200).holds(0.7637) for _ in range(100))
    assert 85 <= held <= 100


def test_no_more_strangers_are_accused_than_allowed() -> None:
    others = np.arange(200.0)
    assert caught_at(np.full(10, 197.5), others, 0.01).value == 1.0
    assert caught_at(np.full(10, 196.5), others, 0.01).value == 0.0


def test_rates_need_enough_strangers() -> None:
    rng = np.random.default_rng(0)
    assert "tpr@0.01" not in separation(rng.normal(size=50), rng.normal(size=99))
    assert "tpr@0.001" not in separation(rng.normal(size=50), rng.normal(size=1999))
    assert {"tpr@0.01", "tpr@0.001"} <= separation(rng.normal(size=50), rng.normal(size=2000)).keys()


def test_chance_is_told_from_a_leak() -> None:
    rng = np.random.default_rng(1)
    assert at_chance(separation(rng.normal(size=200), rng.normal(size=300)))
    assert not at_chance(separation(rng.normal(0.6, 1, 200), rng.normal(size=300)))


def test_losses_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="diverged"):
        auc(np.full(20, np.nan), np.zeros(20))
    with pytest.raises(HalfmaskError, match="at least 10"):
        auc(np.zeros(3), np.zeros(20))
