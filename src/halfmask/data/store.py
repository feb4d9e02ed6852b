"""Arrays that are computed once and kept on disk, in private storage.

What is kept may be larger than memory, so nothing here holds it whole. It is written row by row, each to its place in a file, by a write
and not through a mapping: a full disk is then an error that can be told, where a mapping would end the process. It is read through a
mapping that nobody can write to, and `let_go` gives back what reading it took. Files are readable by their owner alone, because they hold
private images or features of them.

    def write(draft):
        images = draft.fields({"images": (np.uint8, (3, 256, 192))}, count=150_000)["images"]
        for row in range(150_000):
            images[row] = ...

    images = cached_by_row("records", "name of exactly these images", write)["images"]
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.storage import DRAFT
from halfmask.data.tables import Arrays, Beside, Column, Joined, JoinedColumn, Rows, Share, Table
from halfmask.errors import HalfmaskError
from halfmask.privacy.home import private_folder
from halfmask.writing import writing

# The kind of a field's numbers, and the shape of one row of it.
Shape = tuple[Any, tuple[int, ...]]

# Bytes that may be read through a mapping before they are let go, and written before they are on disk: what a pass over a store holds.
LET_GO_AFTER = 64 << 20
# Room for the header of a file, whatever it comes to say: a page, so that rows of whole pages begin with one.
_HEADER = 4096
_THEN = "start again ('halfmask cache clear' deletes what can be computed again)"


def cached(kind: str, key: str, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of `build`, which are small enough to be made whole, mapped from disk; built only if nothing is stored under `key`."""

    def write(draft: Draft) -> None:
        for name, array in build().items():
            draft.save(name, array)

    return cached_by_row(kind, key, write)


def cached_by_row(kind: str, key: str, write: Callable[[Draft], None]) -> dict[str, np.ndarray]:
    """What `write` puts into a draft, mapped from disk and not to be changed; written only if nothing is stored under `key`.

    A half-written entry is never seen: it is written beside its place and moved there whole, and what is left of one that could not be
    finished is removed, whatever stopped it.
    """
    parent = private_folder("cache", kind)
    place = parent / hashlib.sha256(key.encode()).hexdigest()[:24]
    found = _load(place)
    if not found:
        _write(parent, place, write)
        found = _load(place)
    return found


class Field:
    """One field of an entry that is being written: `field[row] = value`, from any thread, in any order. What is not written is 0."""

    def __init__(self, path: Path, place: Path, kind: Any, shape: tuple[int, ...], count: int):
        self.path, self.place = path, place
        self.kind, self.shape, self.count = np.dtype(kind), tuple(shape), count
        self.row_bytes = int(np.prod(shape, dtype=np.int64)) * self.kind.itemsize
        self._end = 0
        self._unsynced = 0
        with writing(place, _THEN):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self._resize(count)

    def __len__(self) -> int:
        return self.count

    def __setitem__(self, rows: int | slice | Sequence[int], values: Any) -> None:
        """Some rows; one value serves several, as in an array."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.count)
            if step != 1:
                raise HalfmaskError(f"rows are written one after the other, and every {step}th was asked for: use step 1")
            self._put(start, np.broadcast_to(np.asarray(values, self.kind), (max(0, stop - start), *self.shape)))
            return
        several = [rows] if isinstance(rows, int | np.integer) else list(rows)
        value = np.broadcast_to(np.asarray(values, self.kind), self.shape)
        for row in several:
            self._put(int(row), value[None])

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows, in ascending order, moved up one at a time: nobody else's stay on disk."""
        for place, row in enumerate(rows.tolist()):
            if place != row:
                self._put(place, self._get(row, 1))
        self._resize(len(rows))

    def widen(self, kind: Any) -> None:
        """Numbers of a kind that holds more; those that are there already stay what they are. No other thread may be writing."""
        wide = Field(self.path.with_suffix(".wide"), self.place, kind, self.shape, self.count)
        at_once = max(1, LET_GO_AFTER // (8 * max(1, wide.row_bytes)))
        for start in range(0, self._end, at_once):
            some = self._get(start, min(at_once, self._end - start))
            wide[start : start + len(some)] = some
        os.close(self._file)
        os.replace(wide.path, self.path)
        self.kind, self.row_bytes, self._file, self._end = wide.kind, wide.row_bytes, wide._file, wide._end

    def finish(self) -> None:
        """Say what the file holds, and have it on disk."""
        with writing(self.place, _THEN):
            _write_all(self._file, _header(self.kind, (self.count, *self.shape)), 0)
            os.fsync(self._file)

    def close(self) -> None:
        """No row comes after this."""
        os.close(self._file)

    def _put(self, row: int, values: np.ndarray) -> None:
        if not 0 <= row <= row + len(values) <= self.count:
            raise HalfmaskError(f"row {row + len(values) - 1} of '{self.path.stem}' is written, and there are {self.count}: ask for more")
        with writing(self.place, _THEN):
            _write_all(self._file, np.ascontiguousarray(values).data.cast("B") if values.size else b"", self._offset(row))
            self._unsynced += len(values) * self.row_bytes
            if self._unsynced > LET_GO_AFTER:
                # Pages that wait to be written cannot be taken back for anything else, and a machine has little of it to spare.
                self._unsynced = 0
                os.fsync(self._file)
        self._end = max(self._end, row + len(values))

    def _get(self, row: int, count: int) -> np.ndarray:
        body = os.pread(self._file, count * self.row_bytes, self._offset(row))
        return np.frombuffer(body, self.kind).reshape(count, *self.shape)

    def _offset(self, row: int) -> int:
        return _HEADER + row * self.row_bytes

    def _resize(self, count: int) -> None:
        # One byte at least after the header: an empty file cannot be mapped.
        self.count = count
        os.ftruncate(self._file, _HEADER + max(1, count * self.row_bytes))


class Draft:
    """An entry that is being written."""

    def __init__(self, folder: Path, place: Path):
        self.folder, self.place = folder, place
        self._fields: list[Field] = []

    def fields(self, shapes: Mapping[str, Shape], count: int) -> dict[str, Field]:
        """Room for as many rows of each of these; refused before anything is computed where the disk has none."""
        needed = sum(count * int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize for kind, shape in shapes.values())
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise HalfmaskError(
                f"{count:,} rows take {needed / 1e9:.1f} GB below {self.place.parent}, and {free / 1e9:.1f} GB are free: free some space "
                f"or set HALFMASK_HOME to another disk, then {_THEN}"
            )
        made = {name: Field(self.folder / f"{name}.npy", self.place, kind, shape, count) for name, (kind, shape) in shapes.items()}
        self._fields += made.values()
        return made

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows of every field, in ascending order."""
        for field in self._fields:
            field.keep(rows)

    def save(self, name: str, array: np.ndarray) -> None:
        """An array that is small enough to be made whole."""
        path = os.path.join(self.folder, f"{name}.npy")
        with writing(self.place, _THEN):
            np.save(path, array)
            os.chmod(path, 0o600)

    def finish(self) -> None:
        """All of it is there."""
        for field in self._fields:
            field.finish()

    def close(self) -> None:
        """Nothing is added after this."""
        for field in self._fields:
            field.close()


def let_go(*read: Column | Table | None) -> None:
    """Give back the memory that rows took which were read from files of a store; to read them again is as good as before.

    What is mapped and was read counts as the process's memory until somebody else needs it. A pass over a store that lets go as it goes
    holds as much of a large one as of a small one. What lies in memory for good is left alone, and so is whatever can be written to.
    """
    for one in read:
        for mapping in _mappings(one):
            if hasattr(mmap, "MADV_DONTNEED"):
                mapping.madvise(mmap.MADV_DONTNEED)


def rows_to_let_go_after(*read: Table) -> int:
    """After how many rows of these tables a pass over them lets go."""
    sizes = [np.dtype(kind).itemsize * int(np.prod(shape, dtype=np.int64)) for table in read for kind, shape in table.shapes().values()]
    return max(1, LET_GO_AFTER // max(1, sum(sizes)))


def _mappings(one: Any) -> Iterator[mmap.mmap]:
    inner: Sequence[Any] = ()
    if isinstance(one, Rows | Share):
        inner = [one.column]
    elif isinstance(one, JoinedColumn | Arrays):
        inner = list(one.columns.values()) if isinstance(one, Arrays) else one.columns
    elif isinstance(one, Joined | Beside):
        inner = one.tables
    for part in inner:
        yield from _mappings(part)
    while isinstance(one, np.ndarray):
        if isinstance(one, np.memmap) and one.mode == "r" and isinstance(one.base, mmap.mmap):
            yield one.base
        one = one.base


def _load(place: Path) -> dict[str, np.ndarray]:
    """The arrays of an entry; none if there is no such entry, or if it is cleared just now."""
    try:
        return {path.stem: np.load(path, mmap_mode="r") for path in sorted(place.glob("*.npy"))}
    except FileNotFoundError:
        return {}


def _write(parent: Path, place: Path, write: Callable[[Draft], None]) -> None:
    with writing(place, _THEN):
        folder = Path(tempfile.mkdtemp(prefix=DRAFT, dir=parent))
    draft = Draft(folder, place)
    try:
        write(draft)
        draft.finish()
        with writing(place, _THEN):
            os.rename(folder, place)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        # Another process may have been quicker; what it wrote serves as well.
        if not (isinstance(error.__cause__, OSError) and place.is_dir()):
            raise
    finally:
        draft.close()


def _write_all(file: int, body: Any, offset: int) -> None:
    """A write may stop half-way where a disk fills up; the next one says why."""
    rest = memoryview(body)
    while rest:
        done = os.pwrite(file, rest, offset)
        rest, offset = rest[done:], offset + done


def _header(kind: np.dtype, shape: tuple[int, ...]) -> bytes:
    """As `np.load` expects it, filled up with blanks: the number of rows may change without anything moving."""
    said = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    start = np.lib.format.magic(1, 0)
    length = _HEADER - len(start) - 2
    return start + length.to_bytes(2, "little") + repr(said).ljust(length - 1).encode("latin1") + b"\n"
