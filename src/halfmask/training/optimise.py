"""From released gradients to new weights. All of it is post-processing: nothing here can cost privacy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.subspace import Subspace
from halfmask.settings import setting

OPTIMISERS = ("sgd", "adamw")


@dataclass(frozen=True)
class OptimiserConfig:
    """How the update becomes new weights: all of it post-processing."""

    name: str = setting("sgd", "The optimiser.", one_of=OPTIMISERS, called="optimiser")
    learning_rate: float = setting(0.05, "The learning rate at its highest.", at_least=0)
    momentum: float = setting(0.9, "The momentum of `sgd`.", at_least=0)
    weight_decay: float = setting(0.0, "By how much weights shrink, in units of the learning rate.", at_least=0)
    schedule: str = setting(
        "cosine",
        "What the learning rate does after it has risen: fall to nothing, or stay.",
        one_of=("cosine", "constant"),
        called="schedule",
    )
    warm_up: float = setting(0.1, "The share of the steps over which the learning rate rises to its highest.", at_least=0, at_most=1)
    average: float = setting(
        0.0,
        "Release an exponential moving average of the weights, each step keeping this share of it (0.95, say): the noise of the last "
        "steps averages out. 0 releases the last weights; at 1 they would never change.",
        at_least=0,
        below=1,
    )


class Optimiser:
    """The optimiser of a recipe, its schedule, and the average of the weights it has passed through."""

    def __init__(
        self,
        config: OptimiserConfig,
        parameters: dict[str, nn.Parameter],
        steps: int,
        made: Callable[[list[nn.Parameter]], torch.optim.Optimizer | None] = lambda weights: None,
    ):
        self.config, self.parameters, self.steps = config, parameters, steps
        weights = list(parameters.values())
        self.torch: torch.optim.Optimizer
        own = made(weights)
        if own is not None:
            self.torch = own
        elif config.name == "adamw":
            self.torch = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=config.weight_decay)
        else:
            self.torch = torch.optim.SGD(weights, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay)
        self._rates = [float(group["lr"]) for group in self.torch.param_groups]
        self.average = {name: p.detach().clone() for name, p in parameters.items()} if config.average > 0 else None

    def share(self, step: int) -> float:
        """The share of the full learning rate in a step."""
        share = 0.5 * (1 + math.cos(math.pi * step / self.steps)) if self.config.schedule == "cosine" else 1.0
        # The first public gradients, on views the model has never seen, are many times longer than later ones.
        return share * min(1.0, (step + 1) / max(1.0, self.config.warm_up * self.steps))

    @property
    def learning_rate(self) -> float:
        """That of the last step."""
        return float(self.torch.param_groups[0]["lr"])

    def apply(self, step: int, update: dict[str, Tensor] | None, move: dict[str, Tensor] | None = None) -> tuple[float, float]:
        """Take a step; tells how far the weights went by the update, and how far by the move.

        Args:
            update: a gradient for every parameter; None for no step of the optimiser, whose momentum and decay would move weights too.
            move: by how much the weights go down besides, at the full learning rate, past the optimiser: coordinates of a subspace that
                were scaled in their own place.
        """
        share = self.share(step)
        for group, rate in zip(self.torch.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        before = [p.detach().clone() for p in self.parameters.values()]
        if update is not None:
            for name, gradient in update.items():
                self.parameters[name].grad = gradient
            self.torch.step()
        lengths = (_distance(before, list(self.parameters.values())), share * _length(list((move or {}).values())))
        with torch.no_grad():
            for name, way in (move or {}).items():
                self.parameters[name].sub_(way, alpha=share)
            if self.average is not None:
                for name, mean in self.average.items():
                    mean.lerp_(self.parameters[name], 1 - self.config.average)
        return lengths

    @torch.no_grad()
    def release_average(self) -> None:
        """Put the averaged weights, if there are any, in the model's place."""
        for name, mean in (self.average or {}).items():
            self.parameters[name].copy_(mean)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"torch": self.torch.state_dict(), "average": self.average}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.torch.load_state_dict(state["torch"])
        for name, mean in (self.average or {}).items():
            if state.get("average"):
                mean.copy_(state["average"][name])


def _length(parts: list[Tensor]) -> float:
    return float(torch.stack([part.norm() for part in parts]).norm()) if parts else 0.0


@torch.no_grad()
def _distance(before: list[Tensor], after: list[nn.Parameter]) -> float:
    return _length([new - old for old, new in zip(before, after, strict=True)])


class CoordinateOptimiser:
    """Momentum, or Adam, in the coordinates of a subspace. A resumed run starts it anew, as its basis is found anew.

    Adam on the lifted gradient would divide each of p weights by a scale of its own. That leaves the subspace, and the noise of k
    coordinates becomes noise in all p. Here its state has k numbers, and they are carried over when the basis changes.

    Adam's second moment holds the square of the noise besides that of the signal. The noise's variance is known, σ²C²/B̄² in every
    coordinate, and is subtracted; where little is left, the noise's own scale takes its place, so that a coordinate of noise alone takes
    steps of the size that Adam would let it take.
    """

    def __init__(self, name: str, momentum: float = 0.9, second: float = 0.95):
        self.name, self.momentum, self.second = name, momentum, second
        self.subspace: Subspace | LayeredSubspace | None = None
        self.mean: Tensor | None = None
        self.square: Tensor | None = None
        self.steps = 0

    def rebase(self, subspace: Subspace | LayeredSubspace) -> None:
        """Carry the state over to another basis: what the new one cannot express is forgotten."""
        old, self.subspace = self.subspace, subspace
        if old is not None and self.mean is not None and self.square is not None:
            # Both are of the kind that the recipe names.
            self.mean = old.carry(subspace, self.mean)  # type: ignore[arg-type]
            self.square = old.carry(subspace, self.square, squares=True)  # type: ignore[arg-type]

    def direction(self, coordinates: Tensor, noise: float) -> Tensor:
        """Where to go, given a released gradient and the standard deviation of the noise in each of its coordinates."""
        if self.mean is None or self.square is None:
            self.mean, self.square = torch.zeros_like(coordinates), torch.zeros_like(coordinates)
        self.steps += 1
        if self.name == "sgd":
            self.mean = self.momentum * self.mean + coordinates
            return self.mean
        self.mean = self.momentum * self.mean + (1 - self.momentum) * coordinates
        self.square = self.second * self.square + (1 - self.second) * coordinates.square()
        mean, square = self.mean / (1 - self.momentum**self.steps), self.square / (1 - self.second**self.steps)
        return mean / (square - noise**2).clamp(min=max(noise**2, 1e-16)).sqrt()
