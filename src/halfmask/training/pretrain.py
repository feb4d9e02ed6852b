"""Non-private training on public people: where the initial weights come from.

Nobody private is read here, so batch normalisation may learn its statistics and nothing is clipped or noised. The steps are those of the
one loop, with an exact half of another make and nothing to pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfmask.data.augment import augment
from halfmask.data.datasets import load_public
from halfmask.data.figures_records import figures_records
from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, VIEW, Datasets, Records, Units
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.gradients.mechanism import method_named
from halfmask.models.pose import build_model
from halfmask.models.tinyvit import learning_statistics
from halfmask.privacy.account import RAW, Account, Publication, protected_among
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.sampling import PublicSampler
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.private import PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.setup import Setup, pick_device
from halfmask.training.showing import Showing
from halfmask.training.spending import Payments
from halfmask.training.strategy import with_lower_features
from halfmask.views import make_view

# A gradient longer than this is shortened to it: the first ones, of an untrained network, can be.
_LONGEST = 50.0


def pretrain(config: RunConfig, out: Path, progress: Progress | None = None) -> Path:
    """Train a model on the public people of a recipe's dataset and save it; returns the run folder.

    Reads only public records: for `figures`, the first `data.public` public people. It is judged on `data.splits.tuning`, or on public
    people set aside.
    """
    progress = progress or Progress()
    folder = RunFolder.create(out, config)
    setup = _prepare(config, progress)
    trainer = Trainer(setup, folder, progress)
    kind = FromFeatures if config.pretrain.top else FromImages
    trainer.exact, trainer.payments = kind(setup, trainer.engine), Unpaid(setup, trainer.standing, progress)
    folder.log("start", steps=setup.steps, trainable_parameters=trainer.engine.size)
    trainer.train()
    trainer.optimiser.release_average()
    folder.save_model(setup.model)
    assert setup.data.test is not None
    folder.save_metrics(config.task, setup.data.name, "public", setup.task.score(setup.model, setup.data.test, device=setup.device))
    return out


def _prepare(config: RunConfig, progress: Progress) -> Setup:
    torch.manual_seed(config.seed)
    device, task = pick_device(config.device), PoseTask(config)
    public, judged, dataset = _public_people(config, progress)
    model = build_model(config.model, public.joints.shape[1]).to(device).eval()
    view = make_view(config.view.name, config.view.options)
    shown: Records = public
    if config.pretrain.top:
        task.trainable(model, "top")
        if config.pretrain.view_share:
            shown = with_view(public, view)
        telling = lambda done, total: progress.stage("features of public people", done, total)  # noqa: E731
        shown = with_lower_features(shown, task, task.lower(model), device, telling, config.augment.copies)
    prints = fingerprints_of(public)
    return Setup(
        config,
        task,
        method_named("public-only"),
        model,
        device,
        view,
        Datasets(shown, None, judged, dataset, prints),
        shown,
        Units(np.arange(len(shown)), 1),
        basis=None,
        raw_public=None,
        watched=None,
        steps=math.ceil(config.epochs * len(shown) / config.batch),
        sampling_rate=min(1.0, config.batch / len(shown)),
        noise_multiplier=0.0,
        account=Account(prints),
    )


class Unpaid(Payments):
    """Public people cost nothing; who they are was written down before."""

    def begin(self, half: PrivateHalf) -> None:  # noqa: D102
        pass

    def ahead(self, steps: int, half: PrivateHalf) -> None:  # noqa: D102
        pass


class _PublicPeople(PublicHalf):
    """Public people, shown for what they are. What no gradient may be longer than, it is not."""

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine, Showing(setup.config.augment, setup.task, setup.config.seed + 2, setup.device))
        self.generator = torch.Generator().manual_seed(setup.config.seed + 2)

    def gradient(self) -> Tensor:
        """The mean gradient of the next batch."""
        with self.learning():
            gradient = super().gradient()
        return gradient * min(1.0, _LONGEST / (float(gradient.norm()) + 1e-6))

    def learning(self) -> AbstractContextManager[None]:
        """What the network may learn of a batch besides."""
        return nullcontext()


class FromImages(_PublicPeople):
    """For training the whole network: crops changed anew each time, the first of them at half size, some of them as their views."""

    def learning(self) -> AbstractContextManager[None]:
        """Normalisation statistics: the people are public."""
        return learning_statistics(self.setup.model, momentum=0.05)

    def batch(self) -> Batch:  # noqa: D102
        config, people = self.setup.config, self.setup.private
        number, self.batches = self.batches, self.batches + 1
        batch = self._some_as_views(people.batch(self.samplers["view"].draw()))
        if number >= config.pretrain.small_share * self.setup.steps:
            return self._changed(batch)
        # Half-size pixel i covers pixels 2i and 2i + 1, so its centre is 2i + ½. The targets stay those of the whole size.
        batch |= {"image": torch.nn.functional.avg_pool2d(batch["image"].float(), 2), "joints": (batch["joints"] - 0.5) / 2}
        batch = self._changed(batch)
        return batch | {"joints": batch["joints"] * 2 + 0.5}

    def _changed(self, batch: Batch) -> Batch:
        people = self.setup.private
        assert isinstance(people, PoseRecords)
        changed = augment(batch, self.generator, self.setup.config.augment.change, people.skeleton)
        return {name: tensor.to(self.setup.device) for name, tensor in changed.items()}

    def _some_as_views(self, batch: Batch) -> Batch:
        """About `view_share` of the images replaced by their views, before any augmentation, as private views will be."""
        images = batch["image"].numpy().copy()
        chosen = torch.rand(len(images), generator=self.generator) < self.setup.config.pretrain.view_share
        for i in torch.nonzero(chosen).flatten().tolist():
            images[i] = self.setup.view.of({"image": images[i]}).public["image"]
        return batch | {"image": torch.from_numpy(images)}


class FromFeatures(_PublicPeople):
    """For training stage 4 and the head: below them everything, of fixed copies of each record, is computed once."""

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        config = setup.config
        self.views = round(config.pretrain.view_share * config.batch)
        sizes = {PRIVATE: config.batch - self.views, VIEW: self.views}
        self.samplers = {source: PublicSampler(len(setup.private), max(1, size), config.seed + 1) for source, size in sizes.items()}

    def batch(self) -> Batch:  # noqa: D102
        number, self.batches = self.batches, self.batches + 1
        sources = (PRIVATE, VIEW) if self.views else (PRIVATE,)
        parts: list[Batch] = []
        for source in sources:
            parts += self.showing.show(self.setup.private, self.samplers[source].draw().numpy(), source, use="public", step=number, times=1)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


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
