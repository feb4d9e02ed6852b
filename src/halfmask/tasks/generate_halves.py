"""What stands beside the noised half where pictures are generated: the exact half, on generated pictures, and the generator's own steps.

Neither is ever told who is in a private batch. Poses and noise of generated pictures come from public randomness, keyed by the number of
the step: had they come from the batch, they would show who is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.engine import Batch, ClippingEngine
from halfmask.models.posegan import AveragedGenerator, Critic, PoseGAN, bound_weights, gradient_penalty, spectral_bound
from halfmask.tasks.base import PostProcessing
from halfmask.tasks.generate_course import Course
from halfmask.tasks.generate_poses import Poses, heatmaps_of
from halfmask.training.public import PublicHalf
from halfmask.training.setup import Setup
from halfmask.training.showing import Showing

# Pixels across, of the surroundings that something stands out from.
_SURROUNDINGS = 9
# Public randomness: what each stream of it is for.
_FAKES, _GENERATOR, _PUBLIC, _BETWEEN = 11, 12, 13, 14
# So many steps of the generator after each other before it is looked at what it draws.
_LOOKED_AT = 20


class FakeHalf(PublicHalf):
    """The gradient of generated pictures: each clipped to the same C as a real one, so that neither side outweighs the other, and exact.

    A run without private pictures (`public-only`) plays public ones against them.
    """

    def __init__(self, setup: Setup, engine: ClippingEngine):
        super().__init__(setup, engine, Showing(setup.config.augment, setup.task, setup.config.seed + 2, setup.device))
        self.poses = Poses(setup.private, setup.config.model, setup.config.seed)
        self.model = setup.model
        assert isinstance(self.model, PoseGAN)

    def gradient(self) -> Tensor:
        """Of the next generated pictures; of public ones beside them where a run has no others; of the slope between both where asked."""
        setup, config = self.setup, self.setup.config.model
        number, self.batches = self.batches, self.batches + 1
        total = torch.zeros(self.engine.size, device=setup.device)
        if config.critic == "means":
            return total
        fakes = self._fakes(number)
        unread = setup.method.private == "unread"
        if config.clip == "real" or unread:
            total = total + self._fake_gradient(fakes)
        real = self._public(number)
        if unread and real is not None:
            gradient, value = self.mean_gradient(real_loss, real)
            self.loss = None if value is None else -value
            total = total + gradient
        if config.bound == "penalty" and config.penalty:
            between = fakes if real is None else self._between(real, fakes, number)
            gradient, _ = self.mean_gradient(_steepness, between)
            total = total + config.penalty * gradient
        return setup.config.public.weight * total

    def _fake_gradient(self, fakes: Batch) -> Tensor:
        setup = self.setup
        if setup.method.private != "noised":
            return self.mean_gradient(fake_loss, fakes)[0]
        clipped = self.engine.clipped_sum(fake_loss, fakes, setup.config.clip_norm, chunk=setup.config.chunk)
        count = len(fakes["picture"])
        return self.group.mean((clipped.flat() / max(1, count)).float(), None, count)[0]

    def _fakes(self, number: int) -> Batch:
        assert isinstance(self.model, PoseGAN)
        config = self.setup.config.model
        drawn = self.poses.drawn(self.size, self.model.shape.latent, _FAKES, number)
        noise, joints = (self.group.share(part).to(self.setup.device) for part in drawn)
        maps = heatmaps_of(self.model, joints, config)
        with torch.no_grad():
            return {"picture": self.model.generate(noise, maps)} | ({"heatmaps": maps} if config.conditional else {})

    def _public(self, number: int) -> Batch | None:
        people, config = self.setup.raw_public, self.setup.config.model
        if people is None or not len(people):
            return None
        generator = torch.Generator().manual_seed((self.setup.config.seed * 16 + _PUBLIC) * 1_000_003 + number)
        rows = self.group.share(torch.randint(len(people), (self.size,), generator=generator))
        batch = people.batch(rows.numpy(), "private", self.setup.device)
        assert isinstance(self.model, PoseGAN)
        found = {"picture": batch["image"].float() / 127.5 - 1}
        return found | ({"heatmaps": heatmaps_of(self.model, batch["joints"], config)} if config.conditional else {})

    def _between(self, real: Batch, fakes: Batch, number: int) -> Batch:
        generator = torch.Generator().manual_seed(self.setup.config.seed * 7 + number)
        share = self.group.share(torch.rand(self.size, 1, 1, 1, generator=generator)).to(self.setup.device)
        return fakes | {"picture": share * real["picture"] + (1 - share) * fakes["picture"]}


def fake_loss(model: nn.Module, batch: Batch) -> Tensor:
    """What the critic lowers: its value of generated pictures."""
    assert isinstance(model, PoseGAN)
    return model.critic(batch["picture"], batch.get("heatmaps"))


def real_loss(model: nn.Module, batch: Batch) -> Tensor:
    """What the critic raises: its value of real ones."""
    return -fake_loss(model, batch)


def _steepness(model: nn.Module, batch: Batch) -> Tensor:
    assert isinstance(model, PoseGAN) and isinstance(model.critic, Critic)
    return gradient_penalty(model.critic, batch["picture"], batch.get("heatmaps"), one_sided=True)


def _outlines(pictures: Tensor) -> Tensor:
    """What stands out from its surroundings. Light and colours of whole limbs and rooms do not, and are free to change."""
    return pictures - F.avg_pool2d(pictures, _SURROUNDINGS, 1, _SURROUNDINGS // 2, count_include_pad=False)


class GeneratorSteps(PostProcessing):
    """After each step of the critic its bound; after every n_d of them, the generator's own step. Nothing here sees a real picture."""

    def __init__(self, setup: Setup):
        self.setup, self.config = setup, setup.config.model
        assert isinstance(setup.model, PoseGAN)
        self.model = setup.model
        self.poses = Poses(setup.private, self.config, setup.config.seed)
        weights = self.weights()
        rate = self.config.generator_rate
        self.optimiser: torch.optim.Optimizer = (
            torch.optim.Adam(weights, lr=rate, betas=(0.5, 0.9))
            if self.config.generator_optimiser == "adam"
            else torch.optim.SGD(weights, lr=rate)
        )
        # Both begin where the generator began.
        self.averaged = AveragedGenerator(self.model.generator, self.config.average) if self.config.average else None
        self.start = AveragedGenerator(self.model.generator).generator if self.config.anchor else None
        self.taken = 0
        self.course = Course(setup, self.poses)
        self.looked_at = 0

    def step(self, number: int) -> None:
        """Bound the critic; and let the generator follow it, where it is its turn."""
        critic = self.model.critic
        if self.config.bound == "weights" and self.config.critic == "network":
            bound_weights(critic, self.config.limit)
        elif self.config.bound == "spectral" and isinstance(critic, Critic):
            spectral_bound(critic, self.config.limit)
        if self.config.critic == "means" or (number + 1) % self.config.critic_steps == 0:
            for _ in range(self.config.generator_steps):
                self.follow()

    def check(self, step: int) -> None:
        """Stop a run whose generator draws nothing any more; looked at every so many of its steps."""
        if self.taken - self.looked_at >= _LOOKED_AT:
            self.looked_at = self.taken
            self.course.check(self.model.generator, f"after step {step}")

    def complete(self) -> None:
        """Look at what will be released."""
        if self.taken:
            self.course.check(self.model.generator if self.averaged is None else self.averaged.generator, "at the end")

    def release(self) -> None:
        """The average, where one was asked for."""
        if self.averaged is not None:
            self.averaged.release(self.model.generator)

    def moved(self) -> Iterable[Tensor]:
        """The generator, which remembers what the critic was taught."""
        return self.model.generator.parameters() if self.taken else ()

    def follow(self) -> None:
        """One step of the generator, towards what the critic values."""
        noise, joints = self.poses.drawn(self.config.generator_batch, self.model.shape.latent, _GENERATOR, self.taken)
        noise, joints = noise.to(self.setup.device), joints.to(self.setup.device)
        self.taken += 1
        maps = heatmaps_of(self.model, joints, self.config)
        weights = self.weights()
        marked = [weight.requires_grad for weight in weights]
        for weight in weights:
            weight.requires_grad = True
        with torch.enable_grad():
            drawn = self.model.generate(noise, maps)
            loss = self.lost(drawn, maps, joints)
            if self.start is not None:
                with torch.no_grad():
                    first = self.start(noise, maps)
                loss = loss + self.config.anchor * (_outlines(drawn) - _outlines(first)).abs().mean()
            gradients = torch.autograd.grad(loss, weights)
        for weight, gradient, was in zip(weights, gradients, marked, strict=True):
            weight.grad, weight.requires_grad = gradient, was
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.averaged is not None:
            self.averaged.update(self.model.generator)

    def weights(self) -> list[nn.Parameter]:
        """What of the generator learns: all of it, or what makes an appearance of noise and gives it to the decoder."""
        generator = self.model.generator
        if self.config.generator_part == "whole":
            return list(generator.parameters())
        parts = (generator.mapping, generator.decoder.spread, generator.decoder.out)
        return [weight for part in parts for weight in part.parameters()]

    def lost(self, drawn: Tensor, maps: Tensor, joints: Tensor) -> Tensor:
        """What the generator lowers."""
        return -self.model.critic(drawn, maps if self.config.conditional else None).mean()

    def state(self) -> dict[str, Any]:  # noqa: D102
        average = None if self.averaged is None else self.averaged.state()
        start = None if self.start is None else self.start.state_dict()
        course = {"course": self.course.state(), "looked_at": self.looked_at}
        return {"taken": self.taken, "optimiser": self.optimiser.state_dict(), "average": average, "start": start} | course

    def restore(self, state: dict[str, Any]) -> None:  # noqa: D102
        self.taken, self.looked_at = int(state["taken"]), int(state["looked_at"])
        self.course.restore(state["course"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.averaged is not None:
            self.averaged.restore(state["average"])
        if self.start is not None:
            self.start.load_state_dict(state["start"])
