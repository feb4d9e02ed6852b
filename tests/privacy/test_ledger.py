"""The ledger: nothing that was written can be lost or changed unseen."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger, ledger_names
from halfmask.privacy.spends import Spend

SPEND = Spend(
    run="aa",
    method="dpsgd",
    adjacency="zero-out",
    unit="crop",
    units=1000,
    first_step=0,
    last_step=49,
    sampling_rate=0.01,
    noise_multiplier=4.0,
    clip_norm=0.1,
    expected_batch=10.0,
    noise_source="test",
)
FIELDS = {"sensitivity", "code_version", "time", "previous", "hash"} | set(Spend.__dataclass_fields__)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger("people", tmp_path)


def written(ledger: Ledger, count: int = 4) -> list[Spend]:
    spends = [replace(SPEND, run=f"run{i}", first_step=50 * i, last_step=50 * i + 49) for i in range(count)]
    for spend in spends:
        ledger.append(spend)
    return spends


def test_what_is_written_is_read(ledger: Ledger) -> None:
    assert ledger.spends() == []
    spends = written(ledger)
    assert ledger.spends() == spends
    assert Ledger("people", ledger.path.parent).spends() == spends
    assert [spend.steps for spend in spends] == [50] * 4


def test_a_line_says_all_that_was_spent(ledger: Ledger) -> None:
    ledger.append(replace(SPEND, adjacency="replace-one"))
    (line,) = ledger.path.read_text().splitlines()
    body = json.loads(line)
    assert body.keys() >= FIELDS
    assert body["sensitivity"] == pytest.approx(0.2)
    assert body["previous"] == "0" * 64


def test_lines_are_chained(ledger: Ledger) -> None:
    written(ledger)
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [line["previous"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]


def _edit(lines: list[str]) -> list[str]:
    return [*lines[:1], lines[1].replace('"noise_multiplier": 4.0', '"noise_multiplier": 9.0'), *lines[2:]]


def _rehash(lines: list[str]) -> list[str]:
    """An edit whose line is made consistent again: the next line still remembers the old one."""
    import hashlib

    body = json.loads(_edit(lines)[1])
    body.pop("hash")
    body["hash"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return [lines[0], json.dumps(body), *lines[2:]]


TAMPERED: dict[str, Callable[[list[str]], list[str]]] = {
    "edited": _edit,
    "edited and rehashed": _rehash,
    "last line cut": lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
    "last line short of a brace": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "last deleted": lambda lines: lines[:-1],
    "all deleted": lambda lines: [],
    "first deleted": lambda lines: lines[1:],
    "middle deleted": lambda lines: lines[:1] + lines[2:],
    "swapped": lambda lines: [lines[0], lines[2], lines[1], lines[3]],
    "doubled": lambda lines: [*lines[:2], *lines[1:]],
    "foreign line": lambda lines: [*lines, '{"hello": 1}'],
    "not an object": lambda lines: [*lines, "[]"],
    "not JSON": lambda lines: [*lines, "spent nothing"],
}


@pytest.mark.parametrize("change", TAMPERED)
def test_changes_are_seen(ledger: Ledger, change: str) -> None:
    written(ledger)
    before = ledger.path.read_text()
    lines = TAMPERED[change](before.splitlines())
    ledger.path.write_text("".join(line + "\n" for line in lines))
    assert ledger.path.read_text() != before
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.spends()
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.total(1e-5, Adjacency.ZERO_OUT)


@pytest.mark.parametrize("change", ["last line cut", "middle deleted", "edited"])
def test_nothing_is_added_to_a_broken_ledger(ledger: Ledger, change: str) -> None:
    """What was spent is no longer known, so nothing more may be; and the evidence stays as it is."""
    written(ledger)
    ledger.path.write_text("\n".join(TAMPERED[change](ledger.path.read_text().splitlines())) + "\n")
    before = ledger.path.read_bytes()
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.append(SPEND)
    assert ledger.path.read_bytes() == before


def test_the_total_composes_runs(ledger: Ledger) -> None:
    other = replace(SPEND, run="bb", noise_multiplier=3.0)
    for spend in (SPEND, replace(SPEND, first_step=50, last_step=99), other):
        ledger.append(spend)
    plans = [SampledGaussian(4.0, 0.01, 100), SampledGaussian(3.0, 0.01, 50)]
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE):
        expected = epsilon([replace(plan, adjacency=adjacency) for plan in plans], 1e-5)
        assert ledger.total(1e-5, adjacency) == pytest.approx(expected, rel=1e-9)
        assert expected > epsilon([replace(plans[0], adjacency=adjacency)], 1e-5)


def test_nothing_spent_is_nothing(ledger: Ledger) -> None:
    assert ledger.total(1e-5, Adjacency.ZERO_OUT) == 0


def test_a_read_without_noise_is_remembered_for_ever(ledger: Ledger) -> None:
    ledger.append(replace(SPEND, noise_multiplier=0.0, method="non-private"))
    written(ledger, 2)
    assert ledger.total(1e-5, Adjacency.ZERO_OUT) == math.inf


def test_only_the_owner_may_read(ledger: Ledger) -> None:
    before = os.umask(0)
    try:
        ledger.append(SPEND)
    finally:
        os.umask(before)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in ledger.path.parent.iterdir())


def test_ledgers_live_in_private_storage_one_per_dataset(fresh_home: Path) -> None:
    Ledger("a").append(SPEND)
    assert Ledger("a").path.is_relative_to(fresh_home) and Ledger("a").spends() == [SPEND]
    assert Ledger("b").spends() == []
    assert stat.S_IMODE(fresh_home.stat().st_mode) & 0o077 == 0


def test_a_spend_is_on_disk_when_append_returns(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line itself is synced, whole, before the index, and the folder last."""
    synced: list[str] = []
    real = os.fsync

    def spy(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if ledger.path.exists() and status.st_ino == ledger.path.stat().st_ino:
            whole = ledger.path.read_bytes()
            synced.append("line" if whole.endswith(b"\n") and len(whole) == status.st_size else "part of a line")
        else:
            synced.append("folder" if stat.S_ISDIR(status.st_mode) else "index")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    ledger.append(SPEND)
    ledger.append(SPEND)
    assert synced == ["line", "index", "folder"] * 2


# ---- the index -----------------------------------------------------------------------------------------------------------


def put_back(ledger: Ledger, *names: str) -> Callable[[], None]:
    """Keep copies of some files, to be put back later."""
    copies = {name: (ledger.folder / name).read_bytes() for name in names}

    def restore() -> None:
        for name, body in copies.items():
            (ledger.folder / name).write_bytes(body)

    return restore


@pytest.mark.parametrize("files", [("people.jsonl",), ("people.jsonl", "people.records"), ("index",)])
def test_an_older_copy_is_seen(ledger: Ledger, files: tuple[str, ...]) -> None:
    written(ledger, 3)
    (ledger.folder / "people.records").touch()
    restore = put_back(ledger, *files)
    written(ledger, 2)
    restore()
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.verify()
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.append(SPEND)


def _without_index(ledger: Ledger) -> None:
    (ledger.folder / "index").unlink()


def _forged(ledger: Ledger) -> None:
    """Somebody without the key cuts the ledger and writes an index to match."""
    lines = ledger.path.read_text().splitlines(keepends=True)
    ledger.path.write_text("".join(lines[:-1]))
    body = json.loads((ledger.folder / "index").read_text())
    body["ledgers"]["people"] = [len(lines) - 1, json.loads(lines[-2])["hash"]]
    (ledger.folder / "index").write_text(json.dumps(body))


def _garbled(ledger: Ledger) -> None:
    (ledger.folder / "index").write_text("{")


@pytest.mark.parametrize("change", [_without_index, _forged, _garbled])
def test_the_index_is_keyed_and_missed(ledger: Ledger, change: Callable[[Ledger], None]) -> None:
    written(ledger)
    change(ledger)
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.spends()


def test_records_without_a_ledger_are_a_ledger_that_was_deleted(ledger: Ledger) -> None:
    ledger.append(SPEND)
    (ledger.folder / "people.records").touch()
    assert ledger.verify() == 1
    ledger.path.unlink()
    (ledger.folder / "index").unlink()
    with pytest.raises(HalfmaskError, match="changed or cut"):
        ledger.verify()
    assert ledger_names(ledger.folder) == ["people"]


def test_a_crash_between_line_and_index_is_no_fraud(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """And neither are two of them: the index is brought up to date before the next line."""
    written(ledger, 2)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("halfmask.privacy.ledger._write_index", lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError, match="No space"):
                ledger.append(SPEND)
        assert len(ledger.spends()) == 3, "the line counts, and no second one is written over an index that is behind"
    ledger.append(SPEND)
    assert len(ledger.spends()) == 4


def test_a_short_write_is_no_line(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may take half a line without an error; the other half then fails."""
    written(ledger, 2)
    real = os.pwrite
    calls: list[int] = []

    def short(descriptor: int, data: bytes, place: int) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: len(data) // 2], place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", short)
        with pytest.raises(OSError, match="No space"):
            ledger.append(SPEND)
    assert len(ledger.spends()) == 2
    ledger.append(SPEND)
    assert len(ledger.spends()) == 3


def _append_many(folder: Path, run: str, count: int) -> None:
    ledger = Ledger("people", folder)
    for i in range(count):
        ledger.append(replace(SPEND, run=run, first_step=i, last_step=i))


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append_many, args=(tmp_path, run, 40)) for run in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    spends = Ledger("people", tmp_path).spends()
    for run in ("a", "b"):
        assert [spend.first_step for spend in spends if spend.run == run] == list(range(40))
    assert len(spends) == 80
