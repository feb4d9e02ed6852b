"""What a run writes down before it spends, and what many such entries come to together.

Runs on one dataset compose: never by adding ε, but as mechanisms. Runs that protected different units compose too, where the units of one
lie whole within those of the other: what a promise about crops is worth to somebody with twelve of them is known, if twelve is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from halfmask.errors import OverBudget
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency


@dataclass(frozen=True)
class Spend:
    """The intent to take steps `first_step` … `last_step` (inclusive).

    Attributes:
        noise_multiplier: 0 stands for a read without noise: its ε is infinite.
        group_sizes: for other kinds of unit in which every unit of this run lies whole, the most of them that one holds.
        unprotected: why there is no bound although noise was added (a noise that can be subtracted, a look outside the mechanism).
    """

    run: str
    method: str
    adjacency: str
    unit: str
    units: int
    first_step: int
    last_step: int
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    expected_batch: float
    noise_source: str
    visible_batches: bool = False
    group_sizes: Mapping[str, int] = field(default_factory=dict)
    unprotected: str = ""

    @property
    def steps(self) -> int:
        """How many steps this entry pays for."""
        return self.last_step - self.first_step + 1

    @property
    def unbounded(self) -> str:
        """Why this costs ε = ∞; nothing where it does not."""
        return self.unprotected or ("" if self.noise_multiplier else "it read the data without noise")

    def plan(self) -> SampledGaussian:
        """What the accountant is told."""
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, self.steps, Adjacency(self.adjacency), self.visible_batches)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Spend:
        """Read a line of a ledger back."""
        return cls(**{name: body[name] for name in cls.__dataclass_fields__ if name in body})


def common_unit(spends: Sequence[Spend]) -> str | None:
    """The unit about which all these spends say something together: the coarsest of theirs; None if there is none."""
    units = {spend.unit for spend in spends}
    return next((unit for unit in sorted(units) if all(spend.unit == unit or unit in spend.group_sizes for spend in spends)), None)


def no_bound(spends: Sequence[Spend]) -> str:
    """Why the spends have no bound together; nothing if they have one."""
    for spend in spends:
        if spend.unbounded:
            return f"the run {spend.run} ({spend.method}) has none: {spend.unbounded}"
    if spends and common_unit(spends) is None:
        units = " and ".join(sorted({spend.unit for spend in spends}))
        return (
            f"runs on it protected different units ({units}), and how many of one make up one of the other is not known: give subject ids, "
            "or keep to one unit"
        )
    return ""


# Privacy losses of larger groups take the PLD accountant minutes. Rényi costs are an upper bound too, a tenth above it, in a second.
_LARGEST_EXACT_GROUP = 12


def plans_of(spends: Sequence[Spend], adjacency: Adjacency) -> list[SampledGaussian]:
    """The spends as the accountant is told of them, equal steps of one kind put together, at their common unit."""
    unit = common_unit(spends)
    merged: dict[SampledGaussian, int] = {}
    for spend in spends:
        size = 1 if spend.unit == unit else spend.group_sizes[str(unit)]
        plan = replace(spend.plan(), adjacency=adjacency, steps=0, group_size=size)
        merged[plan] = merged.get(plan, 0) + spend.steps
    return [replace(plan, steps=steps) for plan, steps in merged.items()]


def total_epsilon(spends: Sequence[Spend], delta: float, adjacency: Adjacency, accountant: str = "pld") -> float:
    """ε of all `spends` together, to one of their common unit; infinite where no bound is known.

    Runs whose batches are visible compose with the rest by adding, at an equal share of δ each.
    """
    if no_bound(spends):
        return math.inf
    plans = plans_of(spends, adjacency)
    if any(plan.group_size > 1 and (plan.visible_batches or adjacency is Adjacency.REPLACE_ONE) for plan in plans):
        return math.inf
    visible = [plan for plan in plans if plan.visible_batches]
    hidden = [plan for plan in plans if not plan.visible_batches]
    share = delta / (len(visible) + bool(hidden) or 1)
    if any(plan.group_size > _LARGEST_EXACT_GROUP for plan in hidden):
        accountant = "rdp"
    return epsilon(hidden, share, accountant) + sum(epsilon([plan], share) for plan in visible)


def epsilon_in_turn(spends: Sequence[Spend], unit: str, delta: float, adjacency: Adjacency) -> float:
    """ε to one `unit` of runs of which each went on from the weights of those before; infinite where they say nothing about that unit.

    Each was chosen after seeing what the others gave, so their Rényi costs are added, which allows that; replacement, for which there are
    none, is composed by adding ε, at an equal share of δ each.
    """
    if common_unit(spends) != unit:
        return math.inf
    if adjacency is not Adjacency.REPLACE_ONE:
        return total_epsilon(spends, delta, adjacency, "rdp")
    runs = sorted({spend.run for spend in spends})
    return sum(total_epsilon([spend for spend in spends if spend.run == run], delta / len(runs), adjacency) for run in runs)


def epsilon_left(committed: Sequence[Spend], planned: Spend, budget: float, delta: float) -> float:
    """What of a budget would be left after a plan; refuses one that would carry all runs on a dataset past it.

    A later run may be chosen after seeing what earlier ones gave, and composition by PLD does not allow that. A Rényi filter does: the
    Rényi costs of all runs are added order by order, and the sum, turned into ε, must stay within the budget.
    """
    adjacency = Adjacency(planned.adjacency)
    bound = f"the dataset's budget is ε = {budget:g} at δ = {delta:g}"
    cause = no_bound([planned])
    if cause:
        raise OverBudget(f"{bound}, and this run has no bound (ε = ∞): {planned.unbounded}. Only runs with a bound can be made here")
    if adjacency is Adjacency.REPLACE_ONE:
        raise OverBudget(
            f"{bound}, other runs were made on it, it or this run is about replace-one, and a budget over several runs is enforced with "
            "RDP, which has no bound for that: use --adjacency zero-out, and if the budget itself was set for replace-one, put another in "
            "its place with 'halfmask ledger raise-budget'"
        )
    if planned.visible_batches:
        raise OverBudget(
            f"{bound}, other runs were made on it, and a budget over several runs cannot be enforced where public and private batches are "
            "shared: set public.shared_batch to false"
        )
    spent = total_epsilon(committed, delta, adjacency, "rdp")
    needed = total_epsilon([*committed, planned], delta, adjacency, "rdp")
    if needed > budget:
        cause = no_bound([*committed, planned])
        if cause:
            raise OverBudget(
                f"{bound}, and nothing more can be spent within it: {cause}. What has no bound stays so; a budget can only be "
                f"kept on people "
                "who have not been read that way"
            )
        raise OverBudget(
            f"{bound}, of it {spent:.4g} is spent or reserved, and this run would bring it to {needed:.4g} (RDP filter): lower "
            f"--epsilon, or "
            "take fewer epochs"
        )
    return budget - needed
