"""Who takes part in a step.

The private batch is drawn by a fresh, secret, independent coin for each unit: that is what the accountant's amplification rests on.
The public batch is drawn by other randomness altogether. Were it the same people, its exact gradient would reveal the coins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.privacy.noise import RandomStream


class PoissonSampler:
    """Draws private batches: each of `units` units enters with probability `rate`, on its own.

    Formal guarantees: inclusions are independent over units and steps. A batch may be empty; it must still be noised, applied
    and counted, and the divisor of the step is the constant `expected_batch`.
    """

    def __init__(self, units: int, rate: float, stream: RandomStream):
        if units <= 0:
            raise HalfmaskError("the private dataset has no units: there is nothing to train on")
        if not 0 < rate <= 1:
            raise HalfmaskError(
                f"the expected batch is {rate * units:g} of {units} units: expected a batch between 1 and the number of units"
            )
        self.units, self.rate = units, rate
        self._stream = stream

    @property
    def expected_batch(self) -> float:
        """The constant B̄ = rate × units."""
        return self.units * self.rate

    def draw(self) -> Tensor:
        """Indices of the units in the next batch, in increasing order; possibly none."""
        return torch.nonzero(self._stream.uniform(self.units) < self.rate).flatten()


class PublicSampler:
    """Draws fixed-size batches of public records, epoch by epoch in a shuffled order, from randomness of its own."""

    def __init__(self, records: int, batch: int, seed: int):
        if records <= 0:
            raise HalfmaskError("there are no public records to draw from")
        self.records, self.batch = records, batch
        self._generator = torch.Generator().manual_seed(seed)
        self._queue = torch.empty(0, dtype=torch.long)

    def draw(self) -> Tensor:
        """Indices of the next batch."""
        while len(self._queue) < self.batch:
            self._queue = torch.cat([self._queue, torch.randperm(self.records, generator=self._generator)])
        batch, self._queue = self._queue[: self.batch], self._queue[self.batch :]
        return batch

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs to go on from here."""
        return {"queue": self._queue.clone(), "generator": self._generator.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self._queue = state["queue"].clone()
        self._generator.set_state(state["generator"])
