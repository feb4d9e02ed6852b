"""Checks of the mechanism that need no statistics, or whose statistics are exact: noise, clip, sampling, views, divisor.

Canaries cannot see a factor of two in σ; a variance can. They cannot see a leak that their own coins do not set off; replaying a step on
two neighbouring datasets can. Both kinds are needed. Every check works on the trainer itself, not on a copy of what it should do.
Intervals are such that correct code is accused once in a million seeds.

C is the clip norm that the mechanism has at the time. Where it follows public people (`private.follow`) it has moved, and the noise and
the clip must both have moved with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from halfmask.audit.canaries import FULL, OPPOSED, POISON, CanaryNetwork, CanaryTask, Witness, canary_records
from halfmask.audit.findings import Finding, interval
from halfmask.data.records import VIEW, Records
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, ClippedCoordinates, ClippedSum
from halfmask.gradients.subspace import Subspace
from halfmask.privacy.noise import open_stream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training.loop import Trainer

FALSE_ALARM = 1e-6
_VARIANCE_NUMBERS, _MOST_RELEASES = 1_000_000, 10_000
_COIN_STEPS = 10_000
# Relative, for sums of a few single-precision numbers.
_ROUNDING = 1e-5


def noise_variance(trainer: Trainer) -> Finding:
    """Release nothing at all, often: what comes out is the noise, whose variance the accountant was told."""
    nobody, half = np.zeros(0, np.int64), trainer.noised
    empty = half.clipped(*half.shown(half.records, nobody, torch.from_numpy(nobody), torch.zeros(0), 0))
    dimensions = trainer.engine.size if half.subspace is None else half.subspace.dimension
    releases = min(_MOST_RELEASES, math.ceil(_VARIANCE_NUMBERS / dimensions))
    energy = sum(float(half.mechanism.release(empty, half.subspace).double().square().sum()) for _ in range(releases))
    # What was claimed: σ of the plan, and the C that sums are clipped to, not what the mechanism says of its noise.
    claimed = trainer.setup.noise_multiplier * empty.clip_norm / half.poisson.expected_batch
    count = releases * dimensions
    low, high = (float(stats.chi2.ppf(p, count)) / count for p in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    found = energy / claimed**2 / count
    return Finding(
        "noise-variance",
        low <= found <= high,
        f"{found:.5f} of the claimed variance over {count:,} numbers",
        interval(low, high),
        "noise that is missing, too small, scaled by the wrong constant, or left behind by a clip norm that moved",
    )


def extreme_gradients(trainer: Trainer) -> Finding:
    """Gradients of norm 0, C, 10⁶·C, infinity and NaN: none may add more than C, and none may spoil the others."""
    clip = trainer.noised.mechanism.clip_norm
    rows = torch.zeros(7, _network(trainer).decision.in_features)
    for i, length in enumerate((0.0, clip, 0.3 * clip, 1e6 * clip, math.inf, math.nan, 1e30)):
        rows[i, i] = length

    def plain(model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, CanaryNetwork)
        # Along the directions that canaries have, so that a subspace keeps all of it.
        first, second = model.decision(batch["x"]).unbind(1)
        return (first - second) / 2**0.5

    half = replace(trainer.noised, loss=plain)

    def clipped(which: list[int]) -> Tensor:
        return _vector(half.clipped({"x": rows[which]}, torch.arange(len(which))))

    everyone = list(range(len(rows)))
    whole = clipped(everyone)
    alone = [float(clipped([i]).norm()) for i in everyone]
    moved = [float((whole - clipped([j for j in everyone if j != i])).norm()) for i in everyone]
    worst = max(alone + moved) if bool(torch.isfinite(whole).all()) else math.nan
    kept = alone[1] > 0.99 * clip and abs(alone[2] / (0.3 * clip) - 1) < 1e-3
    return Finding(
        "extreme-gradients",
        worst <= clip * (1 + 1e-6) and kept,
        f"one record moves the sum by at most {worst / clip:.7g} C" + ("" if kept else ", and ordinary gradients are not kept"),
        "at most 1 C, and finite",
        "a clip that is skipped, or that infinity or NaN gets past",
    )


def replayed_step(trainer: Trainer, private: Records) -> Tensor:
    """The update of one step on other private records, with the coins and the noise of the first step: for a difference of two."""
    before = trainer.noised
    weight = _network(trainer).decision.weight
    witness = Witness()
    try:
        # The views of a neighbouring dataset are those it had: only the private part differs.
        divided = with_view(private, trainer.setup.view).rest if before.records.rest is not None else None
        neighbour = replace(private, public=before.records.public, rest=divided, view_key=before.records.view_key)
        trainer.noised = replace(before.resumed(trainer.setup, 0, before.clip_norms), records=neighbour)
        with torch.no_grad():
            weight.zero_()
        witness.watch(trainer)
        trainer.take_step()
        witness.step(1, 1, None, None)
    finally:
        trainer.noised = before
    return witness.updates[0]


def step_sensitivity(trainer: Trainer, size: int) -> Finding:
    """Two real steps with equal noise on neighbouring datasets differ by at most C/B̄ (zero-out) or 2C/B̄ (replace-one).

    All canaries stand at one place, so that their gradients add up instead of lying at right angles. For residuals the first of them is
    also tried with a mark: its image then points elsewhere than its view, and clipping the two apart would let both through whole.
    """
    clip, expected = trainer.noised.mechanism.clip_norm, trainer.setup.config.batch
    residual = trainer.setup.config.private.residual
    places = np.zeros(size, int)
    worst, nonfinite = 0.0, False
    # In 255ths of `LOUDNESS`·C: 0.4 C, 0.8 C, 1.2 C and 100 C.
    for others in (1, 2, 3, FULL):
        bright = np.full(size, others)
        updates = {}
        for mark in (False, True) if residual else (True,):
            marked = np.full(size, not residual)
            marked[0] = mark
            for value in (0, 1, 3, FULL, OPPOSED, POISON):
                bright[0] = value
                records = canary_records(bright, f"step/{others}/{value}/{mark}", places, marked)
                updates[mark, value] = replayed_step(trainer, records) * expected / clip
        nonfinite |= not all(bool(torch.isfinite(update).all()) for update in updates.values())
        nothing = updates[not residual, 0]
        zeroed = [float((update - nothing).norm()) for update in updates.values()]
        replaced = max(float((updates[mark, OPPOSED] - updates[mark, FULL]).norm()) / 2 for mark, value in updates if value == FULL)
        worst = max(worst, replaced, *(length for length in zeroed if length == length))
    return Finding(
        "step-sensitivity",
        worst <= 1 + 10 * _ROUNDING and not nonfinite,
        f"one unit moves a step by at most {worst:.6g} of its share" + (", and NaN gets through" if nonfinite else ""),
        "at most 1 (C/B̄ under zero-out, 2C/B̄ under replace-one)",
        "a clip that is skipped or too wide, an image and its view clipped apart, a divisor that follows the data, a record counted twice",
    )


def records_apart(trainer: Trainer) -> Finding:
    """What a record adds to the clipped sum does not depend on who else is in the batch, and is at most C."""
    clip = trainer.noised.mechanism.clip_norm
    bright = np.array([1, 1, 2, 3, 1, FULL, 0, 2, 1, 1])
    records = with_view(canary_records(bright, "apart", np.zeros(len(bright), int)), trainer.setup.view)
    records.targets.columns["labelled"][6] = False  # type: ignore[attr-defined]
    half = trainer.noised

    def clipped(which: list[int]) -> Tensor:
        everyone = torch.arange(len(which))
        return _vector(half.clipped(*half.shown(records, np.array(which), everyone, torch.ones(len(which)), 0)))

    with torch.no_grad():
        _network(trainer).decision.weight.zero_()
    coupled, moved = 0.0, 0.0
    for size in (2, 3, 6, len(bright)):
        everyone = list(range(size))
        whole = clipped(everyone)
        for i in everyone:
            change = whole - clipped([j for j in everyone if j != i])
            moved = max(moved, float(change.norm()) / clip)
            coupled = max(coupled, float((change - clipped([i])).norm()) / clip)
    return Finding(
        "records-apart",
        coupled <= 1e-4 and moved <= 1 + _ROUNDING,
        f"a record's part changes by {coupled:.3g} C with its company; leaving it out moves the sum by {moved:.5g} C",
        "0 C, and at most 1 C",
        "a loss or a layer that couples people: clipping then bounds nobody",
    )


def coupled_loss_refused(make: Callable[[], Trainer]) -> Finding:
    """Give the trainer a loss that couples people: it must stop before its first step."""
    trainer = make()
    trainer.setup = replace(trainer.setup, task=Coupled(trainer.setup.config))
    said = "the training ran"
    try:
        trainer.train()
    except HalfmaskError as error:
        said = str(error)
    return Finding(
        "coupled-loss-refused",
        "coupled" in said and trainer.standing.step == 0,
        said.split(":")[0],
        "refused before the first step",
        "a start-up check that was taken out",
    )


def poisson_coins(trainer: Trainer) -> Finding:
    """Each unit enters each step by a coin of probability q: count 10,000 batches.

    Everybody is counted by themselves too: slots that are filled one after the other can have the right number of people, and its spread,
    but take somebody twice; and coins that favour some can add up.
    """
    units, rate = len(trainer.setup.units), trainer.setup.sampling_rate
    batches = [trainer.noised.poisson.draw().numpy() for _ in range(_COIN_STEPS)]
    sizes = np.array([len(batch) for batch in batches])
    twice = sum(len(batch) != len(np.unique(batch)) for batch in batches)
    each = np.bincount(np.concatenate(batches), minlength=units)
    low, high = _counts(units * _COIN_STEPS, rate, FALSE_ALARM)
    least, most = _counts(_COIN_STEPS, rate, FALSE_ALARM / units)
    expected = units * rate * (1 - rate)
    spread = float(sizes.var()) / expected
    return Finding(
        "poisson-coins",
        bool(low <= sizes.sum() <= high and abs(spread - 1) < 0.07 and not twice and least <= each.min() <= each.max() <= most),
        f"{sizes.sum():,} inclusions, of one unit from {each.min():,} to {each.max():,}; batch-size variance {spread:.3f} of the binomial "
        f"one; {twice:,} batches with somebody twice",
        f"{low:,.0f} to {high:,.0f}, of one unit {least:,.0f} to {most:,.0f}; 0.93 to 1.07; 0",
        "batches of a fixed size, slots filled with replacement, another rate, coins that are tossed once",
    )


def _counts(tosses: int, rate: float, alarm: float) -> tuple[float, float]:
    """Between which numbers as many coins fall, but for false alarms."""
    low, high = (float(stats.binom.ppf(p, tosses, rate)) for p in (alarm / 2, 1 - alarm / 2))
    return low, high


def public_batch_independent(trainer: Trainer, rows: Callable[[Batch], np.ndarray] | None = None, steps: int | None = None) -> Finding:
    """Count the people who are in the private and in the public batch of a step: chance alone puts few of them there.

    Args:
        rows: whose records a public batch shows; by default canaries, who show it themselves.
    """
    steps, rows = steps or _COIN_STEPS, rows or _places(trainer)
    units, shared, expected, variance = len(trainer.setup.units), 0, 0.0, 0.0
    for _ in range(steps):
        records, _, _ = trainer.setup.units.records_of(trainer.noised.poisson.draw())
        if trainer.noised.publish is not None:
            trainer.noised.publish(records)
        public = trainer.exact.batch()
        seen = rows(public) if public is not None else np.zeros(0, int)
        shared += len(np.intersect1d(records, seen))
        expected += trainer.setup.sampling_rate * trainer.exact.size
        variance += trainer.exact.size * trainer.setup.sampling_rate * (1 - trainer.setup.sampling_rate)
    reach = float(stats.norm.ppf(1 - FALSE_ALARM / 2)) * math.sqrt(variance)
    return Finding(
        "public-batch-independent",
        abs(shared - expected) <= reach,
        f"{shared:,} people in both batches over {steps:,} steps of {units} units",
        interval(expected - reach, expected + reach),
        "one batch for both halves: the exact public gradient then shows the coins",
    )


def _places(trainer: Trainer) -> Callable[[Batch], np.ndarray]:
    network = _network(trainer)
    return lambda public: network.spots(public["image"])[:, network.places :].argmax(1).numpy()


def public_half_fixed(trainer: Trainer, neighbour: Trainer, draws: int = 50) -> Finding:
    """Two datasets with the same views and other private parts: the public batches must agree to the byte.

    That fails when ψ is computed on an image that was moved or cropped first.
    """
    stored = trainer.setup.private.part(VIEW).rows(np.arange(len(trainer.setup.private)))["image"]
    differing = strange = 0
    known = {np.ascontiguousarray(view).tobytes() for view in stored}
    for _ in range(draws):
        mine, theirs = trainer.exact.batch(), neighbour.exact.batch()
        assert mine is not None and theirs is not None
        differing += int((mine["image"] != theirs["image"]).flatten(1).any(1).sum())
        strange += sum(image.contiguous().numpy().tobytes() not in known for image in mine["image"])
    shown = draws * trainer.exact.size
    return Finding(
        "public-half-fixed",
        differing == 0 and strange == 0,
        f"of {shown} public images {differing} change with the private part and {strange} are not the stored view",
        "0 and 0",
        "ψ computed anew after augmentation: each time a new measurement of the private image",
    )


def constant_divisor(witness: Witness, trainer: Trainer) -> list[Finding]:
    """Steps over people without gradients are noise alone, whoever was drawn: each has the energy of σC/B̄.

    The run used a seed, so its coins can be tossed again to know which batches were empty.
    """
    setup = trainer.setup
    coins = PoissonSampler(len(setup.units), setup.sampling_rate, open_stream("coins", setup.config.insecure_seed))
    sizes = np.array([len(coins.draw()) for _ in witness.updates])
    claimed = setup.noise_multiplier * trainer.noised.mechanism.clip_norm / setup.config.batch
    count = trainer.engine.size if trainer.noised.subspace is None else trainer.noised.subspace.dimension
    energies = np.array([float(update.square().sum()) for update in witness.updates]) / claimed**2 / count
    level = FALSE_ALARM / 2 / len(sizes)
    low, high = (float(stats.chi2.ppf(p, count)) / count for p in (level, 1 - level))
    findings = []
    for name, chosen, sees in (
        ("constant-divisor", sizes > 0, "division by the realised batch size, which is secret"),
        ("empty-batch-noised", sizes == 0, "skipping an empty batch, which tells that it was empty"),
    ):
        right = (energies[chosen] >= low) & (energies[chosen] <= high)
        found = f"{int(right.sum())} of {int(chosen.sum())} steps have the claimed energy"
        findings.append(Finding(name, bool(chosen.any() and right.all()), found, "all of them", sees))
    return findings


def clip_norm_public(trainer: Trainer, neighbour: Trainer) -> Finding:
    """Two datasets with other private parts: a clip norm that follows the public must be the same for both, to the last digit."""
    mine, theirs = trainer.noised.mechanism.clip_norm, neighbour.noised.mechanism.clip_norm
    return Finding(
        "clip-norm-public",
        mine == theirs,
        f"the clip norm is {mine:.6g}, and {theirs:.6g} with other private images",
        "equal",
        "a clip norm that follows private gradients, which tells of them without noise",
    )


def basis_apart(trainer: Trainer) -> Finding:
    """Whoever spans the subspace is not protected, so they must not be counted among those who are."""
    basis = trainer.setup.basis
    both = np.intersect1d(trainer.setup.private.units["image"], basis.units["image"]) if basis is not None else np.zeros(0)
    return Finding(
        "basis-apart",
        basis is not None and len(both) == 0,
        f"{len(both)} of {0 if basis is None else len(basis)} people of S_pub are still in the private set",
        "0",
        "S_pub left in the private set: its raw gradients are in every update",
    )


def basis_does_not_stretch(trainer: Trainer) -> Finding:
    """The projection must not lengthen a clipped gradient, also where public gradients are nearly alike."""
    assert trainer.noised.subspace is not None
    generator = torch.Generator().manual_seed(trainer.setup.config.seed)
    alike = torch.randn(1, 3000, generator=generator) + 1e-4 * torch.randn(60, 3000, generator=generator)
    norms = [trainer.noised.subspace.norm(), Subspace.from_gradients(alike, 50).norm()]
    return Finding(
        "basis-does-not-stretch",
        max(norms) <= 1 + 1e-6,
        f"spectral norms {norms[0]:.8f} and, of nearly parallel gradients, {norms[1]:.8f}",
        "at most 1.000001",
        "a basis from rounded arithmetic: sensitivity above C",
    )


class Coupled(CanaryTask):
    """A task whose losses depend on each other."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        losses = super().loss(model, batch)
        return losses * (1 + losses.mean())


def _vector(clipped: ClippedSum | ClippedCoordinates) -> Tensor:
    """The sum as it will be noised."""
    return (clipped.coordinates if isinstance(clipped, ClippedCoordinates) else clipped.flat()).double()


def _network(trainer: Trainer) -> CanaryNetwork:
    assert isinstance(trainer.setup.model, CanaryNetwork)
    return trainer.setup.model
