"""How records are shown to the network: as they are, or after random changes.

Changes come from public randomness, so they must not tell who is in a private batch, nor depend on it. Each is drawn by the record's own id
(`halfmask.data.keyed`): what happens to a person in a step depends on nobody else, not even on how many others there are, and their
gradient stays a function of that person alone. Nothing is remembered from one batch to the next, so that no batch can be read from
what the next one shows. ψ was computed before, on the crop as it is; a view shown here is that view, changed.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from halfmask.data.keyed import uniforms
from halfmask.data.records import VIEW, Records
from halfmask.data.store import let_go
from halfmask.errors import HalfmaskError
from halfmask.tasks.base import Task
from halfmask.tasks.groups import ShowingSettings

Batch = dict[str, Tensor]


class Showing:
    """Turns records into batches. It has no state: the same question has the same answer."""

    def __init__(self, config: ShowingSettings, task: Task, seed: int, device: torch.device | str = "cpu"):
        self.config, self.task, self.seed, self.device = config, task, seed, device

    def show(self, people: Records, records: np.ndarray, *sources: str, use: str, step: int, times: int | None = None) -> list[Batch]:
        """Batches of the records, one for each source (`private`, `view`), changed alike in all of them.

        Args:
            use: `private` for the noised half, `public` for the exact one: neither's changes say anything of the other's.
            step: which batch of that use it is; each shows the same record changed differently.
            times: how often each record appears, one showing next to the other; by default as the config says.
        """
        if times is None:
            times = 0 if sources == (VIEW,) and not self.config.views else min(1, self.config.times)
        batches = self._fetched(people, records, sources, use, step, times)
        # Over a run everybody is shown: what was read of them must not add up to the whole dataset.
        for kind in (people, *people.copies):
            let_go(kind.private, kind.public, kind.rest, *kind.features.values())
        return batches

    def _fetched(self, people: Records, records: np.ndarray, sources: tuple[str, ...], use: str, step: int, times: int) -> list[Batch]:
        if times == 0:
            return [people.batch(records, source, self.device) for source in sources]
        if people.features:
            return self._cached(people, records, sources, use, step, times)
        if not len(records):
            return [people.batch(records, source, self.device) for source in sources]
        repeated, showing = np.repeat(records, times), np.tile(np.arange(times), len(records))
        numbers = torch.from_numpy(uniforms(self.seed, f"{use} changes", step, people.ids[repeated], showing, self.task.numbers))
        batches = (self.task.change(people, people.batch(repeated, source), numbers) for source in sources)
        return [{name: tensor.to(self.device) for name, tensor in batch.items()} for batch in batches]

    def _cached(self, people: Records, records: np.ndarray, sources: tuple[str, ...], use: str, step: int, times: int) -> list[Batch]:
        """The record as it is and its copies: some of them, drawn without repetition."""
        kinds = (people, *people.copies)
        if len(kinds) < times:
            raise HalfmaskError(f"{times} showings of each record need {times - 1} copies, and there are {len(people.copies)}")
        numbers = uniforms(self.seed, f"{use} copies", step, people.ids[records], count=len(kinds))
        order, repeated = numbers.argsort(1)[:, :times].reshape(-1), np.repeat(records, times)
        # Copy by copy, then back into the order of the records.
        places = np.argsort(order, kind="stable")
        back = torch.from_numpy(np.argsort(places, kind="stable")).to(self.device)
        batches = []
        for source in sources:
            parts = [kind.batch(repeated[order == number], source, self.device) for number, kind in enumerate(kinds)]
            batches.append({name: torch.cat([part[name] for part in parts])[back] for name in parts[0]})
        return batches
