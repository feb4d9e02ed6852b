"""What a task says: what its records are, what is lost on one of them, how a model is judged and shown.

Everything else (methods, clipping, noise, ledger, certificate, audits, sweeps, pages) is the same for all tasks and asks these questions
alone. Only `loss` has no answer by default: a task of a few lines is whole.

    class Ages(Task):
        name = "ages"

        def load(self, report=None):
            return Datasets(private=..., public=None, test=..., name="ages", fingerprints=...)

        def build(self, data):
            return nn.Linear(8, 1)

        def loss(self, model, batch):
            return (model(batch["x"])[:, 0] - batch["age"]).square()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.gradients.mechanism import METHODS
from halfmask.metrics.names import MetricInfo, declare
from halfmask.tasks.answers import Batch as Batch
from halfmask.tasks.answers import Figure as Figure
from halfmask.tasks.answers import Graph as Graph
from halfmask.tasks.answers import Judged as Judged
from halfmask.tasks.answers import Lower as Lower
from halfmask.tasks.answers import PostProcessing as PostProcessing
from halfmask.tasks.answers import Scores as Scores

if TYPE_CHECKING:
    from halfmask.data.records import Datasets, Records
    from halfmask.data.sharding import Shard
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.training.public import PublicHalf
    from halfmask.training.setup import Setup
    from halfmask.views.base import View

MIRROR = "mirror"
Report = Callable[[str, int, int], None]
Box = tuple[float, float, float, float]


class Task(ABC):
    """One kind of thing to learn. A task is made for one run, from its settings.

    Attributes:
        units: the kinds of unit that its records belong to, the finest first.
        numbers: how many uniform numbers `change` takes for a record; 0 for a task whose records are shown as they are.
        method: the one that is taken where none is named.
        methods: those that have a meaning for it: a task whose views do not divide records has no `masked` ones.
        compared: those that a comparison shows where none are named; all, if empty.
        cached: the strategies under which the frozen lower part of its network is computed once (`lower`).
        shards: whether its private records can be opened in shares, one by each process of a run (`self.shard` is the share, if set).
        stays: what of a unit stays in the dataset under every method, in words; a dataset without the unit is then no neighbour.
        labels: what of a record is public besides its view, in the words of the certificate.
        metrics: of what `score` measures, by name: how it is printed, its unit, and whether more of it is better.
        drawn: what `pictures` shows, in the words of a page.
        parted: what `Scores.parts` are, in the words of a page, where they belong on it.
        planted: what `mislabelled` makes, in the words of an audit.
    """

    name: ClassVar[str] = ""
    units: ClassVar[tuple[str, ...]] = ("record",)
    groups: ClassVar[Mapping[str, type]] = {}
    numbers: ClassVar[int] = 0
    method: ClassVar[str] = "feature-projective"
    methods: ClassVar[tuple[str, ...]] = tuple(name for name, method in METHODS.items() if not method.rest)
    compared: ClassVar[tuple[str, ...]] = ()
    cached: ClassVar[tuple[str, ...]] = ("top",)
    shards: ClassVar[bool] = False
    stays: ClassVar[str] = ""
    labels: ClassVar[str] = "the labels of every private record"
    metrics: ClassVar[Mapping[str, MetricInfo]] = {}
    drawn: ClassVar[str] = "What each method makes of test records"
    parted: ClassVar[str] = ""
    planted: ClassVar[str] = "records with another's targets"

    def __init__(self, config: Any):
        self.config = config
        self.shard: Shard | None = None

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """One value per record, on the private part; each depends on its own record alone."""

    def losses(self, model: nn.Module) -> Mapping[str, Callable[[nn.Module, Batch], Tensor]]:
        """Parts of the loss that are clipped each by itself, to its share of C; by default none: the loss is clipped as one."""
        return {}

    def view_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The same on the public part."""
        return self.loss(model, batch)

    def load(self, report: Report | None = None) -> Datasets:
        """All parts of the dataset that the settings name."""
        raise HalfmaskError(f"the task '{self.name}' has no datasets of its own: give it records, or use a task that reads some")

    def load_test(self, report: Report | None = None) -> Records:
        """The people a model is judged on, alone: judging a model opens no private record."""
        test = self.load(report).test
        if test is None:
            raise HalfmaskError("the dataset has no record with split 'test': there is nobody to judge the model on")
        return test

    def load_public(self, report: Report | None = None) -> tuple[Records, Records | None]:
        """Public records to pre-train on, and those to judge the weights on: without any, some of the first are set aside.

        A task whose datasets are large, or lie on disk, answers without opening anybody private.
        """
        data = self.load(report)
        if data.public is None:
            raise HalfmaskError("the dataset has no record with split 'public': there is nobody to pre-train on")
        return data.public, data.tuning

    def count_private(self) -> int | None:
        """How many units there are to protect, where that can be told without opening any of them; None where it cannot."""
        return None

    def build(self, data: Datasets) -> nn.Module:
        """The network with its public initial weights."""
        raise HalfmaskError(f"the task '{self.name}' has no network of its own: give it a model")

    def open(self, weights: Path) -> nn.Module:
        """The network of a finished run, with the weights of that file."""
        raise HalfmaskError(f"a run of the task '{self.name}' cannot be opened from its folder alone: load {weights} into your own model")

    def trainable(self, model: nn.Module, strategy: str) -> None:
        """Mark the parameters that train under a strategy."""
        if strategy not in ("full", "scratch"):
            raise HalfmaskError(f"the task '{self.name}' knows no strategy '{strategy}': use full")

    def lower(self, model: nn.Module) -> Lower | None:
        """What may be computed once under the strategies that are `cached`."""
        return None

    def change(self, records: Records, batch: Batch, uniforms: Tensor) -> Batch:
        """The records after random changes: a pure function of each record and of its own row of numbers."""
        raise HalfmaskError(f"the task '{self.name}' has no random changes: set augment.times to 0")

    def calibrate(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """How sure of itself the private loss should take the model to be, from public records: see `PrivateConfig.calibrate`."""
        raise HalfmaskError(f"the task '{self.name}' cannot be calibrated: set private.calibrate to false")

    def view(self) -> View | None:
        """The task's own view, where it has one; by default the one that the recipe names."""
        return None

    def optimiser(self, weights: list[nn.Parameter]) -> torch.optim.Optimizer | None:
        """The task's own optimiser of these weights, where it has one; by default the one that the recipe names."""
        return None

    def prepare(self, model: nn.Module, public: Records | None) -> None:  # noqa: B027
        """What an untrained network learns from public records before the first step: normalisation statistics, say."""

    def pretraining(self, setup: Setup, engine: ClippingEngine) -> PublicHalf | None:
        """The task's own way of showing public records to the whole network in pre-training; by default as any other step does."""
        return None

    def learning(self, model: nn.Module) -> AbstractContextManager[None]:
        """In which the whole network may learn from a public batch what no gradient tells it: normalisation statistics, say."""
        return nullcontext()

    def sample(self, model: nn.Module, records: Records) -> Batch:
        """Records to try the loss on where no public ones are at hand: noise in the shapes of the private ones; no value is read."""
        generator = torch.Generator().manual_seed(self.config.seed)
        return {name: _noise(kind, shape, generator) for name, (kind, shape) in records.shapes().items()}

    def samples(self, model: nn.Module, records: Records, count: int = 3) -> list[Batch]:
        """Several of these, drawn differently."""
        config, found = self.config, list[Batch]()
        try:
            for number in range(count):
                self.config = replace(config, seed=config.seed + number)
                found.append(self.sample(model, records))
        finally:
            self.config = config
        return found

    def exact_half(self, setup: Setup, engine: ClippingEngine) -> PublicHalf | None:
        """An exact half of the task's own, which every method has; by default that of methods with a view, on views and public records."""
        return None

    def post_processing(self, setup: Setup) -> PostProcessing | None:
        """What follows each step, where something does."""
        return None

    def watched_loss(self, model: nn.Module, records: Records, device: torch.device | str = "cpu") -> float:
        """Whether a run is on its way, from public records that nothing is trained on: the lower the better."""
        with torch.no_grad():
            return float(torch.cat([self.loss(model, batch) for batch in records.batches("private", device)]).mean())

    def score(
        self,
        model: nn.Module,
        records: Records,
        source: str = "private",
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        """Judge a model on public records: by default, by its mean loss.

        Args:
            source: what it is shown of them: the records themselves, or their view.
            flip_test: let it look at mirror images too, where the task knows what those are.
        """
        losses = [self.loss(model, batch).detach().cpu() for batch in records.batches(source, device)]
        return Scores({"loss": float(torch.cat(losses).mean()) if losses else float("nan")})

    def pictures(self, model: nn.Module | None, records: Records, device: torch.device | str = "cpu") -> list[np.ndarray] | None:
        """H×W×3 for each of some public records: what a model makes of it, or without a model the truth; None if nothing can be drawn."""
        return None

    def figures(self, judged: Sequence[Judged]) -> list[Figure]:
        """Drawings of its own that a task adds to the page of a comparison; by default none."""
        return []

    def features(self, model: nn.Module, batch: Batch) -> Tensor:
        """A vector for each record that the network makes on its way: what an attacker would compare people by."""
        raise HalfmaskError(f"the task '{self.name}' does not say what the features of its network are")

    def shows_somebody(self, records: Records) -> np.ndarray:
        """Whether each record shows a person at all."""
        return np.ones(len(records), bool)

    def predict(
        self,
        model: nn.Module,
        image: np.ndarray,
        device: torch.device | str = "cpu",
        box: Box | None = None,
        flip_test: bool = True,
    ) -> tuple[dict[str, Any], np.ndarray]:
        """What a model sees on a picture (H×W×3 bytes, red first), ready for JSON, in its pixels; and a drawing of it.

        Args:
            box: where on the picture to look: left, top, width, height; by default all of it.
            flip_test: let the model look at the mirror image too, where the task knows what that is.
        """
        raise HalfmaskError(f"the task '{self.name}' has nothing to say of a single picture: score its runs with 'halfmask evaluate'")

    def predict_video(
        self,
        model: nn.Module,
        frames: Iterable[np.ndarray],
        fps: float,
        device: torch.device | str = "cpu",
        seconds: float | None = None,
        report: Report | None = None,
    ) -> tuple[dict[str, Any], Iterator[np.ndarray]]:
        """What a model sees on a video, ready for JSON, with times in seconds; and the frames with it drawn on them.

        Args:
            frames: H×W×3 bytes, red first, one after the other; they are gone through again for the drawing, so that no video need fit
                into memory.
            fps: how many of them a second.
            seconds: how much of the video is looked at at a time; by default what the task thinks right.
            report: told how far it is.
        """
        raise HalfmaskError(f"the task '{self.name}' has nothing to say of a video: give pictures")

    def graph(self, model: nn.Module, confidence: Mapping[str, Any], flip_test: bool = False) -> Graph:
        """The network with its pre- and post-processing, for other runtimes; `confidence` is what the method of that name said of it."""
        raise HalfmaskError(f"a network of the task '{self.name}' cannot be exported: expected a run of pose, face, action or generate")

    def confidence(self, model: nn.Module, public: Records, device: torch.device | str = "cpu") -> dict[str, Any]:
        """What the scores of its predictions are worth, by public records that nothing was trained on, ready for JSON."""
        return {}

    def summary(self, found: Mapping[str, Any]) -> str:
        """A few words about what was found on a picture or a video, for a line of text."""
        return ""

    def mislabelled(self, strangers: Records, members: Records, chosen: np.ndarray) -> Records:
        """Records to plant in an audit: the chosen strangers, each with the targets of the next, as units of their own after all members.

        Nobody learns such a target from anyone else, so that what a model knows of it was learnt from the one record.
        """
        # Imported here because records know tables, and a task that is only trained needs neither.
        from halfmask.data.planting import with_targets_of_the_next

        return with_targets_of_the_next(strangers, members, chosen, self.name)

    def audited(self) -> dict[str, Any]:
        """Settings of the run that its loss goes by, in groups: an audit of the loss keeps those, and has all others as it likes."""
        return {}

    def most_in(self, unit: str) -> dict[str, int]:
        """By coarser units, how many of this one each has at most by the settings alone: the certificate tells what ε is worth to those."""
        return {}

    def within(self, unit: str) -> tuple[str, ...]:
        """Finer units of which each lies whole in one of these, whatever the records: the certificate tells what ε is worth to those."""
        return ()

    def public_facts(self, data: Datasets) -> list[str]:
        """What else the certificate has to say is public, one line each."""
        return []


_TASKS: dict[str, type[Task]] = {}
_BUILT_IN = {
    "pose": "halfmask.tasks.pose",
    "face": "halfmask.tasks.face",
    "action": "halfmask.tasks.action",
    "generate": "halfmask.tasks.generate",
    "own": "halfmask.tasks.own",
    "canaries": "halfmask.audit.canaries",
}


def register(task: type[Task]) -> type[Task]:
    """Make a task known by its name, so that recipes can ask for it."""
    _TASKS[task.name] = task
    declare(task.metrics)
    return task


def task_named(name: str) -> type[Task]:
    """Look a task up."""
    if name not in _TASKS and name in _BUILT_IN:
        import importlib

        module = importlib.import_module(_BUILT_IN[name])
        # A module registers its task when it is first imported; whoever has emptied the list since is given it again.
        if name not in _TASKS:
            register(next(kind for kind in vars(module).values() if isinstance(kind, type) and getattr(kind, "name", "") == name))
    if name not in _TASKS:
        # Tasks of other packages: those that declare the entry point, and no module that a recipe happens to name.
        for entry in entry_points(group="halfmask.tasks", name=name):
            _TASKS[name] = entry.load()
            declare(_TASKS[name].metrics)
    if name not in _TASKS:
        raise unknown_name("task", name, sorted({*_BUILT_IN, *_TASKS} - {"own", "canaries"}))
    return _TASKS[name]


def _noise(kind: np.dtype, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    example = torch.from_numpy(np.zeros(0, kind))
    if example.dtype == torch.bool:
        drawn = torch.rand(4, *shape, generator=generator) < 0.5
        if drawn[0].numel() > 1:
            # A mask that leaves a record nothing, or hides nothing, is none that a loss is made for.
            drawn.view(4, -1)[:, 0], drawn.view(4, -1)[:, -1] = True, False
        return drawn
    if example.dtype == torch.uint8:
        return torch.randint(0, 256, (4, *shape), generator=generator, dtype=torch.uint8)
    if not example.dtype.is_floating_point:
        # Zeros and ones: classes that most losses have. Were all the same, a loss that counts them in its batch would look apart.
        return torch.randint(0, 2, (4, *shape), generator=generator, dtype=example.dtype)
    return torch.rand(4, *shape, generator=generator, dtype=example.dtype)
