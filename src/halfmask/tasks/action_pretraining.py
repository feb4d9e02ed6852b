"""How clips of public people are shown in pre-training: whole, or as one side of their mask alone, changed anew each time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.mvit import LAST_BLOCKS, Block, MViT
from halfmask.models.mvit_attention import Grid
from halfmask.tasks.action import lower_features
from halfmask.tasks.action_changes import NUMBERS, changed
from halfmask.training.pretrain import PublicPeople
from halfmask.training.setup import Setup
from halfmask.views.tokens import EDGES, Tokens

# Of the clips that are shown in part, the share that show what their mask leaves public, and not the other side; and the share of those at
# whose border tokens are cleared, and not left out.
_AS_MASKED, _CLEARED = 0.75, 0.8


class FromClips(PublicPeople):
    """For training the whole network. A network that never saw some tokens alone would make little of them later.

    The other way round, people cut out of their rooms teach how people move within minutes, and whole clips not in an hour: a recipe begins
    with parts alone (`view_share: 1`) and goes on with both.

    Its draws come from one generator, in turn: nobody here is protected by being drawn apart.
    """

    longest = 1.0

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
        assert isinstance(model, MViT)
        features = lower_features(model, batch)
        told = nn.functional.cross_entropy(model.upper(features), batch["label"], reduction="none")
        return told + self.weight * joint_losses(model, features, batch["joints"])

    def _some_in_part(self, batch: Batch, hidden: np.ndarray) -> Batch:
        """About `view_share` of the clips as the tokens of one side of their mask, whichever it is."""
        clips, tokens = batch["clip"].numpy().copy(), batch["tokens"].numpy().copy()
        draws = torch.rand(len(clips), 3, generator=self.generator)
        for row in torch.nonzero(draws[:, 0] < self.setup.config.pretrain.view_share).flatten().tolist():
            side = hidden[row] if draws[row, 1] < _AS_MASKED else ~hidden[row]
            view = Tokens(EDGES[int(draws[row, 2] < _CLEARED)])
            seen = view.of({"clip": clips[row], "hidden": side}).public
            # A side without any token teaches nothing.
            if seen["tokens"].any():
                clips[row], tokens[row] = seen["clip"], seen["tokens"]
        return {"clip": torch.from_numpy(clips), "tokens": torch.from_numpy(tokens)}


def joint_losses(model: MViT, features: Tensor, joints: Tensor) -> Tensor:
    """How far the tokens of each clip are from saying where its joints are.

    Every token is asked, for the frames that it stands for, whether a joint lies in its cell of the frame, against all other cells, and
    where in it. A joint outside the frame, or in a cell whose token is not there, is not asked for.

    Args:
        joints: N×T×J×2, as shares of the frame from its centre.
    """
    assert model.joints is not None
    records, frames, count = joints.shape[:3]
    grid = last_grid(model)
    said = model.joints(features[:, 1:, :-1]).view(records, grid.frames, grid.rows * grid.columns, -1, count, 3)
    # N×T×J×cells×3: a token stands for as many frames as there are for each step in time.
    said = said.permute(0, 1, 3, 4, 2, 5).reshape(records, -1, count, grid.rows * grid.columns, 3)[:, :frames]
    there = features[:, 1:, -1].view(records, grid.frames, 1, -1) > 0.5
    there = there.repeat_interleave(-(-frames // grid.frames), 1)[:, :frames].expand(-1, -1, count, -1)
    places = (joints + 0.5) * joints.new_tensor([grid.columns, grid.rows])
    cells = places.floor()
    inside = ((joints > -0.5) & (joints < 0.5)).all(-1)
    number = (cells[..., 1] * grid.columns + cells[..., 0]).long().clamp(0, grid.rows * grid.columns - 1)
    asked = (inside & there.gather(3, number[..., None])[..., 0]).float()
    scores = said[..., 0].masked_fill(~there, -1e4).log_softmax(-1)
    found = -scores.gather(3, number[..., None])[..., 0]
    within = said[..., 1:].gather(3, number[..., None, None].expand(-1, -1, -1, 1, 2))[..., 0, :]
    off = (within - (places - cells - 0.5)).abs().sum(-1)
    return (asked * (found + off)).sum((1, 2)) / (frames * count)


def last_grid(model: MViT) -> Grid:
    """The tokens before the last blocks."""
    block = model.blocks[-LAST_BLOCKS]
    assert isinstance(block, Block)
    return block.grid
