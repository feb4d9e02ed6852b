"""The write-ahead record of what has been spent on a dataset.

One append-only file of JSON lines per dataset, each line carrying the hash of the one before it. A run writes the steps it is *about*
to take and only then draws a batch or noise, so a crash can over-report what was spent and never under-report it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock

from halfmask import __version__
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.home import private_folder

_FIRST_HASH = "0" * 64


@dataclass(frozen=True)
class Spend:
    """The intent to take steps `first_step` … `last_step` (inclusive).

    `noise_multiplier` 0 stands for a read without noise: its ε is infinite.
    """

    run: str
    method: str
    adjacency: str
    unit: str
    units: int
    first_step: int
    last_step: int
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    expected_batch: float
    noise_source: str

    @property
    def steps(self) -> int:
        """How many steps this entry pays for."""
        return self.last_step - self.first_step + 1

    def plan(self) -> SampledGaussian:
        """What the accountant is told."""
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, self.steps, Adjacency(self.adjacency))


class Ledger:
    """The spends of one dataset."""

    def __init__(self, dataset: str, folder: Path | None = None):
        self.path = (folder or private_folder("ledgers")) / f"{dataset}.jsonl"
        self._lock = FileLock(str(self.path) + ".lock")

    def append(self, spend: Spend) -> None:
        """Write the intent down, durably, before anything is spent."""
        with self._lock:
            lines = self._lines()
            previous = json.loads(lines[-1])["hash"] if lines else _FIRST_HASH
            sensitivity = Adjacency(spend.adjacency).sensitivity(spend.clip_norm)
            body = asdict(spend) | {
                "sensitivity": sensitivity,
                "code_version": __version__,
                "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "previous": previous,
            }
            body["hash"] = _digest(body)
            descriptor = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, (json.dumps(body) + "\n").encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def spends(self) -> list[Spend]:
        """Every entry, oldest first, after checking the chain of hashes."""
        previous, spends = _FIRST_HASH, []
        names = set(Spend.__dataclass_fields__)
        for number, line in enumerate(self._lines(), 1):
            try:
                body = json.loads(line)
                claimed = body.pop("hash")
                intact = claimed == _digest(body) and body["previous"] == previous
            except (ValueError, KeyError):
                intact = False
            if not intact:
                raise HalfmaskError(
                    f"the ledger {self.path} was changed or cut at line {number}: what was spent is no longer known, so nothing more "
                    "may be. Restore the file from a backup"
                )
            previous = claimed
            spends.append(Spend(**{name: body[name] for name in names}))
        return spends

    def total(self, delta: float, adjacency: Adjacency) -> float:
        """ε of everything ever spent on the dataset, as if all runs had been fixed in advance."""
        merged: dict[SampledGaussian, int] = {}
        for spend in self.spends():
            if spend.noise_multiplier == 0:
                return math.inf
            plan = replace(spend.plan(), adjacency=adjacency, steps=0)
            merged[plan] = merged.get(plan, 0) + spend.steps
        return epsilon([replace(plan, steps=steps) for plan, steps in merged.items()], delta)

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return [line for line in self.path.read_text().split("\n") if line]


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
