"""A disk that is full or read-only at any write of a run: one line, exit code 2, the ledger intact, and the run goes on afterwards."""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halfmask.privacy.ledger import Ledger

SMALL = ["--set", "data={private: 16, public: 0, test: 2}", "--batch", "4", "--epochs", "1"]
FAULTS = 14


class Disk:
    """Stands between the code and the disk: from the `broken_from`-th write on, every write fails."""

    def __init__(self, patch: pytest.MonkeyPatch, broken_from: int | None = None, number: int = errno.ENOSPC):
        self.broken_from, self.number, self.writes = broken_from, number, [""]
        for call in ("fsync", "replace", "rename", "link", "pwrite", "write"):
            self._guard(patch, os, call)
        self._guard(patch, os, "mkdir", lambda path, *_, **__: not os.path.isdir(path))
        self._guard(patch, os, "open", lambda path, flags, *_, **__: flags & (os.O_WRONLY | os.O_RDWR), named=True)
        opens_to_write = lambda file, mode="r", *_, **__: not isinstance(file, int) and set(mode) & set("wax+")  # noqa: E731
        for module in (io, builtins):
            self._guard(patch, module, "open", opens_to_write, named=True)
        real_save = np.save

        def save(path: str, array: np.ndarray) -> None:
            real_save(path, array)
            if self._breaks("np.save"):
                os.truncate(path, os.path.getsize(path) // 2)
                raise OSError(f"{array.size} requested and {array.size // 2} written")

        patch.setattr(np, "save", save)

    def _breaks(self, call: str) -> bool:
        self.writes.append(call)
        return self.broken_from is not None and len(self.writes) > self.broken_from

    def _guard(
        self, patch: pytest.MonkeyPatch, module: Any, call: str, writes: Callable[..., Any] = lambda *_, **__: True, named: bool = False
    ) -> None:
        real = getattr(module, call)

        def guarded(*arguments: Any, **options: Any) -> Any:
            if writes(*arguments, **options) and self._breaks(call):
                raise OSError(self.number, os.strerror(self.number), *([str(arguments[0])] if named else []))
            return real(*arguments, **options)

        patch.setattr(module, call, guarded)


def verified(home: Path) -> int:
    """Steps paid for, after checking every ledger."""
    ledgers = [Ledger(path.stem) for path in (home / "ledgers").glob("*.jsonl")]
    for ledger in ledgers:
        ledger.verify()
    return sum(spend.steps for ledger in ledgers for spend in ledger.spends())


def taken(run: Path) -> int:
    """The most steps that any file of a run tells of."""
    steps = [int(found) for path in run.glob("log.jsonl") for found in re.findall(r'"step": (\d+)', path.read_text())]
    if (run / "checkpoint/state.pt").is_file():
        steps.append(torch.load(run / "checkpoint/state.pt", weights_only=True)["step"])
    if (run / "model.safetensors").exists():
        steps.append(4)
    return max(steps, default=0)


@pytest.fixture
def train(halfmask, recipe, quick_accounting) -> Callable[..., Any]:
    return lambda out, *more: halfmask("train", recipe, "--method", "dpsgd", "--out", out, *SMALL, *more)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drawn") / "home"


@pytest.fixture
def fresh(train, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes homes in which people are drawn, since that takes long, and nothing else ever happened."""
    if not drawn.exists():
        monkeypatch.setenv("HALFMASK_HOME", str(drawn))
        assert train(tmp_path / "first").code == 0
        for path in (*drawn.iterdir(), *(drawn / "cache").iterdir()):
            if path.name not in ("cache", "records"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def make(name: str) -> Path:
        home = Path(shutil.copytree(drawn, tmp_path / name))
        monkeypatch.setenv("HALFMASK_HOME", str(home))
        return home

    return make


def check_failure(result: Any, home: Path, run: Path) -> None:
    error = result.error
    assert "could not be written: " in error and "What was spent stays on record" in error, error
    assert verified(home) >= taken(run)
    assert not [*run.rglob("*.draft"), *(home / "cache").rglob("draft-*")], "half-written files were left behind"


def test_any_write_may_fail(train, fresh, tmp_path, monkeypatch) -> None:
    home = fresh("whole")
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        assert train(tmp_path / "whole-run").code == 0
    total = len(disk.writes) - 1
    assert {"fsync", "replace", "rename", "mkdir", "open", "pwrite"} <= set(disk.writes), "some writes are not seen"
    assert verified(home) == 4 and total > 40
    for broken_from in np.unique(np.linspace(1, total, FAULTS).astype(int)):
        home, run = fresh(f"home{broken_from}"), tmp_path / f"run{broken_from}"
        with monkeypatch.context() as patch:
            disk = Disk(patch, broken_from)
            result = train(run)
        assert len(disk.writes) > broken_from, "the fault was never met"
        check_failure(result, home, run)
        goes_on = (run / "checkpoint/state.pt").is_file()
        assert ("--resume" if goes_on else "start again") in result.error
        again = train(run, "--resume") if goes_on else train(tmp_path / f"again{broken_from}")
        assert again.code == 0, (disk.writes[broken_from], again.err)
        assert verified(home) >= 4


@pytest.mark.parametrize("number, reason", [(errno.EROFS, "read-only"), (errno.EDQUOT, "quota is used up"), (errno.EACCES, "denied")])
@pytest.mark.parametrize("broken_from", [1, 30])
def test_read_only_folders_and_quotas(train, fresh, tmp_path, monkeypatch, number, reason, broken_from) -> None:
    home, run = fresh("home"), tmp_path / "run"
    with monkeypatch.context() as patch:
        Disk(patch, broken_from, number)
        result = train(run)
    assert reason in result.error
    assert verified(home) >= taken(run)


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write to read-only folders; the test above stands in")
def test_a_folder_that_may_not_be_written_to(train, fresh, tmp_path) -> None:
    fresh("home")
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "denied" in train(tmp_path / "closed" / "run").error


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a disk of so many bytes, or gives the one that is there that size."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        size = -(-size // 4096) * 4096
        options = f"remount,size={size}" if os.path.ismount(place) else f"size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        return place

    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk that is full")
    yield mount
    if os.path.ismount(place):
        subprocess.run(["umount", str(place)], check=True)


def test_out_on_a_disk_that_fills_up(train, fresh, small_disk, tmp_path) -> None:
    home = fresh("home")
    assert train(tmp_path / "elsewhere").code == 0
    checkpoint = (tmp_path / "elsewhere/checkpoint/state.pt").stat().st_size
    # From the start: not even the first checkpoint fits. Later: one fits, but not a second beside it.
    run = small_disk(checkpoint // 2) / "run"
    check_failure(train(run), home, run)
    assert not (run / "checkpoint/state.pt").exists()
    shutil.rmtree(run)
    small_disk(checkpoint + checkpoint // 2)
    check_failure(train(run), home, run)
    assert (run / "checkpoint/state.pt").exists() and verified(home) > 4
    small_disk(10 * checkpoint)
    assert train(run, "--resume").code == 0
    assert verified(home) >= 8 and (run / "certificate.json").is_file()


def test_home_on_a_full_disk(train, fresh, small_disk, tmp_path, monkeypatch) -> None:
    source = fresh("source")
    used = sum(path.stat().st_size + 8192 for path in source.rglob("*"))
    disk = small_disk(4 * used)
    home = Path(shutil.copytree(source, disk / "home"))
    monkeypatch.setenv("HALFMASK_HOME", str(home))
    assert train(tmp_path / "before").code == 0
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    # Cached arrays are there, so that the first write to the disk is the ledger's; and then they are not.
    for name in ("ledger", "arrays"):
        check_failure(train(tmp_path / name), home, tmp_path / name)
        assert verified(home) >= 4
        shutil.rmtree(home / "cache/fingerprints", ignore_errors=True)
        with filler.open("ab", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(512))
    filler.unlink()
    assert train(tmp_path / "ledger", "--resume").code == 0
    assert verified(home) >= 8
