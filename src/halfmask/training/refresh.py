"""What a run takes from public people as it goes: the subspace, its dimension, the clip norm, and how sure the model should be.

Nothing here reads a private image. Everything is a function of public data and of weights that were released before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from halfmask.errors import HalfmaskError
from halfmask.gradients.layered import LayeredSubspace
from halfmask.gradients.subspace import Subspace, best_dimension
from halfmask.tasks.pose import best_sharpness, pose_loss

if TYPE_CHECKING:
    from halfmask.training.loop import Trainer


def refresh(trainer: Trainer) -> None:
    """Recompute the subspace from public records, and what the clip norm follows: public data only."""
    setup, config = trainer.setup, trainer.setup.config
    calibrate(trainer)
    follows = config.private.follow > 0 and setup.method.private == "noised"
    if setup.method.projected:
        trainer.subspace = _find_subspace(trainer)
    if follows:
        follow_public_norms(trainer, config.private.follow)
    if trainer.subspace is not None:
        if not config.subspace.dim:
            _choose_dimension(trainer)
            if follows and config.subspace.project_first:
                follow_public_norms(trainer, config.private.follow)
        trainer.in_subspace.rebase(trainer.subspace)
        trainer.folder.log("subspace", step=trainer.step, **trainer.subspace.diagnostics())


def calibrate(trainer: Trainer) -> None:
    """How sure the private loss takes the model to be: from the watched, who are public, and weights already released."""
    watched = trainer.setup.watched
    if trainer.setup.config.private.calibrate and watched is not None:
        trainer.sharpness = best_sharpness(trainer.setup.model, watched.batch(np.arange(len(watched)), "image", trainer.setup.device))


def _find_subspace(trainer: Trainer) -> Subspace | LayeredSubspace:
    """From S_pub, from views of private records (public too, and drawn independently of the private coins), or from both."""
    setup, wanted = trainer.setup, trainer.setup.config.subspace
    parts = [] if setup.basis is None or not wanted.samples else [trainer.public_units(setup.basis)]
    if wanted.views:
        some = trainer.basis_sampler.draw()
        views = setup.private.batch(some, "view", setup.device) | {"weight": torch.ones(len(some), device=setup.device)}
        if setup.config.private.calibrate:
            views["sharpness"] = torch.full_like(views["weight"], trainer.sharpness)
        parts.append((views, some))
    records = {name: torch.cat([part[name] for part, _ in parts]) for name in parts[0][0]}
    # Numbered apart: people of different sets are different people.
    starts = np.cumsum([0] + [int(units.max()) + 1 for _, units in parts])
    units = torch.cat([part + int(start) for (_, part), start in zip(parts, starts, strict=False)])
    dimension = wanted.dim or wanted.most
    if wanted.kind == "layers":
        layered = trainer.engine.layered_subspace(pose_loss, records, dimension, setup.config.chunk, units)
        return layered.whitened() if wanted.whiten else layered
    return trainer.engine.subspace(pose_loss, records, dimension, setup.config.chunk, unit_index=units)


def _choose_dimension(trainer: Trainer) -> None:
    """As many coordinates as held-out public people say are worth their noise."""
    assert trainer.subspace is not None and trainer.setup.watched is not None
    batch, units = trainer.public_units(trainer.setup.watched)
    each = trainer.engine.coordinates(pose_loss, batch, trainer.subspace, units, trainer.setup.config.chunk)
    scale = (trainer.mechanism.clip_norm / each.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
    trainer.subspace = trainer.subspace.first(best_dimension(each * scale, trainer.mechanism.noise_in_mean))


def follow_public_norms(trainer: Trainer, quantile: float) -> None:
    """Set C by the norms of public people, preferably such as did not make the subspace: on those it fits too well.

    σ is in units of C, and C is a function of public data and of weights already released, so ε is what it was.
    """
    people = trainer.setup.watched or trainer.setup.basis
    if people is None:
        raise HalfmaskError(
            "private.follow needs public people whose gradients to measure: add records with split 'public', or set it to 0"
        )
    norms = trainer.clipped(*trainer.public_units(people)).norms
    norms = norms[torch.isfinite(norms) & (norms > 0)]
    if len(norms):
        trainer.mechanism = replace(trainer.mechanism, clip_norm=float(norms.quantile(quantile)))
        trainer.clip_norms.append(trainer.mechanism.clip_norm)
    trainer.folder.log("clip", step=trainer.step, clip_norm=trainer.mechanism.clip_norm)
