"""ψ of every record: computed once, on the record as it is, and kept in private storage."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np

from halfmask.data.records import Records
from halfmask.data.store import cached
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.views.base import Seen, View

_Kind = TypeVar("_Kind", bound=Records)


def with_view(records: _Kind, view: View) -> _Kind:
    """The records with what the view shows of each, and what it leaves where it divides them."""

    def build() -> dict[str, np.ndarray]:
        first = look(records, view, 0)
        arrays = {name: np.empty((len(records), *value.shape), value.dtype) for name, value in _named(first).items()}

        def fill(row: int) -> None:
            for name, value in _named(look(records, view, row)).items():
                arrays[name][row] = value

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for _ in pool.map(fill, range(len(records))):
                pass
        return arrays

    # Part of the key: views that an earlier layout stored under other names are not found again.
    found = cached("views", f"{records.key}/{view!r}/{_PUBLIC}{_REST}", build)
    public, rest = ({name[len(side) :]: array for name, array in found.items() if name.startswith(side)} for side in (_PUBLIC, _REST))
    return replace(records, public=Arrays(public), rest=Arrays(rest) if rest else None, view_key=repr(view))


_PUBLIC, _REST = "public_", "rest_"


def look(records: Records, view: View, row: int) -> Seen:
    """One record through a view, which is handed the fields that it declares and no others."""
    at = np.array([row])
    tables = [table for table in (records.private, records.targets, records.truth) if len(table)]
    known = {name: rows[0] for table in tables for name, rows in table.rows(at).items()}
    missing = [name for name in view.reads if name not in known]
    if missing:
        raise HalfmaskError(
            f"the view reads '{missing[0]}', and these records have {', '.join(known)}: choose another view, or a dataset that has it"
        )
    return view.of({name: known[name] for name in view.reads})


def _named(seen: Seen) -> dict[str, np.ndarray]:
    rest = {} if seen.rest is None else seen.rest
    return {f"{_PUBLIC}{name}": value for name, value in seen.public.items()} | {f"{_REST}{name}": value for name, value in rest.items()}
