"""How well scores tell two groups apart, with honest intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from halfmask.errors import HalfmaskError

# A rate is only spoken of where the group it is a share of could show it: 1 % needs 100 people, 0.1 % two thousand.
_NEEDED = {0.01: 100, 0.001: 2000}


@dataclass(frozen=True)
class Measured:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Rounded, for a file."""
        return {name: round(float(number), 5) for name, number in vars(self).items()}

    def holds(self, value: float) -> bool:
        """Whether the interval contains it."""
        return self.low <= value <= self.high


def share(right: float, total: int) -> Measured:
    """A proportion with its Clopper–Pearson interval; the count may be a mean of counts."""
    low = 0.0 if right == 0 else float(stats.beta.ppf(0.025, right, total - right + 1))
    high = 1.0 if right == total else float(stats.beta.ppf(0.975, right + 1, total - right))
    return Measured(right / total, low, high)


def auc(members: np.ndarray, others: np.ndarray) -> Measured:
    """The probability that a member scores higher than a stranger, with DeLong's interval.

    ½ is chance. Ties count half.
    """
    _check(members, others)
    below = np.searchsorted(np.sort(others), members, side="left")
    upto = np.searchsorted(np.sort(others), members, side="right")
    of_members = (below + upto) / 2 / len(others)
    below = np.searchsorted(np.sort(members), others, side="left")
    upto = np.searchsorted(np.sort(members), others, side="right")
    of_others = 1 - (below + upto) / 2 / len(members)
    value = float(of_members.mean())
    error = float(np.sqrt(of_members.var(ddof=1) / len(members) + of_others.var(ddof=1) / len(others)))
    reach = float(stats.norm.ppf(0.975)) * error
    return Measured(value, max(0.0, value - reach), min(1.0, value + reach))


def caught_at(members: np.ndarray, others: np.ndarray, false_alarms: float, draws: int = 2000, seed: int = 0) -> Measured:
    """The share of members caught when at most `false_alarms` of strangers are accused, with a bootstrap interval over both groups."""
    _check(members, others)
    rng = np.random.default_rng(seed)
    resampled = [_caught(rng.choice(members, len(members)), rng.choice(others, len(others)), false_alarms) for _ in range(draws)]
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Measured(_caught(members, others, false_alarms), float(low), float(high))


def _caught(members: np.ndarray, others: np.ndarray, false_alarms: float) -> float:
    # The threshold is a stranger's score, and a member must score above it: at most this many strangers do.
    allowed = int(np.floor(false_alarms * len(others)))
    threshold = np.partition(others, len(others) - 1 - allowed)[len(others) - 1 - allowed]
    return float((members > threshold).mean())


def separation(members: np.ndarray, others: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """AUC, and the share caught at 1 % (and, with enough strangers, 0.1 %) false alarms."""
    body: dict[str, Any] = {"members": len(members), "strangers": len(others), "auc": auc(members, others).to_json()}
    for rate, needed in _NEEDED.items():
        if len(others) >= needed:
            body[f"tpr@{rate:g}"] = caught_at(members, others, rate, seed=seed).to_json()
    return body


def at_chance(result: dict[str, Any]) -> bool:
    """Whether chance is inside every interval of a `separation`."""
    inside = [result["auc"]["low"] <= 0.5 <= result["auc"]["high"]]
    inside += [result[f"tpr@{rate:g}"]["low"] <= rate for rate in _NEEDED if f"tpr@{rate:g}" in result]
    return all(inside)


def _check(members: np.ndarray, others: np.ndarray) -> None:
    if min(len(members), len(others)) < 10:
        raise HalfmaskError(f"{len(members)} members and {len(others)} strangers: expected at least 10 of each to tell anything")
    if not (np.isfinite(members).all() and np.isfinite(others).all()):
        raise HalfmaskError("the model gives losses that are not finite: its training diverged, there is nothing to attack")
