"""What a task answers with: scores, drawings, the part of a network that is computed once, what follows a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Scores:
    """How good a model is.

    Attributes:
        metrics: means, the headline first.
        parts: one number for each joint, class or sub-task.
        table: what `metrics.json` calls the parts besides, where a task has a word of its own for them.
        tables: what `metrics.json` says besides, by name, as it stands: a confusion matrix. Of public test records, as all scores are.
    """

    metrics: dict[str, float]
    parts: dict[str, float] = field(default_factory=dict)
    table: str = ""
    tables: Mapping[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """What came of one method at one ε and clip norm (both None without noise), seed by seed."""

    method: str
    epsilon: float | None
    clip_norm: float | None
    scores: tuple[Scores, ...]


@dataclass(frozen=True)
class Figure:
    """A drawing for the page of a comparison.

    Attributes:
        name: what its files are called.
        title: what it shows, in a line.
        picture: H×W×3.
        chart: the same for plotly, to be explored.
    """

    name: str
    title: str
    picture: np.ndarray
    chart: Any = None


@dataclass(frozen=True)
class Lower:
    """The part of a network below its trainable top: frozen, so that it is computed once of each record.

    Attributes:
        key: names its weights, for the cache.
        features: what comes out of it for a batch.
        mirror: the mirror images of a batch, where scoring looks at those too: their features are kept for the people a model is judged
            on, under the source `mirror`.
    """

    key: str
    features: Callable[[Batch], Tensor]
    mirror: Callable[[Batch], Batch] | None = None


@dataclass(frozen=True)
class Graph:
    """A network with all that comes before and after it, to be handed on as one file.

    Attributes:
        module: takes the inputs in their order and gives the outputs in theirs.
        inputs: by name, an example for two records; the first dimension is theirs.
        outputs: by name, how far the answers of another runtime may be from torch's.
        facts: what a program has to know to make use of it, ready for JSON.
        draw: so many examples of each input, by a seed, to try runtimes on: nobody's pictures.
        undecided: given inputs and another runtime's answers, where those are as good as torch's by torch's own numbers; by output.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, float]
    facts: Mapping[str, Any]
    draw: Callable[[int, int], Mapping[str, Tensor]]
    undecided: Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None


class PostProcessing(ABC):
    """What follows each step and reads released weights and public data alone: it costs nothing, whatever it does."""

    @abstractmethod
    def step(self, number: int) -> None:
        """After the step of that number."""

    def check(self, step: int) -> None:  # noqa: B027
        """Stop a run that came to nothing (`halfmask.training.course.Diverged`), judged by what is public; so many steps were taken."""

    def complete(self) -> None:  # noqa: B027
        """After the last step: what is left to do, and whether something came of the run."""

    def release(self) -> None:  # noqa: B027
        """Put in their place the weights that are to be released: after the last step, or where a run is stopped."""

    def moved(self) -> Iterable[Tensor]:
        """The weights that it changes: they come from what was released, and whoever goes on from them goes on from the run."""
        return ()

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what is not among the model's weights."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on from there."""
