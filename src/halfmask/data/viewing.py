"""ψ of every record: computed once, on the record as it is, and kept in private storage."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from halfmask.data.records import Records
from halfmask.data.store import Draft, cached_by_row, let_go, rows_to_let_go_after
from halfmask.data.tables import Arrays, Beside, FromDataset, Table
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError
from halfmask.views.base import Seen, View

_Kind = TypeVar("_Kind", bound=Records)


def with_view(records: _Kind, view: View) -> _Kind:
    """The records with what the view shows of each, and what it leaves where it divides them."""

    def write(draft: Draft) -> None:
        shapes = {name: (value.dtype, value.shape) for name, value in _named(look(records, view, 0)).items()}
        fields = draft.fields(shapes, len(records))

        def fill(row: int) -> None:
            for name, value in _named(look(records, view, row)).items():
                fields[name][row] = value

        read = (records.private, records.targets, records.truth)
        every = rows_to_let_go_after(*read)
        # A dataset of the user's own may not bear several readers at once.
        filled = map(fill, range(len(records))) if isinstance(records.private, FromDataset) else in_order(fill, range(len(records)))
        for row, _ in enumerate(filled):
            if row % every == every - 1:
                let_go(*read)
        let_go(*read)

    # Part of the key: views that an earlier layout stored under other names are not found again.
    found = cached_by_row("views", f"{records.key}/{view!r}/{_PUBLIC}{_REST}", write)
    public, rest = ({name[len(side) :]: array for name, array in found.items() if name.startswith(side)} for side in (_PUBLIC, _REST))
    left: Table | None = Arrays(rest) if rest else None
    if left is not None and view.keeps:
        left = Beside([records.private, left], [view.keeps, None])
    return replace(records, public=Arrays(public), rest=left, view_key=repr(view))


_PUBLIC, _REST = "public_", "rest_"


def look(records: Records, view: View, row: int) -> Seen:
    """One record through a view, which is handed the fields that it declares and no others."""
    if isinstance(records.private, FromDataset) and hasattr(view, "of_item"):
        return view.of_item(records.private.item(row), int(records.private.index[row]))
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
