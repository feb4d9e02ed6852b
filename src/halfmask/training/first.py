"""The public steps that come before any private one."""

from __future__ import annotations

from halfmask.gradients.engine import ClippingEngine
from halfmask.training.influence import Influence
from halfmask.training.optimise import Optimiser
from halfmask.training.progress import Progress
from halfmask.training.public import PublicHalf
from halfmask.training.setup import Setup


def take_public_steps_first(
    steps: int, setup: Setup, engine: ClippingEngine, public: PublicHalf, influence: Influence, progress: Progress
) -> bool:
    """Public steps alone, with a schedule of their own; the steps of the run begin with a fresh optimiser.

    They read views and public people, toss no private coin, and cost nothing: an interrupted run takes them anew.

    Returns:
        Whether there were any.
    """
    if not steps:
        return False
    optimiser = Optimiser(setup.config.optimiser, engine.parameters, steps, setup.task.optimiser)
    for step in range(steps):
        moved, _ = optimiser.apply(step, engine.unflatten(public.gradient()))
        influence.halves(moved, 0.0)
        progress.stage("public steps", step + 1, steps)
    optimiser.release_average()
    return True
