"""Records with another's targets, which an audit plants among the private ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halfmask.data.records import Records
from halfmask.errors import HalfmaskError


def with_targets_of_the_next(strangers: Records, members: Records, chosen: np.ndarray, task: str) -> Records:
    """The chosen strangers, each with the targets of the next, as units of their own after all members.

    Where the next has the same targets, as classes often are, a planted record is an ordinary one: it leaves less behind, and what an
    audit proves by it stays true.
    """
    if not len(strangers.targets):
        raise HalfmaskError(f"--canaries plants records with another's targets: those of the task '{task}' have none")
    kinds = [name for name in members.units if name in strangers.units]
    for name in kinds:
        if not np.issubdtype(np.asarray(members.units[name]).dtype, np.integer):
            raise HalfmaskError(f"--canaries numbers the planted after the {name}s of the members: give these whole numbers as ids")
    records, others = strangers.take(chosen), strangers.take(np.roll(chosen, -1))
    # Numbers above everyone's: whatever the unit is, a planted record shares it with nobody.
    own = np.arange(len(chosen))
    return replace(
        records,
        targets=others.targets,
        truth=others.truth,
        units={name: int(np.asarray(members.units[name]).max()) + 1 + own for name in kinds},
        key=f"{records.key}/mislabelled",
    )
