"""Arrays kept on disk: computed once, whole, and for their owner alone."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import halfmask.data.store as store
from halfmask.data.pose_records import PoseRecords
from halfmask.data.store import Draft, cached, cached_by_row, let_go
from halfmask.data.tables import Arrays, Joined, JoinedColumn, Rows
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError


def test_built_once(fresh_home: Path) -> None:
    calls = []

    def build() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"a": np.arange(3), "b": np.ones((2, 2))}

    for _ in range(2):
        arrays = cached("kind", "key", build)
        assert arrays.keys() == {"a", "b"} and arrays["a"].tolist() == [0, 1, 2]
    assert len(calls) == 1
    cached("kind", "other key", build)
    cached("other kind", "key", build)
    assert len(calls) == 3


def test_only_the_owner_may_read(fresh_home: Path) -> None:
    cached("kind", "secret/../name", lambda: {"a": np.arange(3)})
    paths = list((fresh_home / "cache").rglob("*"))
    assert any(path.suffix == ".npy" for path in paths)
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in paths)
    assert not any("secret" in str(path) for path in paths)


def test_an_entry_that_is_cleared_while_it_is_opened_is_built_again(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = lambda: {"a": np.arange(3), "b": np.arange(4)}  # noqa: E731
    cached("kind", "key", build)
    real = np.load

    def clear_first(path: Path, mmap_mode: str) -> np.ndarray:
        monkeypatch.setattr(np, "load", real)
        shutil.rmtree(path.parent)
        return real(path, mmap_mode=mmap_mode)

    monkeypatch.setattr(np, "load", clear_first)
    assert cached("kind", "key", build).keys() == {"a", "b"}


def test_a_failed_build_leaves_nothing(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError):
        cached("kind", "key", lambda: (_ for _ in ()).throw(RuntimeError()))
    real = np.save

    def full_disk(path: str, array: np.ndarray) -> None:
        if path.endswith("b.npy"):
            raise OSError("9 requested and 4 written")
        real(path, array)

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(HalfmaskError, match=r"cache/kind/.* could not be written: 9 requested and 4 written; the disk is probably full"):
        cached("kind", "key", lambda: {"a": np.arange(3), "b": np.arange(3)})
    assert not list((fresh_home / "cache" / "kind").iterdir())

    def interrupted(path: str, array: np.ndarray) -> None:
        real(path, array)
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached("kind", "key", lambda: {"a": np.arange(3)})
    assert not list((fresh_home / "cache" / "kind").iterdir())
    monkeypatch.setattr(np, "save", real)
    assert cached("kind", "key", lambda: {"a": np.arange(4)})["a"].tolist() == [0, 1, 2, 3]


def test_another_process_may_be_quicker(fresh_home: Path) -> None:
    def build() -> dict[str, np.ndarray]:
        cached("kind", "key", lambda: {"a": np.zeros(2)})
        return {"a": np.ones(2)}

    assert cached("kind", "key", build)["a"].tolist() == [0, 0]
    assert len(list((fresh_home / "cache" / "kind").iterdir())) == 1


def test_what_is_stored_is_mapped_and_cannot_be_changed(fresh_home: Path) -> None:
    for array in (cached("kind", "key", lambda: {"a": np.zeros(3)})["a"], _rows("key by row", 3)):
        assert isinstance(array, np.memmap) and array.mode == "r"
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 9


def _rows(key: str, count: int, shape: tuple[int, ...] = (16, 1024)) -> np.ndarray:
    """Rows that say which they are."""

    def write(draft: Draft) -> None:
        field = draft.fields({"rows": (np.float32, shape)}, count)["rows"]
        for row in range(count):
            field[row] = np.full(shape, row, np.float32)

    return cached_by_row("kind", key, write)["rows"]


def test_rows_are_written_in_any_order_by_any_thread_and_what_is_not_written_is_nothing(fresh_home: Path) -> None:
    def write(draft: Draft) -> None:
        fields = draft.fields({"a": (np.int64, (2,)), "b": (np.float16, ()), "c": (bool, (3,))}, 40)
        list(in_order(lambda row: fields["a"].__setitem__(row, [row, -row]), [row for row in reversed(range(40)) if row != 7], workers=4))
        fields["b"][10:13] = [1, 2, 3]
        fields["c"][[2, 5]] = [True, False, True]
        fields["c"][np.int64(39)] = True
        draft.save("note", np.array([1.5]))

    found = cached_by_row("kind", "key", write)
    assert found.keys() == {"a", "b", "c", "note"}
    assert found["a"].tolist() == [[row, -row] if row != 7 else [0, 0] for row in range(40)]
    assert found["b"].dtype == np.float16 and found["b"][9:14].tolist() == [0, 1, 2, 3, 0]
    assert np.flatnonzero(found["c"].any(1)).tolist() == [2, 5, 39] and found["c"][5].tolist() == [True, False, True]
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in (fresh_home / "cache").rglob("*"))


def test_a_row_that_is_not_there_is_refused(fresh_home: Path) -> None:
    def write(rows: object) -> Callable[[Draft], None]:
        return lambda draft: draft.fields({"a": (np.int64, ())}, 4)["a"].__setitem__(rows, 1)  # type: ignore[arg-type]

    for rows, message in ((4, "row 4 of 'a' is written, and there are 4"), (-1, "there are 4"), (slice(0, 4, 2), "every 2th")):
        with pytest.raises(HalfmaskError, match=message):
            cached_by_row("kind", "key", write(rows))


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [1, 2, 4], [4], []])
def test_only_the_rows_kept_stay_on_disk(fresh_home: Path, kept: list[int]) -> None:
    def write(draft: Draft) -> None:
        fields = draft.fields({"a": (np.float64, (600,)), "b": (np.uint8, ())}, 5)
        for row in range(5):
            fields["a"][row], fields["b"][row] = np.full(600, 10 + row), row
        draft.keep(np.array(kept, np.int64))

    found = cached_by_row("kind", "key", write)
    assert found["a"].shape == (len(kept), 600) and found["b"].tolist() == kept
    assert found["a"][:, 0].tolist() == [10 + row for row in kept]
    size = next((fresh_home / "cache" / "kind").rglob("a.npy")).stat().st_size
    assert size == 4096 + max(1, len(kept) * 600 * 8)


def test_numbers_that_do_not_fit_make_room_and_change_none_before_them(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = np.float16([0.1, 65504, -3e-8])
    # So that it takes several goes.
    monkeypatch.setattr(store, "LET_GO_AFTER", 96)

    def write(draft: Draft) -> None:
        field = draft.fields({"a": (np.float16, (3,))}, 6)["a"]
        for row in range(3):
            field[row] = before * np.float16(row % 2)
        field.widen(np.float32)
        field[3] = np.float32([1e6, 0.1, 2])

    found = cached_by_row("kind", "key", write)["a"]
    expected = np.zeros((6, 3), np.float32)
    expected[:3] = [before * np.float16(row % 2) for row in range(3)]
    expected[3] = [1e6, 0.1, 2]
    assert found.dtype == np.float32 and found.tobytes() == expected.tobytes()
    assert [path.name for path in (fresh_home / "cache" / "kind").rglob("*") if path.is_file()] == ["a.npy"]


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, RuntimeError, OSError])
def test_an_interrupted_build_leaves_nothing(fresh_home: Path, stopped_by: type[BaseException]) -> None:
    open_before = len(os.listdir("/proc/self/fd"))

    def write(draft: Draft) -> None:
        field = draft.fields({"a": (np.uint8, (1000,))}, 100)["a"]
        for row in range(50):
            field[row] = 1
        raise stopped_by("reading went wrong")

    # What goes wrong in reading is not taken for a disk that cannot be written.
    with pytest.raises(stopped_by, match="reading went wrong"):
        cached_by_row("kind", "key", write)
    assert not list((fresh_home / "cache" / "kind").iterdir())
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_disk_that_fills_up_half_way_is_told_in_a_line(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = os.pwrite, []

    def full(file: int, body: memoryview, offset: int) -> int:
        written.append(len(body))
        if len(written) == 1:
            return real(file, body[:100], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(HalfmaskError, match=r"cache/kind/[0-9a-f]{24} could not be written: no space is left on the disk"):
        _rows("key", 3)
    assert written == [65536, 65436], "what a short write left is tried again, and then the disk says why"
    assert not list((fresh_home / "cache" / "kind").iterdir())


def test_a_disk_with_too_little_room_is_refused_before_anything_is_computed(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: SimpleNamespace(free=3 * 65536 - 1))
    with pytest.raises(HalfmaskError, match=r"3 rows take 0\.0 GB .*free some space or set HALFMASK_HOME"):
        _rows("key", 3)
    assert len(_rows("key", 2)) == 2


def test_a_large_store_is_written_in_as_little_memory_as_a_small_one(fresh_home: Path) -> None:
    peaks = []
    for count in (32, 128):
        tracemalloc.start()
        _rows(f"{count}", count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # A row is 64 KiB.
    assert max(peaks) < 4 * 65536 and peaks[1] < peaks[0] + 8192, peaks


def _resident(array: np.ndarray) -> int:
    """Bytes of the file behind a mapping that count as this process's memory."""
    name, found = str(array.filename), 0  # type: ignore[attr-defined]
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            inside = line.endswith(name)
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="only Linux says what is resident")
def test_what_was_read_is_let_go_whatever_it_was_read_through(fresh_home: Path) -> None:
    array = _rows("key", 64)
    some = np.arange(3, 60)
    through = {
        "rows": lambda: Rows(array, some),
        "rows of rows": lambda: Rows(Rows(array, some), np.arange(20)),
        "slices": lambda: array[5:][2:],
        "columns one after the other": lambda: JoinedColumn([array, np.zeros((2, 16, 1024), np.float32)]),
        "a table": lambda: Arrays({"a": array, "b": np.zeros(64)}).take(some),
        "tables one after the other": lambda: Joined([Arrays({"a": array})]),
    }
    for name, made in through.items():
        total = float(np.asarray(array).sum())
        assert _resident(array) >= array.nbytes, name
        let_go(made(), None)  # type: ignore[arg-type]
        assert _resident(array) < array.nbytes // 16, name
        assert float(np.asarray(array).sum()) == total, "to read it again is as good as before"


def test_what_can_be_written_to_is_never_let_go(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4096))
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[:] = 7
    let_go(private, private[10:])
    assert (private == 7).all(), "a copy that lies in memory alone would be lost"


def test_taking_some_rows_shares_the_mapping(fresh_home: Path, random_records: Callable[..., PoseRecords]) -> None:
    images = _rows("key", 8)
    records = replace(random_records(8), private=Arrays({"image": images}))
    taken = records.take(np.array([6, 2, 5])).take(np.array([2, 0]))
    assert isinstance(taken.images, Rows) and taken.images.column is images
    assert taken.images[:, 0, 0].tolist() == [5, 6]
