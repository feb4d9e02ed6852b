"""The certificate of a run, written from what its ledger says was paid for and from what the trainer did."""

from __future__ import annotations

import math
from dataclasses import replace

from halfmask.privacy.accounting import epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.certificate import Certificate
from halfmask.privacy.spends import Spend, common_unit, epsilon_in_turn, plans_of
from halfmask.training.assumptions import public_assumptions
from halfmask.training.checkpoint import Standing
from halfmask.training.private import PrivateHalf
from halfmask.training.setup import Setup
from halfmask.training.spending import open_reads, publications_of, staying


def certificate_of(setup: Setup, half: PrivateHalf, standing: Standing, run_name: str, weights_sha256: str = "") -> Certificate:
    """The statement about what this run has paid for so far, and about the weights with this digest."""
    config = setup.config
    account, adjacency = setup.account, Adjacency.parse(config.adjacency)
    lines = account.ledger.lines()
    spends = account.spends()
    own = [spend for spend in account.ledger.spends() if spend.run == standing.run]
    behind = [spend for spend in spends if spend.run in setup.behind and spend.run != standing.run]
    said = own[-1] if own else None
    own_epsilon = {relation.value: _own(own, relation, setup) for relation in _relations(setup)}
    composed = own_epsilon
    if behind:
        together = [*behind, *own]
        composed = {one.value: epsilon_in_turn(together, config.unit, config.delta, one) for one in _relations(setup)}
    reads = list(dict.fromkeys([*open_reads(setup, half), *(spend.unprotected for spend in own if spend.unprotected)]))
    return Certificate(
        method=setup.method.name,
        unit=config.unit,
        units=len(setup.units) if said is None else said.units,
        adjacency=config.adjacency,
        epsilon=composed,
        own_epsilon=own_epsilon if behind else {},
        coarser={} if behind or reads else _coarser(own, setup),
        finer={} if behind or reads or not own else _finer(own_epsilon, setup),
        composed_with=sorted({spend.run for spend in behind}),
        delta=config.delta,
        accountant="rdp, over the runs whose weights this one goes on from" if behind else config.accountant,
        noise_multiplier=setup.noise_multiplier if said is None else said.noise_multiplier,
        sampling_rate=setup.sampling_rate if said is None else said.sampling_rate,
        steps=sum(spend.steps for spend in own) if own else standing.step,
        planned_steps=setup.steps,
        clip_norm=half.mechanism.clip_norm if said is None else said.clip_norm,
        expected_batch=half.poisson.expected_batch if said is None else said.expected_batch,
        visible_batches=any(spend.visible_batches for spend in own),
        public_assumptions=public_assumptions(setup) + _moving_clip_norm(own, config.clip_norm),
        already_public=[words for words in account.publications() if not _said(words, setup)],
        cautions=_cautions(setup),
        noise_source=half.mechanism.noise.source if setup.method.private == "noised" else "none",
        ledger_total=account.total(config.delta, adjacency),
        ledger_unit=common_unit(spends) or config.unit,
        ledger_lines=len(lines),
        ledger_hash=lines[-1]["hash"] if lines else "",
        dataset=setup.data.name,
        dataset_fingerprint=setup.data.fingerprints.dataset,
        related_datasets=account.related_names,
        public_record_hashes=[record for one in publications_of(setup) for record in one.records],
        unaccounted_reads=reads,
        run=standing.run,
        run_name=run_name,
        weights_sha256=weights_sha256,
        statement="rehearsal" if config.rehearsal else "certificate",
    )


def _relations(setup: Setup) -> list[Adjacency]:
    """Those that have a meaning; a run that reads nothing private costs nothing under each of them, and no other: what stays is read."""
    if setup.plan is None:
        return list(setup.adjacencies)
    return [one for one in setup.adjacencies if one is not Adjacency.REPLACE_ONE or setup.config.accountant == "pld"]


def _own(own: list[Spend], adjacency: Adjacency, setup: Setup) -> float:
    """ε of the run's own steps, as the ledger has them."""
    if any(spend.unbounded for spend in own):
        return math.inf
    return epsilon(plans_of(own, adjacency), setup.config.delta, setup.config.accountant)


def _coarser(own: list[Spend], setup: Setup) -> dict[str, dict[str, float]]:
    """What the promise is worth to units that have several of the protected ones, at most as many as the settings say.

    Nothing is said of a unit that has more of them than that: records that were handed over in memory need not be what the settings name.
    """
    config = setup.config
    if not own or any(spend.unbounded or spend.visible_batches for spend in own) or config.adjacency == Adjacency.REPLACE_ONE.value:
        return {}
    plans = plans_of(own, Adjacency.parse(config.adjacency))
    # By Rényi costs, which are an upper bound too: privacy losses of groups take the PLD accountant long.
    return {
        unit: {"most": most, "epsilon": epsilon([replace(plan, group_size=most) for plan in plans], config.delta, "rdp")}
        for unit, most in setup.task.most_in(config.unit).items()
        if most > 1 and all(spend.group_sizes.get(unit, math.inf) <= most for spend in own)
    }


def _finer(own_epsilon: dict[str, float], setup: Setup) -> dict[str, float]:
    """What the promise is worth to units that lie whole in a protected one.

    Without one of its images a person is still somebody: what the others add is clipped anew, and may point anywhere. So it is the ε of a
    unit that is exchanged for another that speaks of an image, not that of a unit that is left out.
    """
    exchanged = own_epsilon.get(Adjacency.REPLACE_ONE.value)
    return {} if exchanged is None else dict.fromkeys(setup.task.within(setup.config.unit), exchanged)


def _cautions(setup: Setup) -> list[str]:
    config, units = setup.config, len(setup.units)
    if setup.method.private != "noised" or config.delta < 1 / units:
        return []
    return [
        f"δ = {config.delta:g} is not below 1/N = {1 / units:.2g}: a mechanism that publishes one of the {units} {config.unit}s "
        f"outright, chosen at "
        "random, would satisfy it. The promise is worth little at this δ"
    ]


def _said(words: str, setup: Setup) -> bool:
    """Whether the run itself takes this to be public, and says so."""
    if setup.task.stays and words == staying(setup.task):
        return True
    return setup.method.view and words.startswith(f"ψ of every record: {setup.view.describe()};")


def _moving_clip_norm(own: list[Spend], begun_with: float) -> list[str]:
    norms = {spend.clip_norm for spend in own}
    if norms <= {begun_with}:
        return []
    span = f"from {min(norms):.4g} to {max(norms):.4g}"
    return [f"that the clip norm moved {span} with gradient norms of public people, and the noise, in proportion to it, with it"]
