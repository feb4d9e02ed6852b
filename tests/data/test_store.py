"""Arrays kept on disk: computed once, whole, and for their owner alone."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from halfmask.data.store import cached
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


def test_changing_an_array_does_not_change_the_disk(fresh_home: Path) -> None:
    build = lambda: {"a": np.zeros(3)}  # noqa: E731
    cached("kind", "key", build)["a"][:] = 9
    assert cached("kind", "key", build)["a"].tolist() == [0, 0, 0]
