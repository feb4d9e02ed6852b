"""Tables: named fields of equal length, wherever they lie.

A dataset may be larger than memory, so nothing here holds more of it than is asked for. A field may be an array, a file that is mapped, or
whatever a dataset of the user's computes; choosing some rows copies none of the large ones, and joining two tables copies nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from halfmask.errors import HalfmaskError

# Rows of a field from this size on are not copied when some of them are chosen: pictures and features are above it, labels below.
_LARGE = 1024


class Column(Protocol):
    """What a field is: an array in memory, a mapped file, or a choice of another's rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def dtype(self) -> np.dtype: ...  # noqa: D102
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...


class Rows:
    """Some rows of a column, none of them copied before it is asked for."""

    def __init__(self, column: Column, rows: np.ndarray):
        self.column: Column = column.column if isinstance(column, Rows) else column
        self.rows: np.ndarray = column.rows[np.asarray(rows)] if isinstance(column, Rows) else np.asarray(rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array's."""
        return (len(self.rows), *self.column.shape[1:])

    @property
    def ndim(self) -> int:
        """As an array's."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """As an array's."""
        return self.column.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return (self.column[row] for row in self.rows)

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        chosen = self.column[self.rows[first]]
        if not rest:
            return chosen
        within = rest if np.ndim(self.rows[first]) == 0 else (slice(None), *rest)
        return chosen[within]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.column[self.rows], dtype)


class JoinedColumn:
    """The rows of several columns, one after the other."""

    def __init__(self, columns: Sequence[Column]):
        self.columns = list(columns)
        self.starts = np.cumsum([0, *(len(column) for column in columns)])
        self.shape = (int(self.starts[-1]), *columns[0].shape[1:])
        self.dtype = np.result_type(*(column.dtype for column in columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (row for column in self.columns for row in column)  # type: ignore[attr-defined]

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        rows = np.arange(len(self))[first]
        flat = np.atleast_1d(rows)
        found = np.empty((len(flat), *self.shape[1:]), self.dtype)
        which = np.searchsorted(self.starts, flat, side="right") - 1
        for number, column in enumerate(self.columns):
            mine = which == number
            if mine.any():
                found[mine] = column[flat[mine] - self.starts[number]]
        found = found[0] if np.ndim(rows) == 0 else found
        if not rest:
            return found
        within = rest if np.ndim(rows) == 0 else (slice(None), *rest)
        return found[within]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


class Share:
    """A column of which this process has some rows, and others of the same run the rest."""

    def __init__(self, column: Column, rows: np.ndarray, count: int):
        self.column = column
        self.shape: tuple[int, ...] = (count, *column.shape[1:])
        self.dtype = column.dtype
        self.places = np.full(count, -1, np.int64)
        self.places[rows] = np.arange(len(rows))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        places = self.places[first]
        if np.min(places, initial=0) < 0:
            raise HalfmaskError("a private record that another process of the run has opened was asked for in this one")
        chosen = self.column[places]
        if not rest:
            return chosen
        return chosen[rest if np.ndim(places) == 0 else (slice(None), *rest)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def chosen(column: Column, rows: np.ndarray) -> Any:
    """Some rows of a column: a copy where rows are small, and none where they are large."""
    size = int(np.prod(column.shape[1:], dtype=np.int64)) * np.dtype(column.dtype).itemsize
    return Rows(column, rows) if size >= _LARGE else np.asarray(column[rows])


class Table(ABC):
    """Named fields of as many records."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """These records' fields, in memory."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The kind and the shape of each field of one record."""

    @abstractmethod
    def take(self, index: np.ndarray) -> Table:
        """These records alone; nothing large is copied."""

    def joined(self, other: Table) -> Table:
        """These records, and after them others with the same fields."""
        return Joined([self, other])


class Arrays(Table):
    """Fields that are columns."""

    def __init__(self, columns: Mapping[str, Column]):
        self.columns = dict(columns)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise HalfmaskError(f"fields of different lengths: {lengths}. Expected one row of each for every record")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:  # noqa: D102
        return {name: np.ascontiguousarray(column[index]) for name, column in self.columns.items()}

    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:  # noqa: D102
        return {name: (np.dtype(column.dtype), tuple(column.shape[1:])) for name, column in self.columns.items()}

    def take(self, index: np.ndarray) -> Arrays:  # noqa: D102
        return Arrays({name: chosen(column, index) for name, column in self.columns.items()})

    def changed(self, **columns: Column | None) -> Arrays:
        """With other columns under some names; None takes a field out."""
        return Arrays({name: column for name, column in (self.columns | columns).items() if column is not None})

    def joined(self, other: Table) -> Table:  # noqa: D102
        if not isinstance(other, Arrays):
            return Joined([self, other])
        shared = [name for name in self.columns if name in other.columns]
        return Arrays({name: _one_after_the_other(self.columns[name], other.columns[name]) for name in shared})


class FromDataset(Table):
    """Fields of the items of a map-style dataset, fetched when they are asked for.

    Args:
        fields: takes an item apart into named arrays.
        rows: which of the dataset's items these are; all, if not given.
        check: told the place of each item that is fetched and the item; refuses one that is not what it was.
    """

    def __init__(
        self,
        dataset: Any,
        fields: Callable[[Any], dict[str, np.ndarray]],
        rows: np.ndarray | None = None,
        check: Callable[[int, Any], None] = lambda place, item: None,
    ):
        self.dataset, self.fields, self.check = dataset, fields, check
        self.index = np.arange(len(dataset)) if rows is None else np.asarray(rows)

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:  # noqa: D102
        # Copied one by one: a dataset may fill the same memory anew for every item.
        items = [{name: np.array(value) for name, value in self.fields(self.item(row)).items()} for row in np.asarray(index)]
        if not items:
            return {name: np.zeros((0, *shape), kind) for name, (kind, shape) in self.shapes().items()}
        return {name: np.stack([item[name] for item in items]) for name in items[0]}

    def item(self, row: int) -> Any:
        """An item as the dataset gives it."""
        item = self.dataset[int(self.index[row])]
        self.check(int(self.index[row]), item)
        return item

    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:  # noqa: D102
        item = self.fields(self.dataset[int(self.index[0])])
        return {name: (value.dtype, value.shape) for name, value in item.items()}

    def take(self, index: np.ndarray) -> FromDataset:  # noqa: D102
        return FromDataset(self.dataset, self.fields, self.index[np.asarray(index)], self.check)


class Joined(Table):
    """The records of several tables, one after the other; the fields that all of them have."""

    def __init__(self, tables: Sequence[Table], rows: np.ndarray | None = None):
        self.tables = list(tables)
        self.starts = np.cumsum([0, *(len(table) for table in tables)])
        self.index = np.arange(self.starts[-1]) if rows is None else np.asarray(rows)

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:  # noqa: D102
        wanted = self.index[np.asarray(index)]
        which = np.searchsorted(self.starts, wanted, side="right") - 1
        places = [np.flatnonzero(which == number) for number in range(len(self.tables))]
        parts = [table.rows(wanted[place] - start) for table, place, start in zip(self.tables, places, self.starts, strict=False)]
        back = np.argsort(np.concatenate(places), kind="stable")
        return {name: np.concatenate([part[name] for part in parts])[back] for name in self.shapes()}

    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:  # noqa: D102
        first, *others = (table.shapes() for table in self.tables)
        return {name: shape for name, shape in first.items() if all(name in other for other in others)}

    def take(self, index: np.ndarray) -> Joined:  # noqa: D102
        return Joined(self.tables, self.index[np.asarray(index)])


class Beside(Table):
    """The fields of several tables with as many records; where two have one of a name, the last one's."""

    def __init__(self, tables: Sequence[Table], names: Sequence[Sequence[str] | None]):
        lengths = {len(table) for table in tables}
        if len(lengths) > 1:
            raise HalfmaskError(f"tables of {sorted(lengths)} records cannot stand side by side: expected one row of each for every record")
        self.tables, self.names = list(tables), [None if some is None else tuple(some) for some in names]

    def __len__(self) -> int:
        return len(self.tables[0])

    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:  # noqa: D102
        return self._of(lambda table: table.rows(index))

    def shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:  # noqa: D102
        return self._of(lambda table: table.shapes())

    def take(self, index: np.ndarray) -> Beside:  # noqa: D102
        return Beside([table.take(index) for table in self.tables], self.names)

    def _of(self, look: Callable[[Table], dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for table, names in zip(self.tables, self.names, strict=True):
            found |= {name: value for name, value in look(table).items() if names is None or name in names}
        return found


def _one_after_the_other(first: Column, second: Column) -> Any:
    if isinstance(chosen(first, np.zeros(0, np.int64)), Rows):
        return JoinedColumn([first, second])
    return np.concatenate([np.asarray(first), np.asarray(second)])
