"""Non-private training on public people: where the initial weights come from.

Nobody private is read here, so batch normalisation may learn its statistics and nothing is clipped or noised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfmask.data.augment import augment
from halfmask.data.datasets import load_public, with_view
from halfmask.data.figures_records import figures_records
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PoseRecords
from halfmask.errors import HalfmaskError
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import learning_statistics
from halfmask.privacy.account import RAW, Account, Publication, protected_among
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.sampling import PublicSampler
from halfmask.tasks.pose import evaluate, pose_loss
from halfmask.training.config import RunConfig
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import build_model, pick_device
from halfmask.training.showing import Showing
from halfmask.training.strategy import choose_parameters, with_lower_features
from halfmask.views import View, make_view


def pretrain(config: RunConfig, out: Path, progress: Progress | None = None) -> Path:
    """Train a model on the public people of a recipe's dataset and save it; returns the run folder.

    Reads only public records: for `figures`, the first `data.public` public people. It is judged on `data.splits.tuning`, or on public
    people set aside.
    """
    progress = progress or Progress()
    folder = RunFolder.create(out, config)
    torch.manual_seed(config.seed)
    device = pick_device(config.device)
    public, watched, dataset = _public_people(config, progress)
    model = build_model(config.model, public.joints.shape[1]).to(device)
    steps = math.ceil(config.epochs * len(public) / config.batch)
    if config.pretrain.top:
        draw = _from_features(config, public, model, progress)
        model.eval()
    else:
        draw = _from_images(config, public, steps)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=config.optimiser.learning_rate, weight_decay=config.optimiser.weight_decay)
    warm_up = max(1, steps // 20)
    folder.log("start", steps=steps, trainable_parameters=sum(p.numel() for p in weights))
    for step in range(steps):
        share = min(1.0, (step + 1) / warm_up) * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = config.optimiser.learning_rate * share
        batch = {name: tensor.to(device) for name, tensor in draw(step).items()}
        with nullcontext() if config.pretrain.top else learning_statistics(model, momentum=0.05):
            loss = pose_loss(model, batch).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 50.0)
        optimiser.step()
        progress.step(step + 1, steps, float(loss.detach()), None)
        if (step + 1) % max(1, steps // 20) == 0:
            folder.log("epoch", step=step + 1, public_loss=float(loss.detach()))
    folder.save_model(model)
    metrics, per_joint = evaluate(model, watched, device=device)
    folder.save_metrics(config.task, dataset, "public", metrics, per_joint)
    return out


def _from_images(config: RunConfig, public: PoseRecords, steps: int) -> Callable[[int], dict[str, Tensor]]:
    """Batches for training the whole network: crops changed anew each time, the first of them at half size."""
    sampler = PublicSampler(len(public), config.batch, config.seed + 1)
    generator = torch.Generator().manual_seed(config.seed + 2)
    view = make_view(config.view.name, config.view.options)
    change = lambda batch: augment(batch, generator, config.augment.change, public.skeleton)  # noqa: E731

    def draw(step: int) -> dict[str, Tensor]:
        batch = _show_views(public.batch(sampler.draw()), view, config.pretrain.view_share, generator)
        if step >= config.pretrain.small_share * steps:
            return change(batch)
        # Half-size pixel i covers pixels 2i and 2i + 1, so its centre is 2i + ½. The targets stay those of the whole size.
        batch |= {"image": torch.nn.functional.avg_pool2d(batch["image"].float(), 2), "joints": (batch["joints"] - 0.5) / 2}
        batch = change(batch)
        batch["joints"] = batch["joints"] * 2 + 0.5
        return batch

    return draw


def _from_features(config: RunConfig, public: PoseRecords, model: PoseModel, progress: Progress) -> Callable[[int], dict[str, Tensor]]:
    """Batches for training stage 4 and the head: below them everything, of fixed copies of each record, is computed once."""
    choose_parameters(model, "top")
    views = round(config.pretrain.view_share * config.batch)
    if views:
        public = with_view(public, make_view(config.view.name, config.view.options))
    telling = lambda done, total: progress.stage("features of public people", done, total)  # noqa: E731
    device = next(model.parameters()).device
    public = with_lower_features(public, model.eval(), device, telling, config.augment.copies, config.augment.change)
    samplers = [PublicSampler(len(public), max(1, size), config.seed + 1) for size in (config.batch - views, views)]
    showing = Showing(config.augment, config.seed + 2)

    def draw(step: int) -> dict[str, Tensor]:
        parts = showing.show(public, samplers[0].draw().numpy(), "image", use="public", step=step, times=1)
        if views:
            parts += showing.show(public, samplers[1].draw().numpy(), "view", use="public", step=step, times=1)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    return draw


def _show_views(batch: dict[str, Tensor], view: View, share: float, generator: torch.Generator) -> dict[str, Tensor]:
    """The batch with about `share` of its images replaced by their views, before any augmentation, as private views will be."""
    images = batch["image"].numpy().copy()
    for i in torch.nonzero(torch.rand(len(images), generator=generator) < share).flatten().tolist():
        images[i] = view(np.ascontiguousarray(images[i].transpose(1, 2, 0))).transpose(2, 0, 1)
    return batch | {"image": torch.from_numpy(images)}


def _public_people(config: RunConfig, progress: Progress) -> tuple[PoseRecords, PoseRecords, str]:
    if config.data.name == "figures":
        draw = lambda count, skip: figures_records(  # noqa: E731
            "public",
            count,
            config.data.seed,
            skip,
            config.model.input_size,
            lambda d, t: progress.stage("drawing public people", d, t),
        )
        return draw(config.data.public, 0), draw(400, config.data.public), "figures"
    public, tuning = load_public(config.data, config.model.input_size, progress.stage)
    if len(public) < 10:
        raise HalfmaskError(f"'{config.data.name}' has fewer than 10 records with split 'public': there is nobody to pre-train on")
    _declare_public([public] if tuning is None else [public, tuning])
    if tuning is not None:
        return public, tuning, config.data.name
    aside = max(1, len(public) // 10)
    everyone = np.arange(len(public))
    return public.take(everyone[aside:]), public.take(everyone[:aside]), config.data.name


def _declare_public(parts: Sequence[PoseRecords]) -> None:
    """Weights without noise remember people: nobody whom an account protects, and nobody who is trained on here may be private later."""
    prints = Fingerprints.joined([fingerprints_of(part) for part in parts])
    protected = sum(protected_among(prints).values())
    if protected:
        raise HalfmaskError(
            f"{protected:,} of {len(prints):,} records to pre-train on show people whom an account here protects: weights would "
            f"remember them. "
            "Choose others with data.splits.public"
        )
    hashes = tuple(sorted({row.tobytes().hex() for row in prints.exact}))
    words = f"{len(prints):,} whole records that initial weights were trained on"
    Account(prints).begin(None, None, publications=[Publication(RAW, words, hashes)])
