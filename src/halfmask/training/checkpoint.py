"""What a run needs to go on, all of it public or post-processing; and going on, with the data and the noise it began with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import keyed_hash

if TYPE_CHECKING:
    from halfmask.training.loop import Trainer
    from halfmask.training.setup import Setup


def state_of(trainer: Trainer) -> dict[str, Any]:
    """Weights, optimiser, public samplers and counters. Nothing here knows who was in a private batch."""
    return {
        "run": trainer.run,
        "plan": plan_facts(trainer.setup),
        "begun": trainer.begun,
        "step": trainer.step,
        "model": trainer.setup.model.state_dict(),
        "optimiser": trainer.optimiser.state(),
        "public_batches": trainer.public_batches,
        "clip_norms": trainer.clip_norms,
        "samplers": {name: sampler.state() for name, sampler in trainer.samplers.items()},
    }


def plan_facts(setup: Setup) -> dict[str, float | str]:
    """What must be the same when a run goes on: public, all of it, or a keyed hash."""
    return {
        "dataset": setup.data.fingerprints.dataset,
        "set of annotations": _annotations(setup),
        "number of units": len(setup.units),
        "number of steps": setup.steps,
        "sampling rate": setup.sampling_rate,
        "noise multiplier": setup.noise_multiplier,
    }


def _annotations(setup: Setup) -> str:
    """Names who is private, in which units, and how they are annotated: the same photographs may come with other joints or other ids."""
    private, digest = setup.private, hashlib.sha256()
    for part in (private.ids, private.unit_ids(setup.config.unit), private.labelled, private.joints):
        digest.update(np.ascontiguousarray(part).tobytes())
    return keyed_hash(b"annotations" + digest.digest()).hex()


def restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Take a run up where a checkpoint left it; refuses to go on with other data, other noise, or a ledger that knows of less."""
    setup = trainer.setup
    changed = sorted(name for name, value in plan_facts(setup).items() if state["plan"].get(name) != value)
    if changed:
        raise HalfmaskError(
            f"{trainer.folder.path} was started with another {', '.join(changed)}: a run goes on with the data and the noise it began "
            "with. Put them (and $HALFMASK_HOME) back as they were, or start a new run"
        )
    trainer.run, trainer.begun, trainer.step = state["run"], state["begun"], state["step"]
    trainer.paid = sum(spend.steps for spend in trainer.account.ledger.spends() if spend.run == trainer.run)
    if trainer.paid < trainer.step and setup.method.private != "unread" and not setup.config.rehearsal:
        raise HalfmaskError(
            f"the run has taken {trainer.step} steps and the ledger here knows of {trainer.paid}: restore $HALFMASK_HOME as it was, or "
            "start anew"
        )
    trainer.paid = max(trainer.paid, trainer.step)
    setup.model.load_state_dict(state["model"])
    trainer.optimiser.restore(state["optimiser"])
    trainer.public_batches, trainer.clip_norms = state["public_batches"], state["clip_norms"]
    for name, sampler in trainer.samplers.items():
        sampler.restore(state["samplers"][name])
