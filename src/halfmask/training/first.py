"""The public steps that come before any private one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfmask.training.optimise import Optimiser

if TYPE_CHECKING:
    from halfmask.training.loop import Trainer


def take_public_steps_first(trainer: Trainer) -> None:
    """Public steps alone, with a schedule of their own; the steps of the run begin with a fresh optimiser.

    They read views and public people, toss no private coin, and cost nothing: an interrupted run takes them anew.
    """
    config, nobody = trainer.setup.config, np.zeros(0, np.int64)
    steps = config.public.first if trainer.setup.method.view else 0
    optimiser = Optimiser(config.optimiser, trainer.engine.parameters, steps)
    for step in range(steps):
        public, _ = optimiser.apply(step, trainer.engine.unflatten(trainer.public_gradient(nobody)))
        trainer.influence.halves(public, 0.0)
        trainer.progress.stage("public steps", step + 1, steps)
    if steps:
        optimiser.release_average()
        trainer.optimiser = Optimiser(config.optimiser, trainer.engine.parameters, trainer.setup.steps)
    trainer.begun = True
