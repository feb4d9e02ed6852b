"""What a run takes from public people as it goes: the subspace, its dimension, the clip norm, and how sure the model should be.

Nothing here reads a private record. Everything is a function of public data and of weights that were released before, and what comes out is
a new private half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from halfmask.data.records import VIEW, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.subspace import Subspace, best_dimension
from halfmask.privacy.sampling import PublicSampler
from halfmask.training.private import PrivateHalf
from halfmask.training.setup import Setup

Log = Callable[..., None]


def refreshed(half: PrivateHalf, setup: Setup, views: PublicSampler, step: int, log: Log) -> PrivateHalf:
    """With a subspace computed anew from public records, and the clip norm that follows them.

    Args:
        views: draws the private people whose views, which are public, help to span the subspace.
        log: writes a line into the run's log.
    """
    config = setup.config
    half = calibrated(half, setup)
    follows = config.private.follow > 0 and setup.method.private == "noised"
    if setup.method.projected:
        found = setup.group.from_root(lambda: _find_subspace(half, setup, views, step))
        half = replace(half, subspace=found)
    if follows:
        half = following(half, setup, config.private.follow, step, log)
    if half.subspace is not None:
        if not config.subspace.dim:
            half = replace(half, subspace=_cut(half, setup, step))
            if follows and config.subspace.project_first:
                half = following(half, setup, config.private.follow, step, log)
        assert half.subspace is not None
        half.coordinates.rebase(half.subspace)
        log("subspace", step=step, **half.subspace.diagnostics())
    return half


def calibrated(half: PrivateHalf, setup: Setup) -> PrivateHalf:
    """How sure the private loss takes the model to be: from the watched, who are public, and weights already released."""
    watched = setup.watched
    if not setup.config.private.calibrate or watched is None:
        return half
    # On what the private half is shown of people: of a part of a record a model can be less sure than of the whole.
    sharpness = setup.group.from_root(lambda: setup.task.calibrate(setup.model, watched.batches(watched.shown, setup.device)))
    return replace(half, sharpness=sharpness)


def following(half: PrivateHalf, setup: Setup, quantile: float, step: int, log: Log) -> PrivateHalf:
    """Set C by the norms of public people, preferably such as did not make the subspace: on those it fits too well.

    σ is in units of C, and C is a function of public data and of weights already released, so ε is what it was.
    """
    people = setup.watched or setup.basis
    if people is None:
        raise HalfmaskError(
            "private.follow needs public people whose gradients to measure: add records with split 'public', or set it to 0"
        )
    clip_norm = setup.group.from_root(lambda: _quantile(half, people, quantile, step))
    if clip_norm is not None:
        half = replace(half, mechanism=replace(half.mechanism, clip_norm=clip_norm), clip_norms=(*half.clip_norms, clip_norm))
    log("clip", step=step, clip_norm=half.mechanism.clip_norm)
    return half


def _quantile(half: PrivateHalf, people: Records, quantile: float, step: int) -> float | None:
    norms = half.summed(half.public_pieces(people, step)).norms
    norms = norms[torch.isfinite(norms) & (norms > 0)]
    return float(norms.quantile(quantile)) if len(norms) else None


def _find_subspace(half: PrivateHalf, setup: Setup, views: PublicSampler, step: int) -> Subspace | LayeredSubspace:
    """From S_pub, from views of private records (public too, and drawn independently of the private coins), or from both."""
    wanted = setup.config.subspace
    parts = [] if setup.basis is None or not wanted.samples else [half.public_units(setup.basis, step)]
    if wanted.views:
        some = views.draw()
        shown = setup.private.batch(some, VIEW, setup.device)
        parts.append((half.weighted(shown, torch.ones(len(some), device=setup.device)), some))
    records = {name: torch.cat([part[name] for part, _ in parts]) for name in parts[0][0]}
    # Numbered apart: people of different sets are different people.
    starts = np.cumsum([0] + [int(units.max()) + 1 for _, units in parts])
    units = torch.cat([part + int(start) for (_, part), start in zip(parts, starts, strict=False)])
    dimension = wanted.dim or wanted.most
    if wanted.kind == "layers":
        layered = half.engine.layered_subspace(half.loss, records, dimension, setup.config.chunk, units)
        return layered.whitened() if wanted.whiten else layered
    return half.engine.subspace(half.loss, records, dimension, setup.config.chunk, unit_index=units)


def _cut(half: PrivateHalf, setup: Setup, step: int) -> Subspace | LayeredSubspace:
    """As many coordinates as held-out public people say are worth their noise."""
    subspace, watched = half.subspace, setup.watched
    assert subspace is not None and watched is not None

    def worth() -> int:
        pieces = half.public_pieces(watched, step)
        each = torch.cat([half.engine.coordinates(half.loss, batch, subspace, units, setup.config.chunk) for batch, units in pieces])
        scale = (half.mechanism.clip_norm / each.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
        return best_dimension(each * scale, half.mechanism.noise_in_mean)

    return subspace.first(setup.group.from_root(worth))
