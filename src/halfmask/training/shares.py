"""Private images of which each process of a run opens its share (`--shard-private`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets, columns_of
from halfmask.data.sharding import Shard, assembled, told
from halfmask.data.tables import Share
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import Method
from halfmask.tasks.base import Task
from halfmask.training.config import RunConfig
from halfmask.training.distributed import Group
from halfmask.training.progress import Progress
from halfmask.views import make_view


def loaded_in_shares(config: RunConfig, method: Method, task: Task, given: Datasets | None, progress: Progress, group: Group) -> Datasets:
    """The dataset, of which each process opens the private images of its share; what is small, and all fingerprints, everybody has."""
    if given is not None or not task.shards:
        raise HalfmaskError(f"private records of the task '{task.name}' cannot be opened in shares: leave --shard-private out")
    needed = (
        (config.rehearsal, "a rehearsal"),
        (method.projected and config.subspace.source == "private", "subspace.source=private"),
        (method.projected and config.subspace.views > 0, "subspace.views"),
    )
    for wanted, what in needed:
        if wanted:
            raise HalfmaskError(f"{what} needs private people of all processes in one of them: leave it out, or --shard-private")
    task.shard = Shard(group.rank, group.size, config.unit == "subject")
    local = task.load(progress.stage)
    private = assembled(local.private, group.rank, group.everybodys(told(local.private)))
    for rank, units in enumerate(group.everybodys(np.unique(private.unit_ids(config.unit)[private.owners == group.rank]))):
        if rank != group.rank and np.isin(units, private.unit_ids(config.unit)[private.owners == group.rank]).any():
            raise HalfmaskError(f"a {config.unit} is with two processes: it would be clipped twice. Leave --shard-private out")
    view = task.view() or make_view(config.view.name, config.view.options)
    if method.view and any(isinstance(columns_of(private.truth).get(name), Share) for name in view.reads):
        raise HalfmaskError(
            "masks of all private records are compared where a run goes on, and each process has its own: leave --shard-private out"
        )
    left_out = group.everybodys(local.left_out.get("private", {}))
    reasons = {reason: sum(one.get(reason, 0) for one in left_out) for one in left_out for reason in one}
    everywhere = {part: counts for part, counts in local.left_out.items() if part != "private"}
    return replace(
        local, private=private, fingerprints=fingerprints_of(private), left_out=everywhere | ({"private": reasons} if reasons else {})
    )
