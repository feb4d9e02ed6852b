"""A sweep as it would be: the noise and the steps of every run, and how long it would take here, before anything is spent.

No image of a private person is opened, no account is looked at, and nothing is written but caches of public people: the number of units is
what annotations say, and a few steps are timed with public people in the place of private ones, in a process of its own (whose memory is
then that of a run) and in a home that is thrown away.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from halfmask.data.prints import named_prints
from halfmask.data.records import Datasets, Records, Units
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.home import throwaway_home
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.prospects import HOPELESS, Prospect
from halfmask.training.setup import noise_of, prepare
from halfmask.training.sweep import PlannedRun

# Steps that are timed, and those before them, in which networks and engines make what they keep.
_TIMED, _BEFORE = 4, 2
_SCORED = 64
_MOST_STAND_INS = 512


@dataclass(frozen=True)
class Measured:
    """What a few steps on public people took, per step, per refresh of what comes from public people, and per record.

    Attributes:
        batch: expected units in a timed step; a run's own may be more than there are public people.
        memory: the most that the process held, in bytes; of a GPU, where one was used, on it.
        coordinates: numbers that are noised in a step.
        refresh: seconds for a new subspace or clip norm.
    """

    step: float
    refresh: float
    prepared: float
    scored: float
    batch: float
    memory: int
    coordinates: int


@dataclass(frozen=True)
class Estimate:
    """One run as it would be. Seconds and bytes are None where no public people could be timed."""

    run: str
    method: str
    epsilon: float | None
    clip_norm: float | None
    seed: int
    units: int
    steps: int
    sampling_rate: float
    noise_multiplier: float
    seconds: float | None
    memory_bytes: int | None
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def estimate(planned: Sequence[PlannedRun], progress: Progress, size: int | None = None, threads: int | None = None) -> list[Estimate]:
    """Every run of a sweep as it would be.

    Args:
        size: how many private units there are, where it cannot be told without opening their images.
        threads: of each run.
    """
    tests = len(task_named(planned[0].config.task)(planned[0].config).load_test(progress.stage))
    counts, times, found = dict[str, int](), dict[str, Measured | str](), list[Estimate]()
    for number, run in enumerate(planned, 1):
        config = run.config
        units = counts.setdefault(config.unit, _units(config, size))
        # Seeds, ε and clip norms change no step's time.
        alike = replace(config, seed=0, epsilon=1.0, clip_norm=1.0, noise_multiplier=None)
        if alike.to_yaml() not in times:
            progress.message(f"timing {config.method} on public people")
            times[alike.to_yaml()] = _measured(alike, threads)
        found.append(_estimate(run, units, tests, times[alike.to_yaml()]))
        progress.stage("planning runs", number, len(planned))
    return found


def together(planned: Sequence[PlannedRun], found: Sequence[Estimate]) -> float:
    """ε of all noised runs of a sweep, composed."""
    config, steps = planned[0].config, dict[SampledGaussian, int]()
    for run, one in zip(planned, found, strict=True):
        if method_named(one.method).private == "noised":
            visible = method_named(one.method).view and run.config.public.shared_batch
            plan = SampledGaussian(one.noise_multiplier, one.sampling_rate, 0, Adjacency.parse(run.config.adjacency), visible)
            steps[plan] = steps.get(plan, 0) + one.steps
    visible_plans = [replace(plan, steps=count) for plan, count in steps.items() if plan.visible_batches]
    hidden = [replace(plan, steps=count) for plan, count in steps.items() if not plan.visible_batches]
    share = config.delta / (len(visible_plans) + bool(hidden) or 1)
    return (epsilon(hidden, share, config.accountant) if hidden else 0.0) + sum(epsilon([plan], share) for plan in visible_plans)


def _units(config: RunConfig, size: int | None) -> int:
    if size is not None:
        return size
    task = task_named(config.task)(config)
    if config.data.name == "figures":
        # Drawn people: there is nobody to look away from.
        return len(Units(task.load().private.unit_ids(config.unit), config.records_per_unit))
    known = task.count_private()
    if known is None:
        raise HalfmaskError(
            f"how many {config.unit}s there are to protect in '{config.data.name}' cannot be told without opening their images: say it "
            "with --size ('halfmask plan' opens them)"
        )
    return known


def _estimate(run: PlannedRun, units: int, tests: int, measured: Measured | str) -> Estimate:
    config = run.config
    method = method_named(config.method)
    if method.projected and config.subspace.source == "private":
        units = max(1, units - config.subspace.samples)
    rate, steps, sigma = min(1.0, config.batch / units), int(np.ceil(config.epochs * units / config.batch)), 0.0
    remark, began = "", time.perf_counter()
    if method.private == "noised":
        # A run does this too, and it takes its time.
        try:
            sigma, steps = noise_of(config, method, units, rate, steps, Progress())
        except HalfmaskError as error:
            remark = str(error)
    calibrated, seconds, memory = time.perf_counter() - began, None, None
    if isinstance(measured, str):
        remark = remark or measured
    else:
        larger = max(1.0, config.batch / measured.batch)
        refreshes = max(1, steps * config.batch // max(1, units))
        seconds = calibrated + measured.prepared * units + tests * measured.scored
        seconds += steps * larger * measured.step + refreshes * measured.refresh
        memory = measured.memory
        if sigma and not remark:
            remark = _hopeless(config, units, steps, sigma, measured.coordinates)
    asked = run.combination
    return Estimate(
        asked.label, asked.method, asked.epsilon, asked.clip_norm, asked.seed, units, steps, rate, sigma, seconds, memory, remark
    )


def _hopeless(config: RunConfig, units: int, steps: int, sigma: float, coordinates: int) -> str:
    prospect = Prospect(units, config.unit, min(config.batch, units), steps, sigma, coordinates)
    if prospect.signal >= HOPELESS or config.even_so:
        return ""
    return f"would be refused: at best its signal is {prospect.signal:.2g} of its noise"


def _measured(config: RunConfig, threads: int | None) -> Measured | str:
    """In a process of its own; in words where it cannot be done."""
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(_measure, config, threads).result()
    except HalfmaskError as error:
        return f"not timed: {error}"
    except BrokenProcessPool:
        return "not timed: the process that tried a few steps died, most likely for want of memory"


def _measure(config: RunConfig, threads: int | None) -> Measured:
    if threads is not None:
        torch.set_num_threads(threads)
    task = task_named(config.task)(config)
    public, test = task.load_public()[0], task.load_test()
    # What stand-ins are paid for with, and what is kept of them, belongs to nobody.
    with throwaway_home() as folder:
        return _timed(config, task, public, test, folder / "run")


def _timed(config: RunConfig, task: Task, public: Records, test: Records, folder: Path) -> Measured:
    count = min(len(public), max(_MOST_STAND_INS, config.subspace.samples + 2))
    some = public.take(np.arange(count))
    private, others = (replace(some, prints=_nobodys(part, count), key=f"{some.key}/{part}") for part in ("private", "public"))
    units = len(np.unique(private.unit_ids(config.unit)))
    batch = min(config.batch, units)
    steps = _BEFORE + _TIMED
    trial = replace(
        config,
        batch=batch,
        epochs=steps * batch / units,
        noise_multiplier=10.0,
        epsilon=100.0,
        delta=min(config.delta, 0.1 / units),
        budget=None,
        declared_reads=[],
        insecure_seed=None,
        unsafe_diagnostics=False,
        even_so=True,
        subspace=replace(config.subspace, source="public"),
    )
    began = time.perf_counter()
    setup = prepare(trial, Progress(), Datasets(private, others, None, "stand-ins"), task=task_named(config.task)(trial))
    prepared = (time.perf_counter() - began) / count
    trainer = Trainer(setup, RunFolder.create(folder, trial), Progress())
    trainer.begin()
    took, refresh = list[float](), 0.0
    for _ in range(steps):
        began = time.perf_counter()
        trainer.make_ready(steps)
        ready = time.perf_counter()
        trainer.take_step()
        trainer.standing.step += 1
        took.append(time.perf_counter() - ready)
        refresh = max(refresh, ready - began)
    began, judged = time.perf_counter(), test.take(np.arange(min(_SCORED, len(test))))
    task.score(setup.model, judged, device=setup.device)
    scored = (time.perf_counter() - began) / len(judged)
    return Measured(median(took[_BEFORE:]), refresh, prepared, scored, batch, _peak(setup.device), setup.prospect.coordinates)


def _nobodys(part: str, count: int) -> Any:
    """Fingerprints by which stand-ins are nobody: the same public people serve as private and as public ones."""
    names = [f"stand-in {part} {number}" for number in range(count)]
    return named_prints(names, names)


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource

    # In KiB, but on a Mac in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
