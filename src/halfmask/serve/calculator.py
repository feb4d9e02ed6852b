"""The calculator: the numbers of `halfmask account`, and the curves around them, from the same function.

The curves cost one look at the accountant a point: ε for other noise at the same plan, and ε as training goes on. To find the noise costs
twenty or more, so it is done once. Accountants are loaded when they are first asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from halfmask.errors import HalfmaskError

UNITS = ("crop", "image", "subject", "region", "clip", "video")
_LARGEST_SIZE, _MOST_STEPS, _MOST_IN_ONE = 10**9, 500_000, 1000
# Times the noise that was found, and shares of the training.
_NOISES = (0.6, 0.75, 1.0, 1.3, 1.7, 2.2, 3.0)
_SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Plan:
    """What is asked: as the options of `halfmask account`, and the word for a unit."""

    size: int
    batch: float
    epochs: float
    epsilon: float
    delta: float
    adjacency: str = "zero-out"
    accountant: str = "pld"
    units_per_image: int = 1
    unit: str = "crop"

    @property
    def command(self) -> str:
        """What gives the same numbers in a terminal."""
        words = ["halfmask account"]
        for name in ("size", "batch", "epochs", "epsilon", "delta", "adjacency", "accountant"):
            value = getattr(self, name)
            # As short as says it exactly.
            short = f"{value:g}" if isinstance(value, float) else str(value)
            words.append(f"--{name} {short if isinstance(value, str | int) or float(short) == value else repr(value)}")
        return " ".join(words) + (f" --units-per-image {self.units_per_image}" if self.units_per_image > 1 else "")


def parse(query: Mapping[str, str]) -> Plan:
    """Read a plan from the words of a form; all that is wrong with it is told at once."""
    kinds: dict[str, Callable[[str], Any]] = {"size": _whole, "units_per_image": _whole, "adjacency": str, "accountant": str, "unit": str}
    kinds |= dict.fromkeys(("batch", "epochs", "epsilon", "delta"), _number)
    wrong = [f"{_short(name)} is not asked for" for name in query if name not in kinds]
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        text = query.get(name, "").strip()
        if not text and name in ("size", "batch", "epochs", "epsilon", "delta"):
            wrong.append(f"{name} is missing")
        elif text:
            try:
                found[name] = kind(text)
            except ValueError as error:
                wrong.append(f"{name} is '{_short(text)}': expected {error}")
    if not wrong:
        plan = Plan(**found)
        wrong = list(_out_of_range(plan))
    if wrong:
        raise HalfmaskError("; ".join(wrong))
    return plan


def _out_of_range(plan: Plan) -> Iterator[str]:
    if not 1 <= plan.size <= _LARGEST_SIZE:
        yield f"size is {plan.size}: expected a number of units from 1 to {_LARGEST_SIZE:,}"
    elif not 1 <= plan.batch <= plan.size:
        yield f"batch is {plan.batch:g}: expected between 1 and the {plan.size} units there are"
    elif plan.epochs > 0 and plan.epochs * plan.size / plan.batch > _MOST_STEPS:
        yield f"these are more than {_MOST_STEPS:,} steps, which would take long to account: ask '{plan.command}' in a terminal"
    if not plan.epochs > 0:
        yield f"epochs is {plan.epochs:g}: expected a number above 0"
    if not 0 < plan.epsilon <= 1000:
        yield f"epsilon is {plan.epsilon:g}: expected above 0 and at most 1000"
    if not 0 < plan.delta < 1:
        yield f"delta is {plan.delta:g}: expected a probability between 0 and 1, well below 1/N, such as 1e-5"
    if not 1 <= plan.units_per_image <= _MOST_IN_ONE:
        yield f"units_per_image is {plan.units_per_image}: expected from 1 to {_MOST_IN_ONE}"
    if plan.unit not in UNITS:
        yield f"unit is '{_short(plan.unit)}': expected one of {', '.join(UNITS)}"


@lru_cache(maxsize=256)
def numbers(plan: Plan) -> Mapping[str, Any]:
    """Exactly what `halfmask account --json` prints for the plan."""
    from halfmask.privacy.costs import account

    return _written(
        account(
            plan.size,
            plan.batch,
            plan.epochs,
            plan.epsilon,
            plan.delta,
            plan.adjacency,
            plan.accountant,
            units_per_image=plan.units_per_image,
        )
    )


@lru_cache(maxsize=4096)
def _cost(plan: Plan, noise_multiplier: float, steps: int) -> float | str:
    from halfmask.privacy.costs import account

    found = account(
        plan.size,
        plan.batch,
        delta=plan.delta,
        adjacency=plan.adjacency,
        accountant=plan.accountant,
        noise_multiplier=noise_multiplier,
        steps=steps,
    )
    return _written(found)["epsilon"]


def work(plan: Plan) -> Iterator[Callable[[], dict[str, Any]]]:
    """The answer in pieces, each to be computed when its turn comes: the numbers, then the points of both curves, nearest first."""
    found: dict[str, Any] = {}

    def first() -> dict[str, Any]:
        found.update(numbers(plan))
        return {"account": dict(found), "command": plan.command, "warnings": list(_warnings(plan))}

    def point(curve: str, at: float, noise_multiplier: float, steps: int) -> Callable[[], dict[str, Any]]:
        return lambda: {"curve": curve, "x": at, "epsilon": _cost(plan, noise_multiplier, steps)}

    yield first
    noise, steps = found["noise_multiplier"], found["steps"]
    for share in dict.fromkeys(max(1, math.ceil(part * steps)) for part in _SHARES):
        yield point("course", share * plan.batch / plan.size, noise, share)
    for factor in _NOISES:
        yield point("noise", noise * factor, noise * factor, steps)


def _warnings(plan: Plan) -> Iterator[str]:
    if plan.delta >= 1 / plan.size:
        yield f"δ is not below 1/N = {1 / plan.size:.2g}: publishing one {plan.unit} outright would satisfy it"


def _written(found: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {name: "infinity" if name.startswith("epsilon") and not math.isfinite(value) else value for name, value in found.items()}


def _whole(text: str) -> int:
    number = _number(text)
    if number != int(number):
        raise ValueError("a whole number")
    return int(number)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("a number")
    return number


def _short(text: str) -> str:
    return text if len(text) <= 40 and text.isprintable() else f"{text[:37]!r}…"
