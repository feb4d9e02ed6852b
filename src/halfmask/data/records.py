"""Records: the form in which every dataset of every task reaches training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from halfmask.data.keyed import ids_of_positions, uniforms
from halfmask.data.store import let_go
from halfmask.data.tables import Arrays, Column, Table
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.words import a_or_an

if TYPE_CHECKING:
    from typing_extensions import Self

# What of a record a batch shows: its private part, its public view, and what the view leaves of the private part.
PRIVATE, VIEW, REST = "private", "view", "rest"


@dataclass(frozen=True)
class Records:
    """Records with a private part, targets, and the units they belong to.

    Attributes:
        private: what is protected of each record, un-augmented.
        targets: what a loss compares with.
        units: by kind, the unit that each record belongs to.
        key: names this exact set of records in this exact order, for caches and fingerprints.
        own_unit: what a unit is called that is one record.
        shown_together: kinds of unit whose records show each other, as the people on one photograph do: where one of them becomes
            public, so do all.
        truth: what scoring asks for besides; no loss sees it.
        public: ψ of every record; present once a view was declared, and named by `view_key`.
        rest: what the view leaves of the private part, where it says so: then that is what the private half is shown.
        features: per source: the frozen lower part of a network applied to every record.
        copies: the same records, in the same order, each time after another fixed random change, for networks whose lower part is
            computed once: their `features` and targets, not their private part, show the change.
        prints: fingerprints of what each record was made from, of its annotation and of its subject.
        ids: 64 bits that name each record in public and stay when others leave: whatever is drawn at random for a record is drawn by
            its id (`halfmask.data.keyed`). Records made in memory, for a test, may do without and are named by their places.
        places: where their sources stand among all, of records of which this process has opened its share (`halfmask.data.sharding`).
        owners: the process that has opened each record, where each has opened its share; None where all is here.
    """

    private: Table
    targets: Table
    units: Mapping[str, np.ndarray]
    key: str
    own_unit: str = "record"
    shown_together: tuple[str, ...] = ()
    truth: Table = field(default_factory=lambda: Arrays({}))
    public: Table | None = None
    rest: Table | None = None
    view_key: str = ""
    features: Mapping[str, Column] = field(default_factory=dict)
    copies: tuple[Records, ...] = ()
    prints: Fingerprints | None = None
    ids: np.ndarray = None  # type: ignore[assignment]
    places: np.ndarray | None = None
    owners: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.ids is None:
            object.__setattr__(self, "ids", ids_of_positions(len(self)))
        if len(self.ids) != len(self):
            raise HalfmaskError(f"{len(self)} records have {len(self.ids)} ids: expected one for each. Choose records with 'take'")

    @classmethod
    def of_arrays(
        cls,
        private: Mapping[str, Any],
        targets: Mapping[str, Any] | None = None,
        units: Mapping[str, np.ndarray] | None = None,
        key: str | None = None,
    ) -> Records:
        """Records from arrays with a row for each of them."""
        table, compared = Arrays(private), Arrays(targets or {})
        names = [*private.values(), *compared.columns.values()]
        found = key or "arrays/" + hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in names)).hexdigest()[:24]
        return cls(table, compared, dict(units or {}), found)

    def __len__(self) -> int:
        return len(self.private)

    def batch(self, records: Tensor | np.ndarray, source: str = PRIVATE, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The records at these indices as tensors: their targets, and of the source its fields, or its features where they are known.

        Args:
            source: `private` for the private part, `view` for the public one, `rest` for what the view leaves.
        """
        index = np.asarray(records)
        batch = {name: torch.from_numpy(rows) for name, rows in self.targets.rows(index).items()}
        if source in self.features:
            batch["features"] = torch.from_numpy(np.ascontiguousarray(self.features[source][index])).float()
        else:
            batch |= {name: torch.from_numpy(rows) for name, rows in self.part(source).rows(index).items()}
        return {name: tensor.to(device) for name, tensor in batch.items()}

    def batches(self, source: str = PRIVATE, device: torch.device | str = "cpu", size: int = 64) -> Iterator[dict[str, Tensor]]:
        """All records, some at a time."""
        for start in range(0, len(self), size):
            yield self.batch(np.arange(start, min(start + size, len(self))), source, device)
            let_go(self.features[source] if source in self.features else self.part(source))

    def part(self, source: str) -> Table:
        """The table of a source."""
        found = {PRIVATE: self.private, VIEW: self.public, REST: self.rest}.get(source)
        if found is None:
            raise HalfmaskError(f"these records have no {source}: declare a public view with 'view' in the recipe")
        return found

    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The kind and the shape of everything that a batch of the private part holds, of one record."""
        return self.part(self.shown).shapes() | self.targets.shapes()

    @property
    def shown(self) -> str:
        """What the private half is shown: the private part, or what the view leaves of it."""
        return PRIVATE if self.rest is None else REST

    def take(self, records: np.ndarray) -> Self:
        """The records at these indices alone; pictures are not copied. Cached features do not come along."""
        records = np.asarray(records)
        return replace(
            self,
            private=self.private.take(records),
            targets=self.targets.take(records),
            truth=self.truth.take(records) if len(self.truth) else self.truth,
            units={name: ids[records] for name, ids in self.units.items()},
            public=None if self.public is None else self.public.take(records),
            rest=None if self.rest is None else self.rest.take(records),
            features={},
            copies=(),
            prints=None if self.prints is None else self.prints.take(records),
            ids=self.ids[records],
            places=None if self.places is None else self.places[records],
            owners=None if self.owners is None else self.owners[records],
            key=f"{self.key}/{_digest(records)}",
        )

    def joined(self, other: Self) -> Self:
        """These records and others as one set, to train on and to take losses of; what only scoring asks for is left behind."""
        # Imported here because fingerprints of records made in memory are kept in the store, which knows records.
        from halfmask.data.prints import fingerprints_of

        shared = [name for name in self.units if name in other.units]
        return replace(
            self,
            private=self.private.joined(other.private),
            targets=self.targets.joined(other.targets),
            truth=Arrays({}),
            units={name: np.concatenate([self.units[name], other.units[name]]) for name in shared},
            public=None,
            rest=None,
            view_key="",
            features={},
            copies=(),
            prints=Fingerprints.joined([fingerprints_of(self), fingerprints_of(other)]),
            ids=np.concatenate([self.ids, other.ids]),
            key=f"{self.key}+{other.key}",
        )

    def unit_ids(self, unit: str) -> np.ndarray:
        """The unit that each record belongs to."""
        if unit in self.units:
            return np.asarray(self.units[unit])
        if unit == self.own_unit:
            return np.arange(len(self))
        known = " or ".join(a_or_an(f"'{name}'") for name in self.unit_names())
        raise HalfmaskError(f"the unit '{unit}' needs {unit} ids and this dataset has none: add them, or protect {known}")

    def unit_names(self) -> list[str]:
        """The kinds of unit that these records know, the finest first."""
        return [self.own_unit, *(name for name in self.units if name != self.own_unit)]

    def without_view(self) -> Self:
        """The records as they were before a view was declared."""
        return replace(self, public=None, rest=None, view_key="", features={}, copies=())


@dataclass(frozen=True)
class Datasets:
    """The three parts of a dataset: people to protect, people who are public, and the people a model is judged on.

    Attributes:
        fingerprints: of all private people, whoever of them leaves later: they name the dataset's account.
        left_out: by part, how many annotated people are no record, for each reason.
        recurring: how many private records were left out because they recur in another part.
        basis, tuning: public people for the subspace, and to watch, where the recipe sets some apart.
    """

    private: Records
    public: Records | None = None
    test: Records | None = None
    name: str = "records"
    fingerprints: Fingerprints = None  # type: ignore[assignment]
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)
    basis: Records | None = None
    tuning: Records | None = None
    recurring: int = 0

    def __post_init__(self) -> None:
        if self.fingerprints is None:
            from halfmask.data.prints import fingerprints_of

            object.__setattr__(self, "fingerprints", fingerprints_of(self.private))

    def remarks(self) -> list[str]:
        """Who is no record and why, in numbers: the names of private files stay where they are."""
        lines = []
        for part, reasons in self.left_out.items():
            counts = ", ".join(f"{count:,} × {reason}" for reason, count in reasons.items())
            lines.append(f"{part}: left out {counts} ('halfmask data inspect' tells more)")
        return lines


class Units:
    """The records of each protected unit, at most `records_per_unit` of them.

    Which records of a large unit are kept is decided by numbers that a public seed draws for their ids: never by looking at them, nor at
    any other unit. Somebody who leaves takes nothing but their own records along.

    Args:
        ids: the records' stable public ids; by their places if not given.
        owners: the process that has opened each record, where each has opened its share: the same for all records of a unit.
    """

    def __init__(
        self,
        unit_ids: np.ndarray,
        records_per_unit: int,
        seed: int = 0,
        gradient: str = "mean",
        ids: np.ndarray | None = None,
        owners: np.ndarray | None = None,
    ):
        self.gradient = gradient
        if records_per_unit < 1:
            raise HalfmaskError(f"records_per_unit is {records_per_unit}: expected at least 1")
        drawn = uniforms(seed, "records of a unit", 0, ids_of_positions(len(unit_ids)) if ids is None else ids)[:, 0]
        order = np.lexsort((drawn, unit_ids))
        sorted_ids = unit_ids[order]
        starts = np.flatnonzero(np.r_[True, sorted_ids[1:] != sorted_ids[:-1]]) if len(order) else np.zeros(0, int)
        self.members = [np.sort(group[:records_per_unit]) for group in np.split(order, starts[1:])] if len(order) else []
        # Of each unit; None where one process has opened all of them.
        self.owners = None if owners is None else np.array([owners[group[0]] for group in self.members])

    def __len__(self) -> int:
        return len(self.members)

    def records_of(self, units: Tensor) -> tuple[np.ndarray, Tensor, Tensor]:
        """Records of the chosen units, the unit of each, and the weight of each in its unit's gradient (a mean or a sum)."""
        groups = [self.members[unit] for unit in units.tolist()]
        if not groups:
            return np.zeros(0, dtype=np.int64), torch.zeros(0, dtype=torch.long), torch.zeros(0)
        sizes = torch.tensor([len(group) for group in groups])
        share = 1.0 / sizes if self.gradient == "mean" else torch.ones(len(sizes))
        return np.concatenate(groups), torch.repeat_interleave(units, sizes), torch.repeat_interleave(share, sizes)


def columns_of(table: Table) -> Mapping[str, Any]:
    """The columns of a table that has any."""
    return table.columns if isinstance(table, Arrays) else {}


def _digest(records: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(records, dtype=np.int64).tobytes()).hexdigest()[:12]
