"""How clips of public people are shown in pre-training: whole, or as one side of their mask alone, changed anew each time."""

from __future__ import annotations

import numpy as np
import torch

from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.tasks.action_changes import NUMBERS, changed
from halfmask.training.pretrain import PublicPeople
from halfmask.training.setup import Setup
from halfmask.views.tokens import EDGES, Tokens


class FromClips(PublicPeople):
    """For training the whole network. A network that never saw some tokens alone would make little of them later.

    Its draws come from one generator, in turn: nobody here is protected by being drawn apart.
    """

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine)
        self.generator = torch.Generator().manual_seed(setup.config.seed + 2)

    def batch(self) -> Batch:  # noqa: D102
        config, people = self.setup.config, self.setup.private
        self.batches += 1
        rows = self.samplers["view"].draw().numpy()
        batch = people.batch(rows)
        if config.pretrain.view_share and len(people.truth):
            batch |= self._some_in_part(batch, people.truth.rows(rows)["hidden"])
        numbers = torch.rand(len(rows), NUMBERS, generator=self.generator)
        return {name: tensor.to(self.setup.device) for name, tensor in changed(batch, numbers, config.augment).items()}

    def _some_in_part(self, batch: Batch, hidden: np.ndarray) -> Batch:
        """About `view_share` of the clips as the tokens of one side of their mask, whichever it is."""
        clips, tokens = batch["clip"].numpy().copy(), batch["tokens"].numpy().copy()
        draws = torch.rand(len(clips), 3, generator=self.generator)
        for row in torch.nonzero(draws[:, 0] < self.setup.config.pretrain.view_share).flatten().tolist():
            side = hidden[row] if draws[row, 1] < 0.5 else ~hidden[row]
            view = Tokens(EDGES[int(draws[row, 2] < 0.6)])
            seen = view.of({"clip": clips[row], "hidden": side}).public
            # A side without any token teaches nothing.
            if seen["tokens"].any():
                clips[row], tokens[row] = seen["clip"], seen["tokens"]
        return {"clip": torch.from_numpy(clips), "tokens": torch.from_numpy(tokens)}
