"""What a network's score of a joint is worth: how likely a joint of that score is where the network says.

A network that was trained with label smoothing is never sure: the score of a joint that is placed exactly is about 0.07, and means nothing
to anybody. Fitted on public people whom the network was not trained on, a logistic curve over the logarithm of the score (Platt's scaling)
turns it into a chance: that the joint is within a fifth of the person's torso length of where an annotator puts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from halfmask.errors import HalfmaskError

# Scores of nothing have no logarithm.
SMALLEST = 1e-6
# Fewer joints say nothing: the curve would be a guess.
FEWEST = 50
# How far from its place a joint may be and still be right, in torso lengths.
WITHIN = 0.2


@dataclass(frozen=True)
class Calibration:
    """From a score s to a chance: 1 / (1 + exp(−(slope · ln s + intercept))).

    Attributes:
        slope: never negative, so that a joint with a higher score is never the less likely one.
        joints: how many joints of public people it was fitted on.
        right: the share of them that were right: what every score would mean if scores said nothing.
        error: how far the chances are from the shares that were right, in ten groups of the people it was fitted on, on average.
    """

    slope: float
    intercept: float
    joints: int
    right: float
    error: float

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Chances."""
        return np.asarray(expit(self.slope * np.log(np.maximum(scores, SMALLEST)) + self.intercept))

    def to_json(self) -> dict[str, Any]:
        """For `calibration.json`."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Calibration:
        """Read what `to_json` wrote."""
        try:
            slope, intercept, right, error = (float(body[name]) for name in ("slope", "intercept", "right", "error"))
            found = cls(slope, intercept, int(body["joints"]), right, error)
        except (KeyError, TypeError, ValueError):
            found = cls(math.nan, math.nan, 0, math.nan, math.nan)
        if not (math.isfinite(found.slope) and math.isfinite(found.intercept)):
            raise HalfmaskError("a calibration has no finite slope and intercept: expected what a run wrote as calibration.json")
        return found


def fit(scores: np.ndarray, right: np.ndarray) -> Calibration | None:
    """The curve that makes what happened likeliest; None where too few joints are known.

    Args:
        scores: of some joints, all of public people.
        right: whether each was where it should be.
    """
    scores, right = np.asarray(scores, np.float64).ravel(), np.asarray(right, bool).ravel()
    known = np.isfinite(scores)
    scores, right = scores[known], right[known]
    if len(scores) < FEWEST:
        return None
    logarithms = np.log(np.maximum(scores, SMALLEST))
    # As Platt has it: nothing is ever certain, whatever few people showed.
    wanted = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))
    middle = float(logarithms.mean())

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        shifted = logarithms - middle
        told = values[0] * shifted + values[1]
        off = expit(told) - wanted
        return float((np.logaddexp(0, told) - wanted * told).mean()), np.array([(off * shifted).mean(), off.mean()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0, 50), (-50, 50)])
    slope, intercept = (float(value) for value in found.x)
    curve = Calibration(slope, intercept - slope * middle, len(scores), float(right.mean()), math.nan)
    return Calibration(curve.slope, curve.intercept, curve.joints, curve.right, expected_error(curve(scores), right))


def expected_error(chances: np.ndarray, right: np.ndarray, groups: int = 10) -> float:
    """How far chances are from what came true: mean |chance − share right| over groups of equal size, by chance (ECE)."""
    order = np.argsort(chances, kind="stable")
    parts = [part for part in np.array_split(order, groups) if len(part)]
    return float(sum(len(part) * abs(chances[part].mean() - right[part].mean()) for part in parts) / max(1, len(order)))
