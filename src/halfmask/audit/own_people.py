"""People of one's own dataset for the attack on views: those who can be named at all, because there are several pictures of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halfmask.data.datasets import DataConfig, load_datasets
from halfmask.data.pose_records import PoseRecords
from halfmask.data.skeleton import MPII
from halfmask.errors import HalfmaskError

SIZE = (256, 192)
# Two pictures of each are named, and at least one is learnt from.
FEWEST_PICTURES = 3


def own_people(name: str, subjects: int, crops: int, report: Callable[[str, int, int], None] | None = None) -> PoseRecords:
    """The private people of a dataset that an attacker could try to name.

    Args:
        name: a dataset folder, or a name below `$HALFMASK_DATA`.
        subjects: how many of those with the most pictures are named.
        crops: how many pictures at most, those of nobody who is named among them: a view is undone on strangers.
    """
    people = load_datasets(DataConfig(name=name, skeleton=MPII.name), SIZE, report).private
    assert isinstance(people, PoseRecords)
    if people.subjects is None:
        raise HalfmaskError(
            "the dataset does not say who is who, and naming people is the attack: give every private record a 'subject' (docs/schema.md)"
        )
    ids, counts = np.unique(people.subjects, return_counts=True)
    known = ids[counts >= FEWEST_PICTURES]
    if len(known) < 2:
        raise HalfmaskError(
            f"{len(known)} of {len(ids)} private subjects have {FEWEST_PICTURES} pictures or more: expected 2 at least, to tell apart"
        )
    order = np.argsort(-counts, kind="stable")
    named = [subject for subject in ids[order] if subject in set(known.tolist())][:subjects]
    mine = np.flatnonzero(np.isin(people.subjects, named))
    others = np.flatnonzero(~np.isin(people.subjects, named))
    rows = np.sort(np.concatenate([mine, others[: max(0, crops - len(mine))]]))
    return people.take(rows)
