"""How clips of public people are shown in pre-training: whole, or as one side of their mask alone, changed anew each time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.mvit import MViT
from halfmask.tasks.action import lower_features
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
        self.weight = setup.config.pretrain.joints if "joints" in setup.private.truth.shapes() else 0.0
        self.loss_fn = self._loss

    def batch(self) -> Batch:  # noqa: D102
        config, people = self.setup.config, self.setup.private
        self.batches += 1
        rows = self.samplers["view"].draw().numpy()
        batch, known = people.batch(rows), people.truth.rows(rows)
        if config.pretrain.view_share and "hidden" in known:
            batch |= self._some_in_part(batch, known["hidden"])
        if self.weight:
            batch["joints"] = torch.from_numpy(known["joints"])
        numbers = torch.rand(len(rows), NUMBERS, generator=self.generator)
        return {name: tensor.to(self.setup.device) for name, tensor in changed(batch, numbers, config.augment).items()}

    def _loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """What is done, and where each joint is in each frame."""
        if not self.weight:
            return self.setup.task.loss(model, batch)
        assert isinstance(model, MViT) and model.joints is not None
        vector = model.vector(lower_features(model, batch))
        placed = model.joints(vector).view_as(batch["joints"])
        told = nn.functional.cross_entropy(model.head(vector), batch["label"], reduction="none")
        return told + self.weight * (placed - batch["joints"]).abs().mean((1, 2, 3))

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
