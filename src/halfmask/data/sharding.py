"""Private records of which each process of a run opens a share.

What is annotated is known to all before any image is opened. The sources of records (photographs, or people with all of theirs) are divided
by name, so that a unit is never in two shares, and each process reads its own as if there were no others. Then everybody tells the small
things (annotations, ids, fingerprints), and all have the same records in the same order: those of others without what is large. Reading
that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from halfmask.data.keyed import record_id
from halfmask.data.records import Records
from halfmask.data.tables import Arrays, Share, Table
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints

_Kind = TypeVar("_Kind", bound=Records)
# Rows of a field from this size on stay with whoever opened them.
_LARGE = 1024


@dataclass(frozen=True)
class Shard:
    """The share of one process.

    Attributes:
        by_subject: whether everything of a person goes to one process, because the person is what is protected.
    """

    rank: int
    size: int
    by_subject: bool = False

    def mine(self, images: Sequence[str], subjects: Sequence[str | None]) -> np.ndarray:
        """The places of the sources that this process opens, by the image or the person that each shows."""
        if self.by_subject and not all(subjects):
            raise HalfmaskError("--shard-private divides a dataset by subject here, and some records have no subject: add their ids")
        names = subjects if self.by_subject else images
        # In turn, so that all have as much to do; whose turn it is decides where somebody is worked on, and nothing else.
        turns = {name: turn for turn, name in enumerate(sorted(set(names), key=lambda name: record_id("share", name)))}
        if len(turns) < self.size:
            raise HalfmaskError(f"{self.size} processes are to open {len(turns)} private units, one at least each: start fewer")
        return np.array([place for place, name in enumerate(names) if turns[name] % self.size == self.rank], np.int64)


def placed(records: _Kind, sources: Sequence[int], of_records: np.ndarray, mine: np.ndarray) -> _Kind:
    """Records that remember where their sources stand among everybody's.

    Args:
        sources: what names each source that was opened here, and `of_records` the same of each record's.
        mine: the places of those sources among all.
    """
    known = dict(zip(sources, mine.tolist(), strict=True))
    return replace(records, places=np.array([known[int(one)] for one in of_records], np.int64))


def told(local: Records) -> dict[str, Any]:
    """What a process tells the others of the records that it has opened: all that is small, and fingerprints."""
    if local.places is None or local.prints is None:
        raise HalfmaskError("this dataset cannot be opened in shares: leave --shard-private out")
    return {
        "places": local.places,
        "ids": local.ids,
        "units": dict(local.units),
        "targets": _small(local.targets),
        "truth": _small(local.truth),
        "prints": local.prints.arrays(),
    }


def assembled(local: _Kind, rank: int, everybody: Sequence[Mapping[str, Any]]) -> _Kind:
    """All records, in the order in which one process would have them; large fields are there for this process's own."""
    places = np.concatenate([one["places"] for one in everybody])
    order = np.argsort(places, kind="stable")
    owners = np.repeat(np.arange(len(everybody)), [len(one["places"]) for one in everybody])[order]
    here = np.flatnonzero(owners == rank)
    every = lambda *path: np.concatenate([_at(one, path) for one in everybody])[order]  # noqa: E731

    def table(mine: Table, name: str) -> Arrays:
        assert isinstance(mine, Arrays)
        small = everybody[rank][name]
        return Arrays(
            {field: every(name, field) if field in small else Share(mine.columns[field], here, len(order)) for field in mine.columns}
        )

    assert isinstance(local.private, Arrays)
    return replace(
        local,
        private=Arrays({field: Share(column, here, len(order)) for field, column in local.private.columns.items()}),
        targets=table(local.targets, "targets"),
        truth=table(local.truth, "truth"),
        # One process may know subjects where another has somebody without.
        units={unit: every("units", unit) for unit in local.units if all(unit in one["units"] for one in everybody)},
        prints=Fingerprints.from_arrays({name: every("prints", name) for name in everybody[rank]["prints"]}),
        ids=every("ids"),
        places=None,
        owners=owners,
        key=f"shares/{local.key}",
    )


def by_share(records: _Kind, rank: int, make: Callable[[_Kind], _Kind]) -> _Kind:
    """Views or features of records: each process makes those of its own."""
    if records.owners is None:
        return make(records)
    here = np.flatnonzero(records.owners == rank)
    made = make(records.take(here))
    return replace(_placed(made, records, here), copies=tuple(_placed(copy, records, here, copy.targets) for copy in made.copies))


def _placed(made: Records, records: _Kind, here: np.ndarray, targets: Table | None = None) -> _Kind:
    def spread(table: Table | None) -> Arrays | None:
        if table is None:
            return None
        if not isinstance(table, Arrays):
            raise HalfmaskError("this view cannot be taken in shares: leave --shard-private out")
        return Arrays({name: Share(column, here, len(records)) for name, column in table.columns.items()})

    return replace(
        records,
        public=spread(made.public),
        rest=spread(made.rest),
        targets=spread(targets) or records.targets,
        view_key=made.view_key,
        features={source: Share(column, here, len(records)) for source, column in made.features.items()},
        copies=(),
    )


def _small(table: Table) -> dict[str, np.ndarray]:
    if not isinstance(table, Arrays):
        raise HalfmaskError("this dataset cannot be opened in shares: leave --shard-private out")
    rows = {
        name: int(np.prod(column.shape[1:], dtype=np.int64)) * np.dtype(column.dtype).itemsize for name, column in table.columns.items()
    }
    return {name: np.asarray(column[:]) for name, column in table.columns.items() if rows[name] < _LARGE}


def _at(one: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = one
    for name in path:
        found = found[name]
    return found
