"""From a config to everything a run needs: model, people, samplers, noise, budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from halfmask.data.datasets import Datasets, load_datasets, with_view
from halfmask.data.keyed import uniforms
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PoseRecords, Units
from halfmask.data.rehearsal import rehearsal_of
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import Method, check_private_ready, method_named
from halfmask.models.checkpoints import load_into, read_state
from halfmask.models.simcc import PoseModel
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import SampledGaussian, calibrate
from halfmask.privacy.adjacency import Adjacency
from halfmask.training.config import ModelConfig, RunConfig
from halfmask.training.lineage import runs_behind
from halfmask.training.parts import divide_public, parted
from halfmask.training.progress import Progress
from halfmask.training.prospects import Prospect, check_prospect
from halfmask.training.strategy import choose_parameters, learn_public_statistics, with_lower_features
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
        plan: what the accountant is told; `steps` is the whole plan. None where no noise is involved.
    """

    config: RunConfig
    method: Method
    model: PoseModel
    device: torch.device
    view: View
    data: Datasets
    private: PoseRecords
    units: Units
    basis: PoseRecords | None
    raw_public: PoseRecords | None
    watched: PoseRecords | None
    steps: int
    sampling_rate: float
    noise_multiplier: float
    account: Account
    behind: tuple[str, ...] = ()

    @property
    def plan(self) -> SampledGaussian | None:
        """The private part of the run as the accountant sees it."""
        if self.method.private == "unread":
            return None
        return SampledGaussian(
            self.noise_multiplier, self.sampling_rate, self.steps, Adjacency.parse(self.config.adjacency), self.visible_batches
        )

    @property
    def prospect(self) -> Prospect:
        """What the noise leaves of the signal, at best."""
        return _prospect(self.config, self.method, self.model, len(self.units), self.sampling_rate, self.steps, self.noise_multiplier)

    @property
    def visible_batches(self) -> bool:
        """Whether an exact gradient shows who was in each private batch."""
        return self.method.private == "noised" and self.method.view and self.config.public.shared_batch

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which each unit is expected once."""
        return max(1, math.ceil(len(self.units) / self.config.batch))


def prepare(
    config: RunConfig, progress: Progress, data: Datasets | None = None, model: PoseModel | None = None, planning: bool = False
) -> Setup:
    """Load and check everything; nothing private is spent here.

    Args:
        data, model: instead of those the config names; how an audit sends its own people and network down the same road.
        planning: only find out what a run would mean: no view and no feature is computed.
    """
    method = method_named(config.method)
    device = pick_device(config.device)
    torch.manual_seed(config.seed)
    data = data or load_datasets(config.data, config.model.input_size, progress.stage)
    view = make_view(config.view.name, config.view.options)
    data = parted(config, data, progress)
    account = Account(data.fingerprints, config.unit)
    if config.rehearsal:
        data = rehearsal_of(data, view)
        progress.message(
            "a rehearsal: views play images, some private people play the test; no private image is read, and nothing is spent"
        )
    for line in data.remarks():
        progress.message(line)
    if model is None and config.model.weights is None and config.strategy in ("top", "finetune"):
        progress.warn(
            f"strategy {config.strategy} keeps most of the network as it is, and model.weights names none: the frozen part is random. Set "
            "model.weights to a checkpoint"
        )
    model = model or build_model(config.model, joints=data.private.joints.shape[1], untrained=config.strategy == "scratch")
    behind = tuple(runs_behind(config, account))
    if behind:
        progress.warn(
            f"the initial weights come from {len(behind)} earlier run(s) on these people: the certificate will state the ε of all "
            f"of them together"
        )
    given_up = account.given_up(fingerprints_of(data.private))
    # Other pictures of somebody who is public: they are not public themselves, and there is nobody left to protect in them.
    known = account.given_up(fingerprints_of(data.private), by_subject=True) if config.unit == "subject" else given_up
    if (given_up | known).any():
        progress.message(
            f"{(given_up | known).sum():,} private records are public for good, because an earlier run gave them up or was pre-trained on "
            f"them: they and all of their units are left out"
        )
    private, basis = _set_basis_apart(config, method, data, given_up, known)
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
    units = Units(private.unit_ids(config.unit), config.records_per_unit, config.seed, config.unit_gradient, private.ids)
    check_private_ready(method, len(units), config.batch)
    if config.strategy == "scratch" and config.model.norm == "batch":
        if data.public is None:
            raise HalfmaskError(
                "training from scratch needs public people for its normalisation statistics: add records with split 'public', or use "
                "model.norm=group"
            )
        learn_public_statistics(model, data.public)
    model.to(device).eval()
    choose_parameters(model, config.strategy)
    steps = math.ceil(config.epochs * len(units) / config.batch)
    rate = min(1.0, config.batch / len(units))
    sigma = 0.0
    if method.private == "noised":
        sigma = _noise(config, method, len(units), rate, steps, progress)
        if not planning:
            doubt = check_prospect(_prospect(config, method, model, len(units), rate, steps, sigma), config.even_so)
            if doubt is not None:
                progress.warn(doubt)
    if method.view and not planning:
        progress.message(f"public view: {view.describe()}")
        private = with_view(private, view)
        # The subspace of residuals comes from residuals of public people.
        basis, watched = (with_view(part, view) if part is not None and config.private.residual else part for part in (basis, watched))
    if config.strategy == "top" and not planning:
        copies = config.augment.copies if config.augment.times else 0

        def cache(records: PoseRecords | None, whose: str, copies: int = copies, mirrored: bool = False) -> PoseRecords | None:
            if records is None or not len(records):
                return records
            telling = lambda done, total: progress.stage(f"features of {whose}", done, total)  # noqa: E731
            return with_lower_features(records, model, device, telling, copies, config.augment.change, mirrored, config.augment.views)

        # A method that never shows a private image needs no copies of any; those of views go with them.
        shown = copies if method.private != "unread" or config.augment.views else 0
        private = cache(private, "private people", shown) or private
        raw_public = cache(raw_public, "public people", config.augment.copies if config.augment.public else copies)
        basis, watched = (cache(part, name) for part, name in ((basis, "S_pub"), (watched, "watched people")))
        data = replace(data, test=cache(data.test, "test people", copies=0, mirrored=True))
    return Setup(
        config,
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
    )


def _noise(config: RunConfig, method: Method, units: int, rate: float, steps: int, progress: Progress) -> float:
    if config.delta >= 1 / units:
        progress.warn(
            f"delta {config.delta:g} is not below 1/N = {1 / units:.2g}: a mechanism that publishes one of the {units} "
            f"{config.unit}s outright would satisfy it. Use {0.1 / units:.1g} or less"
        )
    visible = method.view and config.public.shared_batch
    return calibrate(config.epsilon, config.delta, rate, steps, Adjacency.parse(config.adjacency), config.accountant, visible)


def _prospect(config: RunConfig, method: Method, model: PoseModel, units: int, rate: float, steps: int, sigma: float) -> Prospect:
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    coordinates = min(trained, config.subspace.dim or config.subspace.most) if method.projected else trained
    return Prospect(units, config.unit, units * rate, steps, sigma, coordinates)


def public_sample(setup: Setup) -> dict[str, torch.Tensor]:
    """Four records to try a loss on: public people, or noise where a run has none."""
    records = setup.basis or setup.raw_public or setup.watched
    if records is not None and len(records) >= 2:
        return records.batch(torch.arange(min(4, len(records))), "image", setup.device)
    generator = torch.Generator().manual_seed(setup.config.seed)
    pixels = torch.randint(0, 256, (4, 3, *setup.model.input_size), generator=generator, dtype=torch.uint8)
    joints = torch.rand(4, setup.model.joints, 2, generator=generator) * min(setup.model.input_size)
    batch = {"image": pixels, "joints": joints, "labelled": torch.ones(4, setup.model.joints, dtype=torch.bool)}
    return {name: tensor.to(setup.device) for name, tensor in batch.items()}


def pick_device(name: str) -> torch.device:
    """The device a recipe names; `auto` takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except Exception:  # torch raises a different kind for each way a device can be absent
        raise HalfmaskError(f"device '{name}' cannot be used here: choose auto, cpu, or a GPU this machine has") from None


def build_model(config: ModelConfig, joints: int = 16, untrained: bool = False) -> PoseModel:
    """The network with its public weights: embedded, of a whole pose model, or of a backbone alone."""
    model = PoseModel(config.size, joints, config.input_size, config.stage4_stride, config.norm, config.bins_per_pixel)
    if untrained or config.weights is None:
        return model
    if config.weights == "embedded":
        path = Path(str(resources.files("halfmask").joinpath(f"weights/pose_{config.size}.safetensors")))
        if not path.is_file():
            raise HalfmaskError(f"no embedded weights for model size '{config.size}': set model.weights to a file, or use size 'nano'")
    else:
        path = Path(config.weights).expanduser()
    state = read_state(path)
    if any(name.startswith("head.conv") for name in state):
        load_into(model, state, str(path))
    else:
        model.backbone.load_weights(path)
    return model


def _set_basis_apart(
    config: RunConfig, method: Method, data: Datasets, given_up: np.ndarray | None = None, of_public_people: np.ndarray | None = None
) -> tuple[PoseRecords, PoseRecords | None]:
    """With `subspace.source: private`, whole units leave the private set, become public, and span the subspace.

    Whoever is on their photographs leaves with them. Units that left in an earlier run are public for good: they leave again, whatever the
    method, and are the first to be used. The others are those for whose ids a public seed draws the smallest numbers: the choice looks at
    nobody, and whoever stays has no part in it.

    Args:
        given_up: which private records are public already, one flag each.
        of_public_people: which are of somebody who is, in this picture or in another.
    """
    private, wanted = data.private, config.subspace.samples
    known = np.zeros(len(private), bool) if given_up is None else given_up
    units, unit_of, sizes = np.unique(private.unit_ids(config.unit), return_inverse=True, return_counts=True)
    leave = known if of_public_people is None else known | of_public_people
    public = np.isin(np.arange(len(units)), unit_of[leave])
    leaving = public.copy()
    basis = np.flatnonzero(known)[:wanted]
    if method.projected and config.subspace.source == "private":
        names = np.full(len(units), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(names, unit_of, private.ids)
        draws = uniforms(config.seed, "units of S_pub", 0, names)[:, 0]
        order = np.array([unit for unit in np.argsort(draws, kind="stable") if not public[unit]], np.int64)
        # A unit leaves whole, and as long as those before it are too few.
        before = len(basis) + np.cumsum(sizes[order]) - sizes[order]
        leaving[order[before < wanted]] = True
        fresh = np.flatnonzero(leaving[unit_of] & ~public[unit_of])
        basis = np.sort(np.concatenate([basis, fresh[: wanted - len(basis)]]))
        # A photograph that is public shows whoever else is on it.
        leaving[unit_of[np.isin(private.image_ids, private.image_ids[basis])]] = True
    gone = leaving[unit_of]
    if gone.all():
        raise HalfmaskError(
            f"S_pub would take all {len(private)} private records, with those that earlier runs gave up: lower subspace.samples "
            f"({wanted}) or "
            "use public people"
        )
    stay = private.take(np.flatnonzero(~gone)) if gone.any() else private
    return stay, private.take(basis) if method.projected and config.subspace.source == "private" else None


def public_assumptions(setup: Setup) -> list[str]:
    """What the certificate says is assumed public."""
    config = setup.config
    lines = [
        f"the number of private units ({len(setup.units):,}), the sampling rate and every hyper-parameter",
        "the initial weights and the data they were pre-trained on"
        + (f" (model weights: {config.model.weights})" if config.model.weights and config.strategy != "scratch" else ""),
    ]
    if config.rehearsal:
        lines.insert(
            0,
            "this was a **rehearsal**: the views of private people, which are public, took the place of their images, and one in nine "
            "of them was the test set. No private image was read; nothing here speaks of a model that was trained on images",
        )
    if setup.method.view:
        lines += [
            f"ψ of every private record: {setup.view.describe()}",
            "the labels of every private record: keypoints, visibility and crop box (they are **not** protected by this method)",
        ]
    if setup.method.projected and setup.basis is not None:
        source = "taken out of the private set and not protected" if config.subspace.source == "private" else "public people"
        lines.append(f"S_pub: {len(setup.basis)} records with their labels, {source}")
    chosen_on_watched = (setup.method.projected and not config.subspace.dim) or config.private.follow > 0 or config.private.calibrate
    if setup.watched is not None and setup.method.private == "noised" and chosen_on_watched:
        lines.append(f"{len(setup.watched)} public people on whom settings were chosen along the way")
    if setup.method.view and setup.raw_public is not None and config.public.raw_share > 0:
        lines.append(f"{len(setup.raw_public)} raw images of public people with their labels")
    if setup.data.recurring:
        lines.append(
            f"{setup.data.recurring} private records whose photograph or subject another part has too: they were left out, and are not "
            "protected"
        )
    if config.unit == "subject" and config.data.strangers:
        parts = " and ".join(f"'{part}'" for part in config.data.strangers)
        lines.append(f"that nobody in {parts} is a protected subject: declared by the data holder, and not checked, for want of ids")
    lines.append("the test set on which the metrics were measured")
    return lines
