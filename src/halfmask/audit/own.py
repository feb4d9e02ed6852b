"""The mechanism with somebody's own loss and network: real steps of the real trainer, on noise in the shape of their records.

Canaries show that a method's mechanism holds; they have a network of their own. What a stranger's network could break is the bound on one
unit, by a layer or a loss that couples records, by a gradient rule that does not fit, by what is not a number. Here steps are replayed with
equal coins and equal noise on neighbouring datasets, so that whatever differs is one unit's doing. Nothing private is read or spent.

A run that learns exactly from a part of each record that a mask chooses has its masks checked besides (`halfmask.audit.masks`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from halfmask.audit import masks
from halfmask.audit.beside import nothing_but_the_release, paid_ahead
from halfmask.audit.canaries import quarantine
from halfmask.audit.checks import FALSE_ALARM, noise_variance, poisson_coins
from halfmask.audit.findings import Finding, interval
from halfmask.data.prints import fingerprints_of, named_prints
from halfmask.data.records import Datasets, Records
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, LossFn, check_records_apart
from halfmask.models.mvit import MViT
from halfmask.report.audits import write_audit
from halfmask.tasks.base import Task
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import PrivateHalf, unit_loss
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.runs import TrainedRun
from halfmask.training.setup import Setup, prepare

_UNITS, _RECORDS, _QUIET_STEPS = 8, 2, 40
# Relative, for sums in the working precision of whatever network it is.
_ROUNDING = 1e-3
# So loud that every gradient is clipped.
_LOUD = 1e4
_UNIT = "unit"

CANNOT_SEE = (
    "what only real records set off: the records are noise in their shapes",
    "a leak outside the steps: whatever the program that calls them reads or keeps",
    "the noise of the run itself: the audit runs the same generator from a seed",
)


def audit_own(setup: Setup, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Audit the loss of a run that is at hand, and write what was found into its folder."""
    body = audit_loss(setup.task, setup.model, setup.private, setup.config, seed)
    write_audit(folder / "audit", body | {"run": folder.name})
    return body


def audit_run(run: TrainedRun, seed: int = 0) -> dict[str, Any]:
    """Audit the loss of a finished run, by the shape of the records it was judged on."""
    return audit_loss(run.task, run.model, run.task.load_test(), run.config, seed) | {"run": run.folder.name}


def audit_loss(task: Task, model: nn.Module, like: Records, config: RunConfig, seed: int = 0) -> dict[str, Any]:
    """Check what one unit can do to a step with this task's loss and this network; the content of the audit's file.

    Args:
        like: records whose shapes the noise has; no value of theirs is read.
    """
    with quarantine() as home:
        trainer = _trainer(task, copy.deepcopy(model).cpu(), like, config, seed, home)
        half = trainer.noised
        findings = [
            noise_variance(trainer),
            poisson_coins(trainer),
            loss_apart(trainer, task),
            units_apart(half),
            step_sensitivity(trainer, half),
            step_sensitivity(trainer, replace(half, loss=louder(half.loss)), "step-sensitivity, all clipped"),
            poison_left_out(half),
            unit_is_one(half),
            constant_divisor(trainer),
            coupling_refused(trainer, task),
        ]
        if trainer.post is not None or type(trainer.exact) is not PublicHalf:
            again = lambda name, other: _trainer(task, copy.deepcopy(model).cpu(), like, config, seed, home, name, other)  # noqa: E731
            findings += [nothing_but_the_release(again), paid_ahead(again("paid", False))]
    masked = isinstance(model, MViT) and masks.has_mask(task, config)
    if isinstance(model, MViT) and masked:
        findings += masks.mask_findings(config, model, seed)
    return {
        "audit": "loss",
        "task": config.task,
        "dataset": config.data.name,
        "path": trainer.engine.path,
        "trained_numbers": trainer.engine.size,
        "seed": seed,
        "checks": [finding.to_json() for finding in findings],
        "passed": all(finding.passed for finding in findings),
        "confidence": f"differences of replayed steps are exact up to rounding; each statistical check accuses sound code with a "
        f"probability of about {FALSE_ALARM:g}",
        "cannot_see": [*CANNOT_SEE, *(masks.CANNOT_SEE if masked else ())],
    }


def _trainer(
    task: Task, model: nn.Module, like: Records, config: RunConfig, seed: int, home: Path, name: str = "loss", other: bool = False
) -> Trainer:
    """The real trainer on units of noise.

    Args:
        name: of its folder, and of its people: each has an account of its own.
        other: with other private parts, other coins and other noise, and with everything public as it was.
    """
    task = copy.copy(task)
    kept = task.audited()
    fields = _noise(task, model, like, seed)
    count = _UNITS * _RECORDS
    private = {field: value for field, value in fields.items() if field not in like.targets.shapes()}
    if other:
        private |= {field: value for field, value in _noise(task, model, like, seed + 1000).items() if field in private}
    names = [f"audit of a loss/{name}/{row}" for row in range(count)]
    records = replace(
        like.without_view(),
        private=Arrays(private),
        targets=Arrays({field: value for field, value in fields.items() if field not in private}),
        truth=Arrays({}),
        units={config.unit: np.arange(count) // _RECORDS},
        key=f"audit of a loss/{name}/{seed}",
        prints=named_prints(names, [f"{name}/{row // _RECORDS}" for row in range(count)]),
        ids=None,  # type: ignore[arg-type]
    )
    trainable = [name for name, weight in model.named_parameters() if weight.requires_grad]
    body: dict[str, Any] = {
        "task": config.task,
        "method": "dpsgd",
        "strategy": "full",
        "epsilon": 1.0,
        "delta": 1e-6,
        "clip_norm": config.clip_norm,
        "batch": _UNITS // 2,
        "epochs": 1.0,
        "unit": config.unit,
        "records_per_unit": _RECORDS,
        "unit_gradient": config.unit_gradient,
        "seed": seed,
        "insecure_seed": seed + other,
        "device": "cpu",
        "even_so": True,
        "optimiser": {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "schedule": "constant"},
    }
    quiet = build_config(body | kept, {}, [])
    task.config = quiet
    setup = prepare(quiet, Progress(), Datasets(records, None, None, "noise", fingerprints_of(records)), model, task=task)
    for parameter, weight in model.named_parameters():
        weight.requires_grad = parameter in trainable
    trainer = Trainer(setup, RunFolder.create(home / name, quiet), Progress())
    trainer.refresh()
    return trainer


def _noise(task: Task, model: nn.Module, like: Records, seed: int) -> dict[str, np.ndarray]:
    """Records to try the loss on, as the task makes them up: several draws, so that not all are alike."""
    parts, config, wanted = list[Batch](), task.config, _UNITS * _RECORDS
    try:
        while sum(len(next(iter(part.values()))) for part in parts) < wanted:
            task.config = replace(config, seed=seed + len(parts))
            parts.append(task.sample(model, like))
    finally:
        task.config = config
    return {name: torch.cat([part[name] for part in parts])[:wanted].numpy() for name in parts[0]}


def louder(loss: LossFn) -> LossFn:
    """The loss, so many times, that nobody's gradient is short of the clip norm."""
    return lambda model, batch: _LOUD * loss(model, batch)


def _sum(half: PrivateHalf, records: Records, units: list[int]) -> Tensor:
    rows, index, weight = half.units.records_of(torch.tensor(units, dtype=torch.long))
    clipped = half.clipped(*half.shown(records, rows, index, weight, 0))
    return clipped.flat().double()  # type: ignore[union-attr]


def loss_apart(trainer: Trainer, task: Task) -> Finding:
    """The loss of a record, and its gradient, are what they are when the record is alone."""
    said = "each record's loss and gradient are its own"
    try:
        for sample in task.samples(trainer.setup.model, trainer.noised.records):
            check_records_apart(trainer.setup.model, task.loss, sample)
    except HalfmaskError as error:
        said = str(error)
    return Finding(
        "records-apart", said.startswith("each"), said, "each its own", "a layer or a loss that couples records: a mean over the batch, say"
    )


def units_apart(half: PrivateHalf) -> Finding:
    """What a unit adds to the clipped sum does not depend on who else is there, and is at most C."""
    clip, everyone = half.mechanism.clip_norm, list(range(_UNITS))
    whole = _sum(half, half.records, everyone)
    coupled = longest = 0.0
    for unit in everyone:
        alone = _sum(half, half.records, [unit])
        change = whole - _sum(half, half.records, [other for other in everyone if other != unit])
        longest = max(longest, float(alone.norm()) / clip, float(change.norm()) / clip)
        coupled = max(coupled, float((change - alone).norm()) / clip)
    return Finding(
        "units-apart",
        coupled <= _ROUNDING and longest <= 1 + _ROUNDING and bool(whole.norm() > 0),
        f"a unit's part changes by {coupled:.3g} C with its company; leaving it out moves the sum by {longest:.5g} C",
        "0 C, and at most 1 C; and not nothing at all",
        "a loss or a layer that couples units: clipping then bounds nobody",
    )


def _replayed(trainer: Trainer, half: PrivateHalf, absent: int | None) -> Tensor:
    """The release of one step with the coins and the noise of the first, with the private part of one unit gone."""
    units = copy.copy(half.units)
    units.members = [np.zeros(0, np.int64) if number == absent else members for number, members in enumerate(half.units.members)]
    fresh = replace(half.resumed(trainer.setup, 0, half.clip_norms), units=units)
    released = fresh.release(0).gradient
    assert released is not None
    return released.double()


def step_sensitivity(trainer: Trainer, half: PrivateHalf, name: str = "step-sensitivity") -> Finding:
    """Two steps with equal noise on neighbouring datasets differ by at most C/B̄."""
    share = half.mechanism.clip_norm / half.poisson.expected_batch
    whole = _replayed(trainer, half, None)
    moved = [float((whole - _replayed(trainer, half, unit)).norm()) / share for unit in range(_UNITS)]
    worst = max(moved)
    return Finding(
        name,
        worst <= 1 + _ROUNDING and worst > 0,
        f"one unit moves a step by at most {worst:.6g} of its share",
        "at most 1 (C/B̄ under zero-out), and more than 0",
        "a clip that is skipped or too wide, a divisor that follows the data, a unit that is clipped record by record",
    )


def poison_left_out(half: PrivateHalf) -> Finding:
    """A record with numbers that are none adds nothing, and spoils nobody else's part."""
    floats = [name for name, (kind, _) in half.records.private.shapes().items() if kind.kind == "f"]
    everyone = list(range(_UNITS))
    columns = {name: np.array(value) for name, value in half.records.private.rows(np.arange(len(half.records))).items()}
    for name in floats:
        columns[name][0] = np.nan
    spoilt = replace(half.records, private=Arrays(columns))
    try:
        found = _sum(half, spoilt, everyone)
        gap = float((found - _sum(half, half.records, everyone[1:])).norm()) / half.mechanism.clip_norm
        said = f"the sum differs by {gap:.3g} C from that of the others" if math.isfinite(gap) else "the sum is no longer a number"
    except HalfmaskError as error:
        gap, said = 0.0, f"refused: {error}"
    if not floats:
        gap, said = 0.0, "no field of a record can hold anything but numbers"
    return Finding(
        "poison-left-out", gap <= _ROUNDING, said, "0 C", "NaN or infinity in one record that gets past the clip, or spoils the sum"
    )


def unit_is_one(half: PrivateHalf) -> Finding:
    """However loud, all records of a unit together add at most C."""
    loud = replace(half, loss=louder(half.loss))
    lengths = [float(_sum(loud, half.records, [unit]).norm()) / half.mechanism.clip_norm for unit in range(_UNITS)]
    return Finding(
        "unit-is-one",
        max(lengths) <= 1 + _ROUNDING,
        f"the {_RECORDS} records of a unit add at most {max(lengths):.5g} C together",
        "at most 1 C",
        "records that are clipped one by one: a unit with many of them adds as many times C",
    )


def constant_divisor(trainer: Trainer) -> Finding:
    """Steps in which nobody has a gradient are noise alone, whoever was drawn: each has the energy of σC/B̄."""
    silent = replace(trainer.noised, loss=unit_loss(lambda model, batch: 0.0 * trainer.setup.task.loss(model, batch)))
    count = trainer.engine.size
    claimed = trainer.setup.noise_multiplier * silent.mechanism.clip_norm / trainer.setup.config.batch
    level = FALSE_ALARM / 2 / _QUIET_STEPS
    low, high = (float(stats.chi2.ppf(p, count)) / count for p in (level, 1 - level))
    energies = []
    for step in range(_QUIET_STEPS):
        released = silent.release(step).gradient
        assert released is not None
        energies.append(float(released.double().square().sum()) / claimed**2 / count)
    right = sum(low <= energy <= high for energy in energies)
    return Finding(
        "constant-divisor",
        right == _QUIET_STEPS,
        f"{right} of {_QUIET_STEPS} steps have the claimed energy ({min(energies):.4g} to {max(energies):.4g})",
        f"all of them, from {interval(low, high)}",
        "noise that is missing or scaled by something else, or division by the realised batch size",
    )


def coupling_refused(trainer: Trainer, task: Task) -> Finding:
    """Couple this very loss: the check before the first step must refuse it."""

    def coupled(model: nn.Module, batch: Batch) -> Tensor:
        losses = task.loss(model, batch)
        return losses * (1 + losses.mean())

    sample: Mapping[str, Tensor] = task.sample(trainer.setup.model, trainer.noised.records)
    said = "it was not refused"
    try:
        check_records_apart(trainer.setup.model, coupled, dict(sample))
    except HalfmaskError as error:
        said = str(error)
    return Finding(
        "coupled-loss-refused", "coupled" in said, said.split(":")[0], "refused", "a start-up check that this loss or network gets past"
    )
