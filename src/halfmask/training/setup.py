"""From a config to everything a run needs: model, people, samplers, noise, budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, Datasets, Records, Units
from halfmask.data.rehearsal import rehearsal_of
from halfmask.data.sharding import by_share
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS, Method, check_private_ready, method_named
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import SampledGaussian, calibrate, epsilon, steps_within
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.remote import open_account
from halfmask.privacy.units import told_by_id
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig
from halfmask.training.distributed import ALONE, Group, device_here
from halfmask.training.lineage import runs_behind
from halfmask.training.parts import divide_public, parted, set_basis_apart
from halfmask.training.progress import Progress
from halfmask.training.prospects import Prospect, check_prospect
from halfmask.training.shares import loaded_in_shares
from halfmask.training.strategy import with_lower_features
from halfmask.views import View, make_view


@dataclass(frozen=True)
class Setup:
    """A run, ready to start.

    Attributes:
        private: the records to protect, without any that became public.
        basis: S_pub, the public records the subspace comes from.
        raw_public: further public records, raw, for the exact half of a step.
        watched: public records whose loss may be shown.
        account: what was spent on these people, and what may be.
        behind: runs on these people whose weights this one goes on from.
        group: the processes that take the steps together. Of several, only root has the account.
        plan: what the accountant is told; `steps` is the whole plan. None where no noise is involved.
    """

    config: RunConfig
    task: Task
    method: Method
    model: nn.Module
    device: torch.device
    view: View
    data: Datasets
    private: Records
    units: Units
    basis: Records | None
    raw_public: Records | None
    watched: Records | None
    steps: int
    sampling_rate: float
    noise_multiplier: float
    account: Account
    behind: tuple[str, ...] = ()
    group: Group = ALONE

    @property
    def plan(self) -> SampledGaussian | None:
        """The private part of the run as the accountant sees it."""
        if self.method.private == "unread":
            return None
        return SampledGaussian(
            self.noise_multiplier, self.sampling_rate, self.steps, Adjacency.parse(self.config.adjacency), self.visible_batches
        )

    @property
    def adjacencies(self) -> tuple[Adjacency, ...]:
        """The relations that have a meaning for this run: not that of a removed unit, where something of it stays."""
        kept = self.method.adjacencies
        return tuple(one for one in kept if one is not Adjacency.ADD_REMOVE) if self.task.stays else kept

    @property
    def prospect(self) -> Prospect:
        """What the noise leaves of the signal, at best."""
        found = _prospect(self.config, self.method, self.model, len(self.units), self.sampling_rate, self.steps, self.noise_multiplier)
        return replace(found, projected=with_subspace(self.method, self.task, self.view))

    @property
    def visible_batches(self) -> bool:
        """Whether an exact gradient shows who was in each private batch."""
        return self.method.private == "noised" and self.method.view and self.config.public.shared_batch

    def spent(self, steps: int, grid: float | None = None) -> float:
        """ε of `steps` steps of this run; never more than was planned for all of them."""
        plan = self.plan
        if plan is None or steps == 0:
            return 0.0
        cost = epsilon([replace(plan, steps=steps)], self.config.delta, self.config.accountant, grid)
        return min(cost, self.config.epsilon) if plan.noise_multiplier > 0 else cost

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which each unit is expected once."""
        return max(1, math.ceil(len(self.units) / self.config.batch))


def prepare(
    config: RunConfig,
    progress: Progress,
    data: Datasets | None = None,
    model: nn.Module | None = None,
    planning: bool = False,
    task: Task | None = None,
    group: Group = ALONE,
) -> Setup:
    """Load and check everything; nothing private is spent here.

    Args:
        data, model, task: instead of those the config names; how an audit, or a model of the user's own, takes the same road.
        planning: only find out what a run would mean: no view and no feature is computed.
        group: the processes that prepare the run together.
    """
    method = method_named(config.method)
    device = pick_device(device_here(config.device))
    torch.manual_seed(config.seed)
    task = task or task_named(config.task)(config)
    data = loaded_in_shares(config, method, task, data, progress, group) if group.sharded else data or task.load(progress.stage)
    view = task.view() or make_view(config.view.name, config.view.options)
    data = parted(config, data, progress)
    everyone = data.fingerprints
    # What is trained on is what is paid for: names alone do not make another machine's pictures the same people.
    group.agree("the private people", everyone.exact.tobytes)
    account = group.at_root(lambda: open_account(everyone, config.unit), "the ledger")
    if config.rehearsal:
        data = rehearsal_of(data, view)
        progress.message(
            "a rehearsal: views play images, some private people play the test; no private image is read, and nothing is spent"
        )
    for line in data.remarks():
        progress.message(line)
    weights = getattr(config.model, "weights", "")
    if model is None and weights is None and config.strategy in ("top", "finetune"):
        progress.warn(
            f"strategy {config.strategy} keeps most of the network as it is, and model.weights names none: the frozen part is random. Set "
            "model.weights to a checkpoint"
        )
    behind = tuple(group.from_root(lambda: runs_behind(weights if config.strategy != "scratch" else None, account, model)))
    model = task.build(data) if model is None else model
    if behind:
        progress.warn(
            f"the initial weights come from {len(behind)} earlier run(s) on these people: the certificate will state the ε of all "
            f"of them together"
        )
    prints = fingerprints_of(data.private)
    given_up = group.from_root(lambda: account.given_up(prints))
    # Other pictures of somebody who is public: they are not public themselves, and there is nobody left to protect in them.
    known = group.from_root(lambda: account.given_up(prints, by_subject=True)) if told_by_id(config.unit) else given_up
    if (given_up | known).any():
        progress.message(
            f"{(given_up | known).sum():,} private records are public for good, because an earlier run gave them up or was pre-trained on "
            f"them: they and all of their units are left out"
        )
    private, basis = set_basis_apart(config, method, data, given_up, known)
    basis, raw_public, watched = divide_public(config, data, basis)
    if method.projected and not config.subspace.dim and watched is None:
        raise HalfmaskError(
            "subspace.dim=0 chooses the dimension on public people who are not in the subspace, and none are left: add records with split "
            "'public', name some in data.splits.tuning, lower subspace.samples, or set subspace.dim"
        )
    if config.private.calibrate and method.private == "noised" and watched is None:
        raise HalfmaskError(
            "private.calibrate needs public people whom nothing is trained on: add records with split 'public', or name some in "
            "data.splits.tuning"
        )
    if config.private.follow > 0 and method.private == "noised" and watched is None and basis is None:
        raise HalfmaskError(
            "private.follow needs public people whose gradients to measure: add records with split 'public', or set it to 0"
        )
    units = Units(private.unit_ids(config.unit), config.records_per_unit, config.seed, config.unit_gradient, private.ids, private.owners)
    check_private_ready(method, len(units), config.batch)
    task.prepare(model, data.public)
    model.to(device).eval()
    everyone_in_order = (private.ids, private.unit_ids(config.unit))
    group.agree("the private units", lambda: b"".join(np.ascontiguousarray(ids).tobytes() for ids in everyone_in_order))
    group.spread(model)
    task.trainable(model, config.strategy)
    planned = steps = math.ceil(config.epochs * len(units) / config.batch)
    rate = min(1.0, config.batch / len(units))
    sigma = 0.0
    if method.private == "noised":
        sigma, steps = group.from_root(lambda: noise_of(config, method, len(units), rate, planned, progress))
        if not planning:
            prospect = _prospect(config, method, model, len(units), rate, steps, sigma)
            doubt = check_prospect(replace(prospect, projected=with_subspace(method, task, view)), config.even_so)
            if doubt is not None:
                progress.warn(doubt)
    if method.view and not planning:
        progress.message(f"public view: {view.describe()}")
        private = by_share(private, group.rank, lambda part: with_view(part, view))
        if method.rest and private.rest is None:
            raise HalfmaskError(
                f"method '{method.name}' protects what a view leaves of a record, and this one ({view.describe()}) does not divide records "
                f"in two: use a view that does, such as 'tokens' of clips, or a feature method"
            )
        # Public people stand for private ones in the subspace and the clip norm: they are shown as those are.
        alike = config.private.residual or method.rest
        basis, watched = (with_view(part, view) if part is not None and alike else part for part in (basis, watched))
    lower = task.lower(model) if config.strategy in task.cached and not planning else None
    if lower is not None:
        copies = config.augment.copies if config.augment.times else 0

        def cache(records: Records | None, whose: str, copies: int = copies, mirrored: bool = False, whole: bool = False) -> Records | None:
            if records is None or not len(records):
                return records
            telling = lambda done, total: progress.stage(f"features of {whose}", done, total)  # noqa: E731
            return with_lower_features(records, task, lower, device, telling, copies, mirrored, config.augment.views, whole=whole)

        # A method that never shows a private image needs no copies of any; those of views go with them.
        shown = copies if method.private != "unread" or config.augment.views else 0
        private = by_share(private, group.rank, lambda part: cache(part, "private people", shown) or part)
        raw_public = cache(raw_public, "public people", config.augment.copies if config.augment.public else copies)
        basis, watched = cache(basis, "S_pub"), cache(watched, "watched people", whole=True)
        data = replace(data, test=cache(data.test, "test people", copies=0, mirrored=True))
    return Setup(
        config,
        task,
        method,
        model,
        device,
        view,
        data,
        private,
        units,
        basis,
        raw_public,
        watched,
        steps,
        rate,
        sigma,
        account,
        behind,
        group,
    )


def noise_of(config: RunConfig, method: Method, units: int, rate: float, steps: int, progress: Progress) -> tuple[float, int]:
    """σ, and how many steps may be taken with it."""
    if config.delta >= 1 / units:
        progress.warn(
            f"delta {config.delta:g} is not below 1/N = {1 / units:.2g}: a mechanism that publishes one of the {units} "
            f"{config.unit}s outright would satisfy it. Use {0.1 / units:.1g} or less"
        )
    visible = method.view and config.public.shared_batch
    adjacency = Adjacency.parse(config.adjacency)
    if config.noise_multiplier is None:
        return calibrate(config.epsilon, config.delta, rate, steps, adjacency, config.accountant, visible), steps
    plan = SampledGaussian(config.noise_multiplier, rate, steps, adjacency, visible)
    allowed = steps_within(config.epsilon, config.delta, plan, config.accountant)
    if not allowed:
        raise HalfmaskError(
            f"a single step with noise_multiplier {config.noise_multiplier:g} costs more than ε = {config.epsilon:g}: raise it or ε, or "
            "leave it out, and the noise is what the steps need"
        )
    progress.message(f"ε = {config.epsilon:g} lasts for {allowed:,} of {steps:,} steps with σ = {config.noise_multiplier:g}")
    return config.noise_multiplier, allowed


def _prospect(config: RunConfig, method: Method, model: nn.Module, units: int, rate: float, steps: int, sigma: float) -> Prospect:
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    coordinates = min(trained, config.subspace.dim or config.subspace.most) if method.projected else trained
    return Prospect(units, config.unit, units * rate, steps, sigma, coordinates)


def with_subspace(method: Method, task: Task, view: View) -> tuple[str, ...]:
    """The methods that would noise fewer coordinates than this one, with no less of a public half; none if it is one of them."""
    fits = [one for one in METHODS.values() if one.projected and one.name in task.methods and (view.may_divide or not one.rest)]
    return () if method.projected else tuple(one.name for one in fits if one.view >= method.view and one.rest >= method.rest)


def public_samples(setup: Setup) -> list[dict[str, torch.Tensor]]:
    """A few records at a time to try a loss on: public people, or noise where a run has none, and people a model is judged on.

    Several, because a loss that couples records may not show it on records that happen to be alike.
    """
    samples = []
    public = next((part for part in (setup.basis, setup.raw_public, setup.watched) if part is not None and len(part) >= 2), None)
    for records in (public, setup.data.test):
        if records is not None and len(records) >= 2:
            for start in range(0, min(12, len(records) - 1), 4):
                samples.append(records.batch(torch.arange(start, min(start + 4, len(records))), PRIVATE, setup.device))
    if public is None:
        noise = setup.task.samples(setup.model, setup.private)
        samples += [{name: tensor.to(setup.device) for name, tensor in batch.items()} for batch in noise]
    return samples


def pick_device(name: str) -> torch.device:
    """The device a recipe names; `auto` takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except Exception:  # torch raises a different kind for each way a device can be absent
        raise HalfmaskError(f"device '{name}' cannot be used here: choose auto, cpu, or a GPU this machine has") from None
