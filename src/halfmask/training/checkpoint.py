"""What a run needs to go on, all of it public or post-processing; and going on, with the data and the noise it began with."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from halfmask.data.store import let_go
from halfmask.data.tables import Table
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import keyed_hash
from halfmask.privacy.sampling import PublicSampler
from halfmask.training.optimise import Optimiser
from halfmask.training.setup import Setup

_AT_ONCE = 1024
# Masks can be large, and do not change while a run goes on.
_DIGESTS: WeakKeyDictionary[Table, bytes] = WeakKeyDictionary()


@dataclass
class Standing:
    """Where a run stands.

    Attributes:
        begun: whether the public steps that come first have been taken.
        step: steps taken.
        paid: steps paid for.
    """

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    begun: bool = False
    step: int = 0
    paid: int = 0


def state_of(
    standing: Standing,
    setup: Setup,
    optimiser: Optimiser,
    public_batches: int,
    clip_norms: Sequence[float],
    samplers: Mapping[str, PublicSampler],
) -> dict[str, Any]:
    """Weights, optimiser, public samplers and counters. Nothing here knows who was in a private batch."""
    return {
        "run": standing.run,
        "behind": list(setup.behind),
        "plan": plan_facts(setup),
        "begun": standing.begun,
        "step": standing.step,
        "model": setup.model.state_dict(),
        "optimiser": optimiser.state(),
        "public_batches": public_batches,
        "clip_norms": list(clip_norms),
        "samplers": {name: sampler.state() for name, sampler in samplers.items()},
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
    for ids in (private.ids, private.unit_ids(setup.config.unit)):
        digest.update(np.ascontiguousarray(ids).tobytes())
    for start in range(0, len(private), _AT_ONCE):
        for rows in private.targets.rows(np.arange(start, min(start + _AT_ONCE, len(private)))).values():
            digest.update(rows.tobytes())
    if setup.method.view:
        digest.update(_borders(private.truth, setup.view.reads))
    return keyed_hash(b"annotations" + digest.digest()).hex()


def _borders(truth: Table, reads: Sequence[str]) -> bytes:
    """What a view goes by besides the record itself, such as a mask: another one would publish what this one keeps back."""
    names = [name for name in truth.shapes() if name in reads]
    if names and truth not in _DIGESTS:
        digest = hashlib.sha256()
        for start in range(0, len(truth), _AT_ONCE):
            rows = truth.rows(np.arange(start, min(start + _AT_ONCE, len(truth))))
            for name in names:
                digest.update(rows[name].tobytes())
            let_go(truth)
        _DIGESTS[truth] = digest.digest()
    return _DIGESTS[truth] if names else b""


def restore(
    state: dict[str, Any],
    path: Path,
    standing: Standing,
    setup: Setup,
    optimiser: Optimiser,
    samplers: Mapping[str, PublicSampler],
) -> None:
    """Take a run up where a checkpoint left it; refuses to go on with other data, other noise, or a ledger that knows of less."""
    standing.run, standing.begun, standing.step = state["run"], state["begun"], state["step"]
    standing.paid = setup.group.from_root(lambda: _paid(state, path, setup))
    setup.model.load_state_dict(state["model"])
    optimiser.restore(state["optimiser"])
    for name, sampler in samplers.items():
        sampler.restore(state["samplers"][name])


def _paid(state: dict[str, Any], path: Path, setup: Setup) -> int:
    """How many steps of the run are paid for, by the ledger of the people it began with."""
    changed = sorted(name for name, value in plan_facts(setup).items() if state["plan"].get(name) != value)
    if changed:
        raise HalfmaskError(
            f"{path} was started with another {', '.join(changed)}: a run goes on with the data and the noise it began "
            "with. Put them (and $HALFMASK_HOME) back as they were, or start a new run"
        )
    taken = int(state["step"])
    paid = sum(spend.steps for spend in setup.account.ledger.spends() if spend.run == state["run"])
    if paid < taken and setup.method.private != "unread" and not setup.config.rehearsal:
        raise HalfmaskError(
            f"the run has taken {taken} steps and the ledger here knows of {paid}: restore $HALFMASK_HOME as it was, or start anew"
        )
    return max(paid, taken)
