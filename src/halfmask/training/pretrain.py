"""Non-private training on public people: where the initial weights come from.

Nobody private is read here, so batch normalisation may learn its statistics and nothing is clipped or noised. The steps are those of the
one loop, with an exact half of another make and nothing to pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, VIEW, Datasets, Records, Units
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.gradients.mechanism import method_named
from halfmask.privacy.account import RAW, Account, Publication, protected_among
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.sampling import PublicSampler
from halfmask.tasks.base import Task, task_named
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


def pretrain(config: RunConfig, out: Path, progress: Progress | None = None) -> Path:
    """Train a model on the public people of a recipe's dataset and save it; returns the run folder.

    Reads only what the task calls public (`Task.load_public`). It is judged on the people set apart for tuning, or on public people set
    aside.
    """
    progress = progress or Progress()
    folder = RunFolder.create(out, config)
    setup = _prepare(config, progress)
    trainer = Trainer(setup, folder, progress)
    trainer.exact, trainer.payments = _shown(setup, trainer.engine), Unpaid(setup, trainer.standing, progress)
    folder.log("start", steps=setup.steps, trainable_parameters=trainer.engine.size)
    trainer.train()
    trainer.optimiser.release_average()
    folder.save_model(setup.model)
    assert setup.data.test is not None
    folder.save_metrics(config.task, setup.data.name, "public", setup.task.score(setup.model, setup.data.test, device=setup.device))
    folder.save_calibration(setup.task.confidence(setup.model, setup.data.test, setup.device))
    folder.save_card()
    return out


def _prepare(config: RunConfig, progress: Progress) -> Setup:
    torch.manual_seed(config.seed)
    device, kind = pick_device(config.device), task_named(config.task)
    task = kind(config)
    public, judged = _public_people(task, progress)
    prints = fingerprints_of(public)
    data = Datasets(public, None, judged, config.data.name, prints)
    # It begins with the weights that the model names: a strategy is what private runs have.
    model = kind(replace(config, strategy="full")).build(data).to(device).eval()
    view = task.view() or make_view(config.view.name, config.view.options)
    shown = public
    if config.pretrain.top:
        task.trainable(model, "top")
        if config.pretrain.view_share:
            shown = with_view(public, view)
        lower = task.lower(model)
        if lower is None:
            raise HalfmaskError(f"the task '{task.name}' has no lower part to compute once: set pretrain.top to false")
        telling = lambda done, total: progress.stage("features of public people", done, total)  # noqa: E731
        shown = with_lower_features(shown, task, lower, device, telling, config.augment.copies if task.numbers else 0)
    return Setup(
        config,
        task,
        method_named("public-only"),
        model,
        device,
        view,
        replace(data, private=shown),
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


def _shown(setup: Setup, engine: ClippingEngine) -> PublicHalf:
    """The half of a step that shows public people: as features, as their task shows them, or as any task's."""
    if setup.config.pretrain.top:
        return FromFeatures(setup, engine)
    return setup.task.pretraining(setup, engine) or FromRecords(setup, engine)


class Unpaid(Payments):
    """Public people cost nothing; who they are was written down before."""

    def begin(self, half: PrivateHalf) -> None:  # noqa: D102
        pass

    def ahead(self, steps: int, half: PrivateHalf) -> None:  # noqa: D102
        pass


class PublicPeople(PublicHalf):
    """Public people, shown for what they are.

    Attributes:
        longest: a gradient longer than this is shortened to it: the first ones, of an untrained network, can be.
    """

    longest = 50.0

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine, Showing(setup.config.augment, setup.task, setup.config.seed + 2, setup.device))

    def gradient(self) -> Tensor:
        """The mean gradient of the next batch."""
        with self.learning():
            gradient = super().gradient()
        return gradient * min(1.0, self.longest / (float(gradient.norm()) + 1e-6))

    def learning(self) -> AbstractContextManager[None]:
        """What the network may learn of a batch besides."""
        return self.setup.task.learning(self.setup.model)


class FromRecords(PublicPeople):
    """For training the whole network, by default: records changed anew each time where their task knows how, a share of them as views."""

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        config = setup.config
        self.views = round(config.pretrain.view_share * config.batch)
        sizes = {PRIVATE: config.batch - self.views, VIEW: self.views}
        self.samplers = {source: PublicSampler(len(setup.private), max(1, size), config.seed + 1) for source, size in sizes.items()}
        self.people = self.seen(setup.private)

    def seen(self, people: Records) -> Records:
        """The people with what is shown of them."""
        return with_view(people, self.setup.view) if self.views else people

    def batch(self) -> Batch:  # noqa: D102
        number, self.batches = self.batches, self.batches + 1
        times = 1 if self.setup.task.numbers else 0
        parts: list[Batch] = []
        for source in (PRIVATE, VIEW) if self.views else (PRIVATE,):
            parts += self.showing.show(self.people, self.samplers[source].draw().numpy(), source, use="public", step=number, times=times)
        if any(part.keys() != parts[0].keys() for part in parts):
            raise HalfmaskError("the view shows other fields than the records have: set pretrain.view_share to 0")
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


class FromFeatures(FromRecords):
    """For training the top of the network: below it everything, of fixed copies of each record, was computed once."""

    def seen(self, people: Records) -> Records:
        """The people as they are: their features are known."""
        return people

    def learning(self) -> AbstractContextManager[None]:
        """Nothing: what lies below stays as it was when the features were computed."""
        return nullcontext()


def _public_people(task: Task, progress: Progress) -> tuple[Records, Records]:
    public, judged = task.load_public(progress.stage)
    name = task.config.data.name
    if name != "figures":
        if len(public) < 10:
            raise HalfmaskError(f"'{name}' has fewer than 10 records with split 'public': there is nobody to pre-train on")
        _declare_public([public] if judged is None else [public, judged])
    if judged is not None:
        return public, judged
    aside = max(1, len(public) // 10)
    everyone = np.arange(len(public))
    return public.take(everyone[aside:]), public.take(everyone[:aside])


def _declare_public(parts: Sequence[Records]) -> None:
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
