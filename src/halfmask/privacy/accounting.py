"""How much privacy a plan of noisy steps costs, and how much noise a budget buys.

A plan is data (`SampledGaussian`); dp-accounting does the arithmetic. Three models, in units of the clip norm:

* **amplified** (add-remove, zero-out): Poisson-sampled Gaussian, sensitivity C;
* **amplified, replace-one**: the same with sensitivity 2C, which only the PLD accountant supports;
* **visible batches**: when an attacker can see who is in a batch (the exact public gradient was computed on the *same* people),
  sampling hides nothing and each unit takes part in K ~ Binomial(steps, rate) plain Gaussian releases.

>>> plan = SampledGaussian(noise_multiplier=2.3773, sampling_rate=256 / 22146, steps=2163)
>>> round(epsilon([plan], delta=4e-5), 2)
0.8
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import dp_accounting
import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from scipy import optimize, stats
from scipy.special import logsumexp

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.privacy.adjacency import Adjacency

# Rényi orders that cannot be computed are left out, and any choice of orders is an upper bound: nobody need read of each.
logging.getLogger("absl").addFilter(lambda record: "Excluding this order" not in record.getMessage())

ACCOUNTANTS = ("pld", "rdp")
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 200.0
# PLD rounds privacy losses up to a grid, so ε is over-estimated on any grid, by about steps · grid² / ε. These keep that error below
# 0.003 % of ε, at a cost that does not grow out of hand when the steps are few and the noise is small.
_RELATIVE_GRID = 0.005
_FINEST, _COARSEST = 1e-6, 5e-3
# Rényi orders for groups. Any choice gives an upper bound; these are dense where the smallest is found in practice.
_GROUP_ORDERS = (*(1 + i / 8 for i in range(1, 16)), *(3 + i / 2 for i in range(26)), *(float(2**i) for i in range(4, 9)), 24.0, 48.0)


@dataclass(frozen=True)
class SampledGaussian:
    """`steps` releases of a noisy sum over a freshly drawn Poisson batch.

    Attributes:
        noise_multiplier: standard deviation of the noise in units of the clip norm.
        sampling_rate: the probability with which each unit enters each step.
        visible_batches: who is in a batch is not secret, so sampling amplifies nothing.
        group_size: how many units change together, each with a coin of its own: what a promise about crops is worth to an image
            with that many people.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    adjacency: Adjacency = Adjacency.ZERO_OUT
    visible_batches: bool = False
    group_size: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise HalfmaskError(f"noise multiplier is {self.noise_multiplier}: expected a number ≥ 0")
        if not 0 < self.sampling_rate <= 1:
            raise HalfmaskError(f"sampling rate is {self.sampling_rate}: expected a probability in (0, 1]")
        if self.steps < 0:
            raise HalfmaskError(f"steps is {self.steps}: expected a count ≥ 0")
        if self.group_size < 1:
            raise HalfmaskError(f"group size is {self.group_size}: expected at least 1")

    def event(self) -> dp_accounting.DpEvent:
        """One step, as dp-accounting is told of it."""
        if self.group_size == 1:
            return dp_accounting.PoissonSampledDpEvent(self.sampling_rate, dp_accounting.GaussianDpEvent(self.noise_multiplier))
        present, chances = self.drawn()
        return dp_event.MixtureOfGaussiansDpEvent(self.noise_multiplier, present.tolist(), chances.tolist())

    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """How many of a group may be drawn in a step, and the probability of each number."""
        present = np.arange(self.group_size + 1)
        chances = stats.binom.pmf(present, self.group_size, self.sampling_rate)
        return present, chances / chances.sum()


def check_budget(target_epsilon: float, delta: float) -> None:
    """Refuse a budget that means nothing."""
    if not (math.isfinite(target_epsilon) and target_epsilon > 0):
        raise HalfmaskError(f"epsilon is {target_epsilon}: expected a number greater than 0, such as 0.8")
    if not SMALLEST_EPSILON <= target_epsilon <= LARGEST_EPSILON:
        raise HalfmaskError(
            f"epsilon is {target_epsilon:g}: expected {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}. Below, no training is possible; above, "
            "the promise means nothing and method non-private says so openly"
        )
    if not 0 < delta < 1:
        raise HalfmaskError(f"delta is {delta}: expected a probability between 0 and 1, well below 1/N, such as 1e-5")


def epsilon(plans: Sequence[SampledGaussian], delta: float, accountant: str = "pld", grid: float | None = None) -> float:
    """The ε of all `plans` together at `delta`; infinite if any of them adds no noise.

    Args:
        grid: the PLD accountant's grid of privacy losses; by default as fine as the result needs. Any grid gives an upper bound.

    Formal guarantees: an upper bound on the ε of the composition, provided each plan's assumptions hold (see the module).
    Composition by PLD presumes that the plans were fixed before the first of them ran.
    """
    if accountant not in ACCOUNTANTS:
        raise unknown_name("accountant", accountant, ACCOUNTANTS)
    plans = [plan for plan in plans if plan.steps > 0]
    if not plans:
        return 0.0
    relations = {plan.adjacency for plan in plans}
    if len({relation is Adjacency.REPLACE_ONE for relation in relations}) > 1:
        raise HalfmaskError("runs under replace-one and runs under other adjacencies do not compose: account each apart")
    if any(plan.noise_multiplier == 0 for plan in plans):
        return math.inf
    if any(plan.visible_batches for plan in plans):
        if any(plan.group_size > 1 for plan in plans):
            raise HalfmaskError("groups of units with visible batches are not accounted: choose one of the two")
        return _epsilon_of_visible_batches(plans, delta)
    replaces = Adjacency.REPLACE_ONE in relations
    if replaces and accountant == "rdp":
        raise HalfmaskError(
            "the RDP accountant has no bound for Poisson sampling under replace-one: use --accountant pld, or --adjacency zero-out"
        )
    if any(plan.group_size > 1 for plan in plans) and replaces:
        raise HalfmaskError("groups of units are accounted under zero-out or add-remove only: there is no bound to use for replace-one")
    relation = dp_accounting.NeighboringRelation
    neighbours = relation.REPLACE_ONE if replaces else relation.ADD_OR_REMOVE_ONE
    if accountant == "rdp":
        if any(plan.group_size > 1 for plan in plans):
            return _epsilon_of_groups(plans, delta)
        return _composed(RdpAccountant(neighboring_relation=neighbours), plans, delta)

    def on_grid(interval: float) -> float:
        return _composed(PLDAccountant(neighboring_relation=neighbours, value_discretization_interval=interval), plans, delta)

    if grid is not None:
        return on_grid(grid)
    steps = sum(plan.steps for plan in plans)
    grid, cost = _COARSEST, on_grid(_COARSEST)
    while (finer := _grid_for(cost, steps)) < grid / 1.5:
        grid, cost = finer, on_grid(finer)
    return cost


def _grid_for(cost: float, steps: int) -> float:
    return min(_COARSEST, max(_FINEST, _RELATIVE_GRID * cost / math.sqrt(steps)))


def _composed(accountant: dp_accounting.PrivacyAccountant, plans: Sequence[SampledGaussian], delta: float) -> float:
    for plan in plans:
        accountant.compose(plan.event(), plan.steps)
    return float(accountant.get_epsilon(delta))


def _epsilon_of_groups(plans: Sequence[SampledGaussian], delta: float) -> float:
    """ε by Rényi divergences for groups of units, which dp-accounting's RDP accountant does not know.

    A step is the mixture of Gaussians about 0, 1, … k, weighed by how many of the group are drawn, against the one about 0, both ways.
    """
    orders = np.array(_GROUP_ORDERS)
    total = sum(plan.steps * _renyi(plan, orders) for plan in plans)
    return float(compute_epsilon(orders, total, delta)[0])


def _renyi(plan: SampledGaussian, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of one step, the larger of the two directions, by the trapezoid rule.

    The integrands are smooth and fall off like Gaussians, where that rule is exact but for a term that is exponentially small in the
    number of points per standard deviation.
    """
    present, chances = plan.drawn()
    sigma = plan.noise_multiplier
    result = np.empty(len(orders))
    for place, order in enumerate(orders):
        # (P/Q)^α Q peaks no further out than α·k, and Q^α P^(1−α) no further than about k on either side.
        x = np.arange(-plan.group_size - 12 * sigma, order * plan.group_size + 12 * sigma, sigma / 12)
        log_q = -0.5 * (x / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
        # log P/Q, the mixture's terms one after the other so that no large table is built.
        ratio = np.full(len(x), -np.inf)
        for shift, chance in zip(present, chances, strict=True):
            if chance > 0:
                ratio = np.logaddexp(ratio, math.log(chance) + shift * (2 * x - shift) / (2 * sigma**2))
        forth = logsumexp(order * ratio + log_q)
        back = logsumexp((1 - order) * ratio + log_q)
        result[place] = max(0.0, (max(forth, back) + math.log(sigma / 12)) / (order - 1))
    return result


def calibrate(
    target_epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    accountant: str = "pld",
    visible_batches: bool = False,
) -> float:
    """The smallest noise multiplier (to 0.05 %) whose ε does not exceed the target.

    Formal guarantees: the ε of the returned multiplier, computed with the same accountant, is at most `target_epsilon`.
    """
    check_budget(target_epsilon, delta)
    if steps < 1:
        raise HalfmaskError(f"steps is {steps}: there is nothing to calibrate noise for without at least 1")
    plan = SampledGaussian(1.0, sampling_rate, steps, adjacency, visible_batches)
    drawn = 1 - (1 - sampling_rate) ** steps
    if delta >= drawn:
        raise HalfmaskError(
            f"delta is {delta:g} and a unit is drawn at all with probability {drawn:.3g}: publishing it outright would satisfy that. "
            "Choose a delta well below 1/N"
        )

    def cost(grid: float) -> Callable[[float], float]:
        return lambda multiplier: epsilon([replace(plan, noise_multiplier=multiplier)], delta, accountant, grid)

    # Grids from coarse to fine: each over-estimates ε, so its answer is a safe upper end for the next, finer and dearer one.
    fine = _grid_for(target_epsilon, max(1, steps))
    multiplier = 1.0
    for grid, tolerance in ((min(16 * fine, _COARSEST), 1e-2), (min(4 * fine, _COARSEST), 2e-3), (fine, 5e-4)):
        multiplier = _smallest_below(cost(grid), target_epsilon, multiplier, tolerance)
    # The promise is about the ε that `epsilon` reports, and its grid is not quite that of the search.
    while epsilon([replace(plan, noise_multiplier=multiplier)], delta, accountant) > target_epsilon:
        multiplier *= 1.0001
    return multiplier


def steps_within(target_epsilon: float, delta: float, plan: SampledGaussian, accountant: str = "pld") -> int:
    """How many of a plan's steps, whose noise is fixed, can be taken before ε would exceed the target; 0 if not even one.

    Formal guarantees: the ε of so many steps, computed with the same accountant, is at most `target_epsilon`.
    """
    check_budget(target_epsilon, delta)
    fits = lambda steps: epsilon([replace(plan, steps=steps)], delta, accountant) <= target_epsilon  # noqa: E731
    if fits(plan.steps):
        return plan.steps
    enough, too_many = 0, plan.steps
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if fits(middle) else (enough, middle)
    return enough


def _smallest_below(cost: Callable[[float], float], target: float, guess: float, tolerance: float) -> float:
    """The smallest x (relatively, to `tolerance`) with cost(x) ≤ target, for a cost that falls with x.

    ε is close to a power of σ, so interpolation between the logarithms of a bracket's ends needs a handful of evaluations where
    halving needs a dozen; the costliest evaluation takes seconds.
    """
    high, cost_high = guess, cost(guess)
    low, cost_low = guess, cost_high
    step = 1 + 2 * tolerance
    while cost_high > target:
        low, cost_low = high, cost_high
        high, step = high * step, step * step
        if high > 2**20:
            raise HalfmaskError(f"no amount of noise reaches epsilon {target}: use fewer steps, a smaller batch or a larger delta")
        cost_high = cost(high)
    while cost_low <= target:
        high, cost_high = low, cost_low
        low, step = low / step, step * step
        cost_low = cost(low)
    while high - low > tolerance * high:
        share = 0.5
        if math.isfinite(cost_low) and cost_high > 0:
            share = math.log(cost_low / target) / math.log(cost_low / cost_high)
        # Aim a little above the root, so that it is soon enclosed from both sides.
        share = min(0.98, max(0.02, share + 0.2 * tolerance * high / (high - low)))
        middle = low * (high / low) ** share
        cost_middle = cost(middle)
        if cost_middle <= target:
            high, cost_high = middle, cost_middle
        else:
            low, cost_low = middle, cost_middle
    return high


def _epsilon_of_visible_batches(plans: Sequence[SampledGaussian], delta: float) -> float:
    """ε when the attacker knows which steps a unit took part in: a mixture over K of plain Gaussian mechanisms."""
    if len(plans) > 1:
        raise HalfmaskError("several runs with visible batches are not composed: account each apart")
    plan = plans[0]
    counts = np.arange(plan.steps + 1)
    weights = stats.binom.pmf(counts, plan.steps, plan.sampling_rate)
    kept = weights > delta * 1e-9
    means = np.sqrt(counts[kept]) * plan.adjacency.sensitivity(1.0) / plan.noise_multiplier
    weights = weights[kept]
    dropped = 1.0 - weights.sum()

    def delta_at(eps: float) -> float:
        mu = np.maximum(means, 1e-12)
        upper = stats.norm.cdf(mu / 2 - eps / mu)
        lower = np.exp(eps + stats.norm.logcdf(-mu / 2 - eps / mu))
        return float(np.sum(weights * np.clip(upper - lower, 0.0, 1.0)) + dropped)

    if delta_at(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
        if high > 1e6:
            return math.inf
    return float(optimize.brentq(lambda eps: delta_at(eps) - delta, 0.0, high, xtol=1e-9)) + 1e-8
