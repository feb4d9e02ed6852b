"""Scores become chances: told right where they say something, and the share that was right where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.metrics.calibration import FEWEST, Calibration, expected_error, fit


def drawn(count: int, slope: float, intercept: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.005, 0.08, count)
    chances = 1 / (1 + np.exp(-(slope * np.log(scores) + intercept)))
    return scores, rng.random(count) < chances


def test_the_curve_that_made_them_is_found() -> None:
    curve = fit(*drawn(20_000, 2.0, 7.0))
    assert curve is not None and curve.slope == pytest.approx(2.0, abs=0.1) and curve.intercept == pytest.approx(7.0, abs=0.4)
    scores, right = drawn(20_000, 2.0, 7.0, seed=1)
    assert expected_error(curve(scores), right) < 0.015, "on others too"
    assert expected_error(scores, right) > 0.2, "as they were, they meant nothing"
    assert curve.joints == 20_000 and curve.right == pytest.approx(right.mean(), abs=0.02) and curve.error < 0.015


def test_scores_that_say_nothing_become_the_share_that_was_right() -> None:
    rng = np.random.default_rng(0)
    curve = fit(rng.uniform(0.01, 0.1, 5000), rng.random(5000) < 0.3)
    assert curve is not None and np.allclose(curve(np.array([0.01, 0.1])), 0.3, atol=0.05)


def test_a_higher_score_is_never_the_less_likely_one() -> None:
    scores, right = drawn(5000, 3.0, 10.0)
    curve = fit(scores, ~right)
    assert curve is not None and curve.slope == 0 and np.ptp(curve(scores)) == 0


def test_few_joints_and_one_kind_alone() -> None:
    assert fit(np.full(FEWEST - 1, 0.5), np.ones(FEWEST - 1, bool)) is None
    assert fit(np.full(FEWEST, np.nan), np.ones(FEWEST, bool)) is None
    certain = fit(np.linspace(0.1, 0.9, 100), np.ones(100, bool))
    assert certain is not None and 0.9 < certain(np.array([0.5]))[0] < 1, "nothing is ever certain"


def test_there_and_back() -> None:
    curve = Calibration(2.5, 9.25, 100, 0.5, 0.02)
    assert Calibration.from_json(curve.to_json()) == curve
    assert 0 <= curve(np.array([0.0]))[0] < 1e-6
    for wrong in ({}, {"slope": "x"}, curve.to_json() | {"slope": float("nan")}):
        with pytest.raises(HalfmaskError, match=r"calibration\.json"):
            Calibration.from_json(wrong)
