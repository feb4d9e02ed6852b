"""A model, a loss and a dataset of the user's own, as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.items import Form, form_of, leaves, some_items
from halfmask.data.records import VIEW, Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS
from halfmask.tasks.base import Batch, Report, Scores, Task, register
from halfmask.views.base import Seen, View
from halfmask.words import a_or_an

LossOfItems = Callable[[nn.Module, Any], Tensor]


@dataclass(frozen=True)
class OwnView(View):
    """What a function of the user's returns of an item.

    Attributes:
        name: what the function is called.
        fields: what it returns, in words.
        digest: of all that it returned: another function, or another dataset, is another view.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    name: str
    fields: str
    digest: str
    each: tuple[bytes, ...] = field(repr=False)
    public: Form = field(repr=False)
    function: Callable[[Any], Any] = field(repr=False)

    @classmethod
    def of_items(cls, function: Callable[[Any], Any], dataset: Any, item: Form, name: str) -> OwnView:
        """The view of a dataset's items; one that says something else of an item when it is asked again is refused."""
        public = form_of(function(dataset[0]))
        first = public.apart(function(dataset[0]))
        digest, whole, each = hashlib.sha256(), True, list[bytes]()
        for row in range(len(dataset)):
            private = item.apart(dataset[row])
            largest = max(private.values(), key=lambda value: value.size).tobytes()
            seen = [public.apart(function(dataset[row])) for _ in range(2)]
            for named, value in first.items():
                if not all(named in one and one[named].shape == value.shape and one[named].dtype == value.dtype for one in seen):
                    raise HalfmaskError(f"the view of item {row} of {name} has another build than that of item 0: views need one shape")
                if seen[0][named].tobytes() != seen[1][named].tobytes():
                    raise HalfmaskError(
                        f"the view of item {row} of {name} is another one when it is computed again: each would show something new of it. "
                        "Give a view without randomness"
                    )
                digest.update(seen[0][named].tobytes())
            each.append(_digest(seen[0]))
            whole = whole and any(value.tobytes() == largest for value in seen[0].values())
        if whole:
            raise HalfmaskError(
                f"the view returns the largest field of every item of {name} as it is: all that is private would be public. Return what "
                "may be seen of it, or train without a view"
            )
        words = ", ".join(f"'{named}' ({'×'.join(map(str, value.shape)) or 'a number'})" for named, value in first.items())
        return cls(getattr(function, "__name__", type(function).__name__), words, digest.hexdigest()[:24], tuple(each), public, function)

    def of(self, record: Mapping[str, np.ndarray]) -> Seen:  # noqa: D102
        raise HalfmaskError("a view of whole items is computed from items")

    def of_item(self, item: Any, place: int) -> Seen:
        """ψ of the item at a place: what it was when it was looked at first."""
        seen = self.public.apart(self.function(item))
        if _digest(seen) != self.each[place]:
            raise HalfmaskError(
                "the view of an item is no longer what it was: each would show something new of it. Give one that stays as it is"
            )
        return Seen(seen)

    def describe(self) -> str:  # noqa: D102
        return f"what the function '{self.name}' returns of it, {self.fields}"


@register
class OwnTask(Task):
    """A loss on items of a dataset that only the user knows.

    Args:
        form: how the items are built.
        scores: on a batch of items, one value per record, or several by name.
        view: what is public of an item.
        sample: a dataset to try the loss on.
        facts: what the certificate has to say besides.
        optimiser: makes the optimiser of the weights given to it.
    """

    name = "own"
    units = ()
    methods = tuple(METHODS)
    labels = "as far as that function returns them"

    def __init__(
        self,
        config: Any,
        loss: LossOfItems | None = None,
        form: Form | None = None,
        scores: Callable[[nn.Module, Any], Any] | None = None,
        view: OwnView | None = None,
        sample: Any = None,
        facts: Sequence[str] = (),
        optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    ):
        super().__init__(config)
        self.of_items, self.form, self.scores, self._view = loss, form, scores, view
        self._sample, self.facts, self._optimiser = sample, tuple(facts), optimiser

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        return self._loss(model, batch, self.form)

    def view_loss(self, model: nn.Module, batch: Batch) -> Tensor:  # noqa: D102
        return self._loss(model, batch, self.form if self._view is None else self._view.public)

    def _loss(self, model: nn.Module, batch: Batch, form: Form | None) -> Tensor:
        if self.of_items is None or form is None:
            raise HalfmaskError("this run was trained from Python, with a loss that only its program knows: go on there")
        losses = self.of_items(model, form.together(batch))
        if not isinstance(losses, Tensor):
            raise HalfmaskError(f"the loss is {a_or_an(type(losses).__name__)}: expected a tensor with one value per record")
        return losses

    def load(self, report: Report | None = None) -> Datasets:  # noqa: D102
        raise HalfmaskError("this run was trained from Python, on a dataset that only its program knows: go on there")

    def view(self) -> View | None:  # noqa: D102
        return self._view

    def sample(self, model: nn.Module, records: Records) -> Batch:
        """Items of the user's sample, or noise in the shapes of the private ones."""
        if self._sample is None or self.form is None:
            return super().sample(model, records)
        return some_items(self._sample, self.form, 4)

    def samples(self, model: nn.Module, records: Records, count: int = 3) -> list[Batch]:
        """Of the user's sample the first few, some at a time."""
        if self._sample is None or self.form is None:
            return super().samples(model, records, count)
        found = some_items(self._sample, self.form, 4 * count)
        several = len(next(iter(found.values())))
        starts = range(0, max(1, several - 1), 4)
        return [{name: value[start : start + 4] for name, value in found.items()} for start in starts]

    def optimiser(self, weights: list[nn.Parameter]) -> torch.optim.Optimizer | None:  # noqa: D102
        return None if self._optimiser is None else self._optimiser(weights)

    def public_facts(self, data: Datasets) -> list[str]:  # noqa: D102
        return list(self.facts)

    @torch.no_grad()
    def score(  # noqa: D102
        self,
        model: nn.Module,
        records: Records,
        source: str = "private",
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        if self.scores is None or self.form is None:
            return super().score(model, records, source, device)
        form = self._view.public if source == VIEW and self._view is not None else self.form
        found: dict[str, list[Tensor]] = {}
        for start in range(0, len(records), 64):
            rows = np.arange(start, min(start + 64, len(records)))
            values = self.scores(model, form.together(records.batch(rows, source, device)))
            named = values if isinstance(values, dict) else {getattr(self.scores, "__name__", "score").strip("<>"): values}
            for name, value in named.items():
                if not isinstance(value, Tensor) or value.shape != (len(rows),):
                    shape = tuple(value.shape) if isinstance(value, Tensor) else f"{a_or_an(type(value).__name__)}"
                    raise HalfmaskError(f"the score '{name}' has shape {shape} for {len(rows)} records: expected one value per record")
                found.setdefault(name, []).append(value.detach().double().cpu())
        return Scores({name: float(torch.cat(values).mean()) for name, values in found.items()})


def _digest(fields: Mapping[str, np.ndarray]) -> bytes:
    return hashlib.sha256(b"".join(name.encode() + value.tobytes() for name, value in fields.items())).digest()


def same_build(first: Any, second: Any) -> bool:
    """Whether two items have the same fields in the same shapes."""
    shapes = [[(name, np.shape(value)) for name, value in leaves(item)] for item in (first, second)]
    return shapes[0] == shapes[1]
