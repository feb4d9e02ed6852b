"""How records are shown to the network: as they are, or after random changes.

Changes come from public randomness, so they must not tell who is in a private batch, nor depend on it. Each time, changes are drawn for
*everybody*, and those of the records asked for are taken: what happens to a person in a step depends on nobody else, their gradient stays a
function of that person alone, and the generator moves on by the same amount whoever was drawn. ψ was computed before, on the crop
as it is; a view shown here is that view, changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from halfmask.data.augment import AugmentConfig, draw
from halfmask.data.records import PoseRecords
from halfmask.errors import HalfmaskError

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class ShowingConfig:
    """Random changes to records during training.

    Attributes:
        times: each private record is shown so many times, changed differently each time, and the mean of the gradients is what is
            clipped: one person still adds at most C. Public records are shown once. 0 shows all as they are.
        copies: with strategy `top`, whose lower part is computed once, changes are drawn once too: so many of each record, which are shown
            in turn with the record as it is.
        public: show raw public people changed, also where `times` is 0: they are few, and cost no privacy.
        views: with `times`, show views changed too. They are many; with strategy `top`, each copy of them costs a pass of the lower part.
        change: what changes are made.
    """

    times: int = 0
    public: bool = False
    views: bool = True
    copies: int = 4
    change: AugmentConfig = field(default_factory=AugmentConfig)

    def check(self, strategy: str) -> None:
        """Refuse numbers that do not fit together."""
        if self.times < 0 or not 1 <= self.copies <= 16:
            raise HalfmaskError(f"augment.times is {self.times} and augment.copies {self.copies}: expected at least 0, and from 1 to 16")
        if strategy == "top" and self.times > self.copies + 1:
            raise HalfmaskError(
                f"augment.times is {self.times} but strategy top has a record and {self.copies} copies to show: raise augment.copies"
            )


class Showing:
    """Turns records into batches."""

    def __init__(self, config: ShowingConfig, seed: int, device: torch.device | str = "cpu"):
        self.config, self.device = config, device
        self.generator = torch.Generator().manual_seed(seed)

    def show(self, people: PoseRecords, records: np.ndarray, *sources: str, times: int | None = None) -> list[Batch]:
        """Batches of the records, one for each source (`image`, `view`), changed alike in all of them.

        Args:
            times: how often each record appears, one showing next to the other; by default as the config says.
        """
        if times is None:
            times = 0 if sources == ("view",) and not self.config.views else min(1, self.config.times)
        if times == 0:
            return [people.batch(records, source, self.device) for source in sources]
        if people.features:
            return self._cached(people, records, sources, times)
        everybody = np.repeat(np.arange(len(people)), times)
        whole = {"joints": torch.from_numpy(people.joints[everybody]), "labelled": torch.from_numpy(people.labelled[everybody])}
        whole["image"] = torch.empty(len(everybody), 1, *people.images.shape[2:], device="meta")
        places = torch.from_numpy((np.asarray(records)[:, None] * times + np.arange(times)).reshape(-1))
        drawn = draw(whole, self.generator, self.config.change, people.skeleton).of(places)
        if not len(records):
            return [people.batch(records, source, self.device) for source in sources]
        repeated = np.repeat(records, times)
        return [
            {name: tensor.to(self.device) for name, tensor in drawn.apply(people.batch(repeated, source)).items()} for source in sources
        ]

    def _cached(self, people: PoseRecords, records: np.ndarray, sources: tuple[str, ...], times: int) -> list[Batch]:
        """The record as it is and its copies: some of them, drawn without repetition."""
        kinds = (people, *people.copies)
        if len(kinds) < times:
            raise HalfmaskError(f"{times} showings of each record need {times - 1} copies, and there are {len(people.copies)}")
        everybody = torch.rand(len(people), len(kinds), generator=self.generator).argsort(1)[:, :times].numpy()
        order, repeated = everybody[records].reshape(-1), np.repeat(records, times)
        # Copy by copy, then back into the order of the records.
        places = np.argsort(order, kind="stable")
        back = torch.from_numpy(np.argsort(places, kind="stable")).to(self.device)
        batches = []
        for source in sources:
            parts = [kind.batch(repeated[order == number], source, self.device) for number, kind in enumerate(kinds)]
            batches.append({name: torch.cat([part[name] for part in parts])[back] for name in parts[0]})
        return batches

    def state(self) -> Tensor:
        """Where the draws stand, for a checkpoint."""
        return self.generator.get_state()

    def restore(self, state: Tensor) -> None:
        """Go on from there."""
        self.generator.set_state(state)
