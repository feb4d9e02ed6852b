"""The write-ahead record of what has been spent on a dataset.

One append-only file of JSON lines per dataset. Each line carries a keyed hash over itself and the line before, and an index beside all of
them, keyed too, remembers how many lines each has and the last hash. A run writes the steps it is *about* to take and only then draws a
batch or noise: a crash can over-report what was spent and never under-report it.

Against whom this protects: an edited, reordered, cut, emptied or deleted ledger is seen, and so is one that was put back from an older
copy, alone or together with its records. Seen only with the help of certificates (`halfmask certificate verify`), which remember how long
the ledger was: a whole home put back from an older copy. Not seen: whoever can read the key in the home can write any ledger they like.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock

from halfmask import __version__
from halfmask.errors import HalfmaskError
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import key
from halfmask.privacy.guest import refuse_guests
from halfmask.privacy.home import private_folder
from halfmask.privacy.locking import check_locks
from halfmask.privacy.spends import Spend, total_epsilon

_FIRST_HASH = "0" * 64
_INDEX = "index"
_UNKNOWN = "what was spent is no longer known, so nothing more may be. Restore the folder of ledgers from a backup"


class Ledger:
    """The lines of one dataset."""

    def __init__(self, dataset: str, folder: Path | None = None):
        refuse_guests()
        self.dataset = dataset
        self.folder = folder or private_folder("ledgers")
        self.path = self.folder / f"{dataset}.jsonl"
        self._key = key()
        # Bytes that were found intact, and what they say: an entry costs the time of the lines that came since, not of all there ever were.
        self._verified: tuple[bytes, list[dict[str, Any]]] = (b"", [])

    def write(self, kind: str, body: Mapping[str, Any]) -> None:
        """Append a line, durably, before anything is done because of it."""
        with self.locked():
            lines = self.lines()
            line = dict(body) | {
                "kind": kind,
                "code_version": __version__,
                "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "previous": lines[-1]["hash"] if lines else _FIRST_HASH,
            }
            line["hash"] = _keyed(self._key, line)
            index = _read_index(self.folder, self._key)
            if lines and index.get(self.dataset, [0])[0] < len(lines):
                # Its writer died, or its disk was full, between line and index. First the index: two lines ahead would look like fraud.
                _write_index(self.folder, self._key, index | {self.dataset: [len(lines), lines[-1]["hash"]]})
            whole = self._whole_lines()
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                # Bytes after the last whole line are an entry whose writer died before it could act on it.
                os.ftruncate(descriptor, len(whole))
                _write_all(descriptor, (json.dumps(line) + "\n").encode(), len(whole), self.path)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _write_index(self.folder, self._key, index | {self.dataset: [len(lines) + 1, line["hash"]]})

    def append(self, spend: Spend) -> None:
        """Write the intent to spend down."""
        self.write("spend", asdict(spend) | {"sensitivity": spend.plan().adjacency.sensitivity(spend.clip_norm)})

    def lines(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every line (of a kind), oldest first, after checking the whole file. They are shared: read them, and change none.

        What this object has found intact before is compared byte for byte and not hashed again; if a byte differs, all of it is.
        """
        # The index is read first: a writer that comes between leaves more lines than it says, never fewer.
        known, last = _read_index(self.folder, self._key).get(self.dataset, (0, _FIRST_HASH))
        whole = self._whole_lines()
        verified, lines = self._verified
        verified, lines = (verified, [*lines]) if whole.startswith(verified) else (b"", [])
        previous = lines[-1]["hash"] if lines else _FIRST_HASH
        for number, text in enumerate(whole[len(verified) :].splitlines(), len(lines) + 1):
            try:
                line = json.loads(text)
                intact = line["previous"] == previous and hmac.compare_digest(
                    line["hash"], _keyed(self._key, {name: value for name, value in line.items() if name != "hash"})
                )
            except (ValueError, KeyError, TypeError, AttributeError):
                intact = False
            if not intact:
                raise self._broken(f"at line {number}")
            previous = line["hash"]
            lines.append(line)
        # A crash between line and index leaves the file ahead by one, which is honest. Behind, lines are missing; far ahead, the index is
        # an old one.
        if len(lines) < known or (known and lines[known - 1]["hash"] != last):
            raise self._broken(f"after line {len(lines)}")
        if len(lines) > known + 1 and _read_index(self.folder, self._key).get(self.dataset, (0, ""))[0] == known:
            raise self._broken(f"after line {known}: the index beside it knows no more")
        self._verified = (whole, [*lines])
        return lines if kind is None else [line for line in lines if line["kind"] == kind]

    def spends(self) -> list[Spend]:
        """Every spend, oldest first."""
        return [Spend.from_json(line) for line in self.lines("spend")]

    def committed(self) -> list[Spend]:
        """Every spend, and what runs have reserved and not yet spent nor given back."""
        lines = self.lines()
        spends = [Spend.from_json(line) for line in lines if line["kind"] == "spend"]
        reserved: dict[str, Spend] = {}
        for line in lines:
            if line["kind"] == "reserve":
                reserved[line["run"]] = Spend.from_json(line)
            elif line["kind"] == "release":
                reserved.pop(line["run"], None)
        for run, plan in reserved.items():
            paid = sum(spend.steps for spend in spends if spend.run == run)
            if paid < plan.steps:
                spends.append(Spend.from_json(asdict(plan) | {"first_step": paid, "last_step": plan.steps - 1}))
        return spends

    def reserved(self, run: str) -> int:
        """Steps that a run has reserved, taken or not."""
        steps = 0
        for line in self.lines():
            if line.get("run") == run and line["kind"] in ("reserve", "release"):
                steps = Spend.from_json(line).steps if line["kind"] == "reserve" else 0
        return steps

    def release(self, run: str) -> int:
        """Give back what a run has reserved and will not spend; returns the number of steps."""
        with self.locked():
            unspent = self.reserved(run) - sum(spend.steps for spend in self.spends() if spend.run == run)
            if unspent > 0:
                self.write("release", {"run": run, "unspent_steps": unspent})
        return max(0, unspent)

    def budgets(self) -> list[tuple[float, float]]:
        """Every (ε, δ) that all runs together must stay within: those set since the last one was raised."""
        binding: list[tuple[float, float]] = []
        for line in self.lines():
            if line["kind"] in ("budget", "raise"):
                found = (float(line["epsilon"]), float(line["delta"]))
                binding = [found] if line["kind"] == "raise" else [*binding, found]
        return binding

    def bounds_replacement(self) -> bool:
        """Whether a binding budget was set for replace-one: what stays within it under zero-out may be far beyond it."""
        bounds = False
        for line in self.lines():
            if line["kind"] in ("budget", "raise"):
                bounds = line["kind"] == "budget" and (bounds or line.get("adjacency") == Adjacency.REPLACE_ONE.value)
        return bounds

    def total(self, delta: float, adjacency: Adjacency) -> float:
        """ε of everything spent on this dataset alone, as if all runs had been fixed in advance."""
        return total_epsilon(self.spends(), delta, adjacency)

    def verify(self) -> int:
        """The number of intact lines; raises if anything was changed, cut or taken away."""
        count = len(self.lines())
        records = self.path.with_suffix(".records")
        if not count and records.exists():
            raise self._broken("to nothing: the records of its people are still there")
        if self.lines("spend") and not records.exists():
            raise HalfmaskError(f"{records} is missing: the people of a ledger can no longer be recognised. Restore it from a backup")
        return count

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds every other writer of this folder off; for a check and an entry that belong together."""
        with _lock(self.folder):
            yield

    def _whole_lines(self) -> bytes:
        body = self.path.read_bytes() if self.path.exists() else b""
        return body[: body.rfind(b"\n") + 1]

    def _broken(self, where: str) -> HalfmaskError:
        return HalfmaskError(f"the ledger {self.path} was changed or cut {where}: {_UNKNOWN}")


def ledger_names(folder: Path | None = None) -> list[str]:
    """The datasets that have, or had, a ledger here: by their files, their records, and the index."""
    refuse_guests()
    folder = folder or private_folder("ledgers")
    found = {path.stem for pattern in ("*.jsonl", "*.records") for path in folder.glob(pattern)}
    return sorted(found | _read_index(folder, key()).keys())


def _lock(folder: Path) -> FileLock:
    check_locks(folder)
    # One for all ledgers of a home: related datasets are found, judged and written to as one.
    return FileLock(folder / "lock", mode=0o600, is_singleton=True)


def _keyed(secret: bytes, body: Mapping[str, Any]) -> str:
    return hmac.new(secret, json.dumps(body, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _write_all(descriptor: int, data: bytes, place: int, path: Path) -> None:
    """A short write is a full disk: what is there of the line is no line, and the next writer takes it away."""
    while data:
        try:
            written = os.pwrite(descriptor, data, place)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        data, place = data[written:], place + written


def _read_index(folder: Path, secret: bytes) -> dict[str, Any]:
    path = folder / _INDEX
    if not path.exists():
        lines = any(body.count(b"\n") > 1 for body in (one.read_bytes() for one in folder.glob("*.jsonl")))
        if lines and path.exists():
            # The home's first writer came between.
            return _read_index(folder, secret)
        if lines:
            raise HalfmaskError(f"the ledger index {path} is missing, so it was changed or cut: {_UNKNOWN}")
        return {}
    try:
        body = json.loads(path.read_text())
        if not hmac.compare_digest(body["mac"], _keyed(secret, body["ledgers"])):
            raise ValueError
        ledgers: dict[str, Any] = body["ledgers"]
    except (ValueError, KeyError, TypeError):
        raise HalfmaskError(f"the ledger index {path} was changed or cut: {_UNKNOWN}") from None
    return ledgers


def _write_index(folder: Path, secret: bytes, ledgers: dict[str, Any]) -> None:
    draft = folder / f"{_INDEX}.draft"
    body = json.dumps({"ledgers": ledgers, "mac": _keyed(secret, ledgers)}).encode()
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        _write_all(descriptor, body, 0, draft)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, folder / _INDEX)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
