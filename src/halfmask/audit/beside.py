"""Checks of what stands beside the noised half where a task has something there: an exact half of its own, steps that follow.

Of a step's halves one is noised, and all the rest may know what that one released and what is public. So whole runs are taken twice, on
other private records and with other coins, and with equal releases: whatever then differs has learnt of private people past the noise.
Fakes in the poses of the private batch do, and so does a generator that is shown somebody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfmask.audit.findings import Finding
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippedCoordinates, ClippedSum
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.subspace import Subspace
from halfmask.training.loop import Trainer

# How long a made-up release is, in each of its numbers: a step that leaves a network what it is.
_LENGTH = 1e-3
# Makes the trainer of a run, by name, with other private records and coins where asked.
Made = Callable[[str, bool], Trainer]


@dataclass(frozen=True)
class _SaysTheSame(Mechanism):
    """Releases what it would have, but says something else, the same in every run of its seed."""

    seed: int = 0

    def release_coordinates(self, clipped: ClippedSum | ClippedCoordinates, subspace: Subspace | LayeredSubspace | None) -> Tensor:
        real = super().release_coordinates(clipped, subspace)
        return (_LENGTH * torch.randn(real.shape, generator=torch.Generator().manual_seed(self.seed))).to(real)


def nothing_but_the_release(made: Made) -> Finding:
    """Other private records and other coins, but equal releases: all weights must be the same, to the last bit."""
    try:
        one, other = _weights(made("one", False), 0), _weights(made("other", True), 0)
        told = _weights(made("told", False), 1)
    except HalfmaskError as error:
        return _release_finding(False, f"the run was refused: {error}")
    moved = [name for name in one if not torch.equal(one[name], other[name])]
    # A check that would not notice another release notices nothing.
    deaf = not any(not torch.equal(one[name], told[name]) for name in one)
    found = f"{len(moved)} of {len(one)} weights differ" + (f", '{moved[0]}' first" if moved else "")
    return _release_finding(not moved and not deaf, found + (", and none follows what is released" if deaf else ""))


def _release_finding(passed: bool, found: str) -> Finding:
    return Finding(
        "nothing-but-the-release",
        passed,
        found,
        "0, with equal releases on other private records and other coins",
        "generated pictures in the poses of the private batch, or as many as it has; a generator that is shown somebody; part of a pair "
        "outside the clip",
    )


def _weights(trainer: Trainer, seed: int) -> dict[str, Tensor]:
    real = trainer.noised.mechanism
    says = _SaysTheSame(real.noise_multiplier, real.clip_norm, real.expected_batch, real.noise, real.sum_of_four, seed)
    trainer.noised = replace(trainer.noised, mechanism=says)
    trainer.train()
    trainer.release()
    return {name: tensor.detach().clone() for name, tensor in trainer.setup.model.state_dict().items()}


def paid_ahead(trainer: Trainer) -> Finding:
    """Whenever coins are tossed, the ledger has been charged for the step."""
    poisson, account, run = trainer.noised.poisson, trainer.setup.account, trainer.standing.run
    toss, ahead = poisson.draw, list[bool]()

    def charged() -> Tensor:
        paid = sum(spend.steps for spend in account.ledger.spends() if spend.run == run)
        ahead.append(paid > trainer.standing.step)
        return toss()

    poisson.draw = charged  # type: ignore[method-assign]
    said = ""
    try:
        trainer.train()
    except HalfmaskError as error:
        said = f"; the run was refused: {error}"
    late = len(ahead) - sum(ahead)
    return Finding(
        "paid-ahead",
        not late and len(ahead) == trainer.setup.steps and not said,
        f"{late} of {len(ahead)} steps tossed coins before they were paid for{said}",
        f"0 of {trainer.setup.steps}",
        "a budget that is looked at after the step: the last one is taken whether it fits or not, and a crash forgets it",
    )
