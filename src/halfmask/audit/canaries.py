"""People whose gradients are known, sent through the real training.

A canary is an image with one lit spot. The network below reads spots, so that the gradients of different canaries are orthogonal and far
longer than the clip norm: each adds exactly C in a direction of its own, the most that the mechanism lets anyone add. Everything else is
the real thing: records, views, sampler, clipping engine, noise, ledger and the training loop, started by `Trainer.train`.

What an image holds, by colour channel:

* red: a whole cell of the grid at the canary's place. The view keeps it: it is what is public about the canary, and tells who it is;
* green: a 2×2 spot across the corner of four cells. Each cell's mean rounds to nothing, so the view does not show it: it is what is
  private. An image that is moved before ψ is computed would show it;
* blue: the mark, one pixel that tells a raw image from a view. The network reads the red cell only where there is no mark.

A canary that is out has no green spot: its gradient is nothing, and its view is what it was. That is the zero-out relation. Where a run
releases residuals, ∇l(x) − ∇l(ψ(x)), canaries carry no mark: image and view then show the same red cell, it cancels, and what is left is
the green spot alone.

Where a method shows its private half only what the view leaves of a record, the view divides canaries too: the red cells are public, and
the rest is the image without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.prints import fingerprints_of, named_prints
from halfmask.data.records import Datasets, Records
from halfmask.data.tables import Arrays
from halfmask.gradients.engine import Batch
from halfmask.gradients.mechanism import METHODS, method_named
from halfmask.privacy.home import throwaway_home
from halfmask.tasks.base import Task, register
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare
from halfmask.views import Seen, View, make_view

SIDE, CELL = 72, 2
_PLACES_A_ROW = SIDE // CELL - 1
MOST_PLACES = _PLACES_A_ROW**2
# What the brightness of a private spot means: a gradient of `LOUDNESS` clip norms, the same the other way, none that is a number.
FULL, OPPOSED, POISON = 255, 254, 253
# The gradient of a fully lit canary, in clip norms. Far above 1, so that an audit sees a clip that was left out.
LOUDNESS = 100.0
CLIP_NORM = 0.5
# Public people are as long as two clip norms: a clip norm that follows them moves, and stays far below a canary.
_PUBLIC = 5


class CanaryNetwork(nn.Module):
    """Reads one number per place from the private half of an image and one from the public half; one linear layer decides.

    With the weights near zero, the gradient of a record is its features times (½, −½): its direction is its place.
    """

    def __init__(self, places: int):
        super().__init__()
        self.places = places
        self.decision = nn.Linear(2 * places, 2, bias=False)
        nn.init.zeros_(self.decision.weight)

    def spots(self, images: Tensor) -> Tensor:
        """The spots, scaled so that a fully lit one makes a gradient of `LOUDNESS` clip norms."""
        row, column = (torch.from_numpy(i) for i in _corner(np.arange(self.places)))
        raw = (images[:, 2, 0, 0] > 0).float()[:, None]
        private = images[:, 1, row + 1, column + 1].float()
        private = torch.where(private == OPPOSED, -float(FULL), torch.where(private == POISON, torch.nan, private))
        public = images[:, 0, row, column].float() * (1 - raw)
        return torch.cat([private, public], 1) * (LOUDNESS * CLIP_NORM * 2**0.5 / FULL)

    def forward(self, images: Tensor) -> Tensor:  # noqa: D102
        return self.decision(self.spots(images))


@dataclass(frozen=True)
class Divided(View):
    """A view of canaries that divides them: what of an image another view shows is public, and the image without its red cells is left."""

    view: View

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:  # noqa: D102
        rest = np.array(record["image"])
        rest[0] = 0
        return Seen(self.view.of(record).public, {"image": rest})

    def describe(self) -> str:  # noqa: D102
        return f"{self.view.describe()}; what it does not show stays private"


@register
class CanaryTask(Task):
    """Everyone belongs to the second of two classes; whoever has no label belongs to none."""

    name = "canaries"
    units = ("crop",)
    methods = tuple(METHODS)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        losses = -model(batch["image"]).log_softmax(1)[:, 1]
        return torch.where(batch["labelled"], losses, torch.zeros_like(losses))

    def view(self) -> View | None:
        """One that divides canaries, for a method that asks for that."""
        if not method_named(self.config.method).rest:
            return None
        return Divided(make_view(self.config.view.name, self.config.view.options))


def _corner(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return places // _PLACES_A_ROW * CELL, places % _PLACES_A_ROW * CELL


def canary_records(brightness: np.ndarray, key: str, places: np.ndarray | None = None, marked: np.ndarray | bool = True) -> Records:
    """One record per brightness (0 is out, `FULL` is in) at its own place, or at the places given."""
    count = len(brightness)
    places = np.arange(count) if places is None else places
    row, column = _corner(places)
    images = np.zeros((count, 3, SIDE, SIDE), np.uint8)
    everyone = np.arange(count)
    for down in range(CELL):
        for across in range(CELL):
            images[everyone, 0, row + down, column + across] = FULL
            images[everyone, 1, row + 1 + down, column + 1 + across] = brightness
    images[:, 2, 0, 0] = np.where(marked, FULL, 0)
    return Records(
        private=Arrays({"image": images}),
        targets=Arrays({"labelled": np.ones(count, bool)}),
        # A canary's number stays its own when others leave.
        units={"image": everyone},
        own_unit="crop",
        key=key,
        prints=named_prints([f"{key}/{number}" for number in everyone]),
    )


@dataclass(frozen=True)
class Plan:
    """A run over canaries: what the accountant is told, and the seed of everything."""

    method: str
    epsilon: float
    delta: float
    units: int
    batch: int
    steps: int
    seed: int
    settings: tuple[str, ...] = ()

    @property
    def places(self) -> int:
        """How many the network reads; a few more than one where there are few units, so that noise has room to be measured in."""
        return max(self.units, 100)

    def config(self) -> RunConfig:
        """The run as a recipe would name it. Plain SGD, so that an update can be read off two sets of weights."""
        recipe: dict[str, Any] = {
            "task": CanaryTask.name,
            "method": self.method,
            "strategy": "full",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "clip_norm": CLIP_NORM,
            "batch": self.batch,
            "epochs": self.steps * self.batch / self.units,
            "adjacency": "zero-out",
            "seed": self.seed,
            "insecure_seed": self.seed,
            "chunk": 250,
            "device": "cpu",
            "data": {"name": "canaries"},
            "view": {"name": "downsample", "options": {"cell": CELL, "levels": 2}},
            "subspace": {"samples": self.places, "dim": self.places, "refresh": 10**9},
            "public": {"raw_share": 0.0},
            # So slow that the weights stay near zero, where every gradient keeps its direction.
            "optimiser": {"name": "sgd", "learning_rate": 1e-7, "momentum": 0.0, "schedule": "constant"},
        }
        config = build_config(recipe, {}, list(self.settings))
        if config.private.residual:
            # Residuals point along the public cells too, and the subspace has to cover both.
            recipe["subspace"] |= {"samples": 2 * self.places, "dim": 2 * self.places}
        return build_config(recipe, {}, list(self.settings))

    def canaries(self, brightness: np.ndarray, key: str, places: np.ndarray | None = None) -> Records:
        """Canaries that add nothing but their private spot to what this run releases."""
        residual = self.config().private.residual
        return canary_records(brightness, f"{key}/residual" if residual else key, places, marked=not residual)


class Witness(Progress):
    """Sees what everyone sees: the weights after every step. From two of them and the learning rate follows the update between."""

    def __init__(self) -> None:
        self.updates: list[Tensor] = []
        self._trainer: Trainer | None = None
        self._before = torch.zeros(0)

    def watch(self, trainer: Trainer) -> None:
        """Start from the trainer's present weights."""
        self._trainer, self._before = trainer, _weights(trainer)

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:  # noqa: D102
        assert self._trainer is not None
        after = _weights(self._trainer)
        self.updates.append((self._before - after) / self._trainer.optimiser.learning_rate)
        self._before = after

    def along_canaries(self, public: bool = False) -> np.ndarray:
        """Steps × places: each update along the direction of each canary's private spot (or of its public cell)."""
        moves = torch.stack(self.updates)
        along = (moves[:, 0] - moves[:, 1]) / 2**0.5
        half = along.shape[1] // 2
        return along[:, half:].numpy() if public else along[:, :half].numpy()


def _weights(trainer: Trainer) -> Tensor:
    assert isinstance(trainer.setup.model, CanaryNetwork)
    return trainer.setup.model.decision.weight.detach().double().clone()


def ready(plan: Plan, private: Records, folder: Path, witness: Witness | None = None) -> Trainer:
    """The real trainer on these canaries. S_pub, where a method wants one, has people at every place: the attacker's best."""
    config = plan.config()
    everyone = np.arange(config.subspace.samples)
    marked = (everyone < plan.places) | (not config.private.residual)
    places = everyone % plan.places
    public = canary_records(np.full(len(everyone), _PUBLIC), f"canaries/public/{len(everyone)}/{plan.places}", places, marked)
    network = CanaryNetwork(plan.places)
    data = Datasets(private, public if config.subspace.source == "public" else None, None, "canaries", fingerprints_of(private))
    setup = prepare(config, Progress(), data, network)
    number = len(list(folder.iterdir())) if folder.is_dir() else 0
    trainer = Trainer(setup, RunFolder.create(folder / str(number), config), witness or Progress())
    if witness is not None:
        witness.watch(trainer)
    return trainer


@contextmanager
def quarantine() -> Iterator[Path]:
    """A home and a folder that are thrown away: canaries leave no entry in the user's ledgers and no file in the user's caches."""
    with throwaway_home() as folder:
        yield folder / "runs"
