"""Whether a generator still draws people, or came to nothing. Looks at generated pictures and at public people alone.

A generator that fails seldom ends in numbers that are none: it draws one picture whatever the noise, or whatever the pose, or one that is
black and white all over. So a few noises and a few poses, the same each time, are drawn every so often, and it is measured how far the
pictures differ over either. The critic's value would tell less, and of private people nothing is asked at all.

It is judged against itself: an untrained generator draws grey in grey, and is no failure for that; one that has drawn different people and
no longer does, is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfmask.data.records import PRIVATE
from halfmask.models.posegan import Generator, PoseGAN
from halfmask.tasks.generate_poses import Poses, heatmaps_of
from halfmask.training.course import Diverged
from halfmask.training.setup import Setup

# Public randomness of its own, and how many noises and poses are tried.
_TRIED, _COUNT = 15, 4
# Less than such a share of what it was, and of how far public people differ, is none at all.
_LOST = 0.1
# A number so near to −1 or 1 says nothing any more, and more than such a share of them is no picture.
_EDGE, _FLAT = 0.98, 0.5
_SHOWN = 64
_ADVICE = (
    "Lower model.generator_rate, or optimiser.learning_rate; take more steps of the critic (model.critic_steps), or hold the generator to "
    "its start (model.anchor)"
)


@dataclass(frozen=True)
class Look:
    """What drawn pictures are like, in numbers from −1 to 1.

    Attributes:
        noise, pose: how far pictures of one pose differ over noise, and those of one noise over poses.
        flat: the share of their numbers that lie at either end.
    """

    noise: float
    pose: float
    flat: float


class Course:
    """Remembers how a generator drew, and stops a run whose generator no longer does."""

    def __init__(self, setup: Setup, poses: Poses):
        assert isinstance(setup.model, PoseGAN)
        self.model, self.config = setup.model, setup.config.model
        self.noise, self.joints = (part.to(setup.device) for part in poses.drawn(_COUNT, self.model.shape.latent, _TRIED, 0))
        self.people = _public_look(setup)
        # The best that it did, from its start on; of what was black or white, how much that was at its start.
        self.best = self.look(self.model.generator)

    @torch.no_grad()
    def look(self, generator: Generator) -> Look:
        """Every noise in every pose."""
        maps = heatmaps_of(self.model, self.joints, self.config)
        drawn = generator(self.noise.repeat_interleave(_COUNT, 0), maps.repeat(_COUNT, 1, 1, 1)).unflatten(0, (_COUNT, _COUNT))
        return Look(_spread(drawn, 0), _spread(drawn, 1), float((drawn.abs() > _EDGE).float().mean()))

    def check(self, generator: Generator, when: str) -> None:
        """Stop a run whose generator draws nothing any more."""
        if not all(bool(torch.isfinite(weight).all()) for weight in generator.parameters()):
            raise Diverged(f"the generator's weights are no longer finite numbers {when}", _ADVICE)
        now, best, people = self.look(generator), self.best, self.people
        if now.flat > _FLAT and now.flat > 2 * max(best.flat, people.flat):
            raise Diverged(f"{100 * now.flat:.0f} % of what the generator draws is black or white {when}", _ADVICE)
        for name, words in (("noise", "whatever the noise"), ("pose", "whatever the pose")):
            spread, was, theirs = (getattr(one, name) for one in (now, best, people))
            # Not a number is not less than anything, and no picture either.
            if not (spread >= _LOST * was or spread >= _LOST * theirs):
                raise Diverged(
                    f"the generator draws the same picture {words} {when}: they differ by {spread:.2g}, and differed by {was:.2g}", _ADVICE
                )
        self.best = Look(max(best.noise, now.noise), max(best.pose, now.pose), best.flat)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: a run that goes on is judged against all of it."""
        return asdict(self.best)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.best = Look(**state)


def _spread(drawn: Tensor, over: int) -> float:
    """The standard deviation of a pixel over one of the two, the root of the mean of its square."""
    return float(drawn.double().var(over).mean().sqrt())


def _public_look(setup: Setup) -> Look:
    """The same of public people, of whom nobody knows what in their pictures is due to the pose; infinite spread where there are none."""
    people = next((part for part in (setup.watched, setup.raw_public, setup.basis) if part is not None and len(part) > 1), None)
    if people is None:
        return Look(float("inf"), float("inf"), 0.0)
    pictures = torch.from_numpy(np.asarray(people.part(PRIVATE).rows(np.arange(min(len(people), _SHOWN)))["image"])).float() / 127.5 - 1
    differ = _spread(pictures, 0)
    return Look(differ, differ, float((pictures.abs() > _EDGE).float().mean()))
