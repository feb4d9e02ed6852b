"""A generator that learns from released means alone: pictures that hold, on average, what people's hold."""

from __future__ import annotations

from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.tasks.generate_halves import GeneratorSteps
from halfmask.tasks.generate_means import MeansCritic
from halfmask.training.course import Diverged
from halfmask.training.setup import Setup


class Matching(GeneratorSteps):
    """Steps towards pictures whose features, clipped as people's were, have the released means."""

    def __init__(self, setup: Setup):
        if setup.method.private != "unread" and setup.steps != 1:
            raise HalfmaskError(
                f"means are released once, with everyone in the batch, and these settings make {setup.steps} steps: set epochs=1 and "
                f"batch={len(setup.units)}"
            )
        super().__init__(setup)

    def step(self, number: int) -> None:
        """Nothing: the generator learns once the means are written down, so that whoever stops it can let it go on."""

    def complete(self) -> None:
        """All steps of the generator."""
        critic = self.model.critic
        assert isinstance(critic, MeansCritic)
        if self.setup.method.private != "unread" and not bool(critic.means.any()):
            raise Diverged(
                "the means were paid for, and lost before they were written down", "Start a new run: what was paid stays in the ledger"
            )
        while self.taken < self.config.generator_steps:
            self.follow()
            self.check(self.setup.steps)
        super().complete()

    def lost(self, drawn: Tensor, maps: Tensor, joints: Tensor) -> Tensor:
        """The squared distance of the two means."""
        critic = self.model.critic
        assert isinstance(critic, MeansCritic)
        found = critic.features(drawn, joints)
        clip = self.setup.config.clip_norm
        found = found * (clip / found.norm(dim=1, keepdim=True).clamp(min=1e-6)).clamp(max=1)
        return (found.mean(0) - critic.means.detach()).square().sum()
