"""The write-ahead record of what has been spent on a dataset.

One append-only file of JSON lines per dataset. Each line carries a keyed hash over itself and the line before, and a small file beside it
remembers how many lines there are and the last hash, so that an edit, a deletion and a cut are all seen. A run writes the steps it is
*about* to take and only then draws a batch or noise: a crash can over-report what was spent and never under-report it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock

from halfmask import __version__
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.fingerprints import key
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
    visible_batches: bool = False

    @property
    def steps(self) -> int:
        """How many steps this entry pays for."""
        return self.last_step - self.first_step + 1

    def plan(self) -> SampledGaussian:
        """What the accountant is told."""
        return SampledGaussian(self.noise_multiplier, self.sampling_rate, self.steps, Adjacency(self.adjacency), self.visible_batches)


class Ledger:
    """The spends of one dataset, and the budget it was given."""

    def __init__(self, dataset: str, folder: Path | None = None):
        self.dataset = dataset
        self.folder = folder or private_folder("ledgers")
        self.path = self.folder / f"{dataset}.jsonl"
        self._head = self.folder / f"{dataset}.head"
        self._lock = FileLock(str(self.path) + ".lock", mode=0o600)
        self._key = key()

    def append(self, spend: Spend) -> None:
        """Write the intent down, durably, before anything is spent."""
        sensitivity = Adjacency(spend.adjacency).sensitivity(spend.clip_norm)
        self._write(asdict(spend) | {"kind": "spend", "sensitivity": sensitivity})

    def set_budget(self, budget: float, delta: float) -> None:
        """Bind this and every later run on the dataset to (budget, delta), until another is set; all of them stay on record."""
        if self.budget() != (budget, delta):
            self._write({"kind": "budget", "epsilon": budget, "delta": delta})

    def spends(self) -> list[Spend]:
        """Every spend, oldest first, after checking the whole file."""
        names = set(Spend.__dataclass_fields__)
        return [Spend(**{name: body[name] for name in names}) for body in self._bodies() if body["kind"] == "spend"]

    def budget(self) -> tuple[float, float] | None:
        """The (ε, δ) that all runs together must stay within, if one was set."""
        budgets = [body for body in self._bodies() if body["kind"] == "budget"]
        return (budgets[-1]["epsilon"], budgets[-1]["delta"]) if budgets else None

    def verify(self) -> int:
        """The number of intact lines; raises if anything was changed or cut."""
        return len(self._bodies())

    def total(self, delta: float, adjacency: Adjacency) -> float:
        """ε of everything ever spent on the dataset, as if all runs had been fixed in advance."""
        return total_epsilon(self.spends(), delta, adjacency)

    def locked(self) -> FileLock:
        """Holds every other writer off; for a check and an entry that belong together."""
        return self._lock

    def _write(self, entry: dict[str, Any]) -> None:
        with self._lock:
            bodies = self._bodies()
            body = entry | {
                "code_version": __version__,
                "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "previous": bodies[-1]["hash"] if bodies else _FIRST_HASH,
            }
            body["hash"] = self._digest(body)
            whole = self._whole_lines()
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                # Bytes after the last whole line are an entry whose writer died before it could act on it.
                os.ftruncate(descriptor, len(whole))
                os.pwrite(descriptor, (json.dumps(body) + "\n").encode(), len(whole))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._write_head(len(bodies) + 1, body["hash"])

    def _write_head(self, lines: int, last: str) -> None:
        draft = self._head.with_suffix(".head.draft")
        with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
            json.dump({"lines": lines, "last": last}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._head)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _whole_lines(self) -> bytes:
        body = self.path.read_bytes() if self.path.exists() else b""
        return body[: body.rfind(b"\n") + 1]

    def _bodies(self) -> list[dict[str, Any]]:
        """Every line, checked against the one before and against the head."""
        # The head is read first: a writer that comes between leaves more lines than it says, never fewer.
        head = self._read_head()
        previous, bodies = _FIRST_HASH, []
        for number, line in enumerate(self._whole_lines().splitlines(), 1):
            try:
                body = json.loads(line)
                intact = body["previous"] == previous and hmac.compare_digest(
                    body["hash"], self._digest({name: value for name, value in body.items() if name != "hash"})
                )
            except (ValueError, KeyError, TypeError, AttributeError):
                intact = False
            if not intact:
                raise self._broken(f"at line {number}")
            previous = body["hash"]
            bodies.append(body)
        # A crash between line and head leaves the file ahead of the head, which is honest. Behind it, lines are missing.
        if len(bodies) < head["lines"] or (head["lines"] and bodies[head["lines"] - 1]["hash"] != head["last"]):
            raise self._broken(f"after line {len(bodies)}")
        return bodies

    def _read_head(self) -> dict[str, Any]:
        if not self._head.exists():
            if self._whole_lines().count(b"\n") > 1:
                raise self._broken("in its head file, which is missing")
            return {"lines": 0, "last": _FIRST_HASH}
        try:
            head: dict[str, Any] = json.loads(self._head.read_text())
            if not isinstance(head["lines"], int) or not isinstance(head["last"], str):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise self._broken("in its head file") from None
        return head

    def _broken(self, where: str) -> HalfmaskError:
        return HalfmaskError(
            f"the ledger {self.path} was changed or cut {where}: what was spent is no longer known, so nothing more may be. "
            "Restore the file and its .head from a backup"
        )

    def _digest(self, body: dict[str, Any]) -> str:
        return hmac.new(self._key, json.dumps(body, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def total_epsilon(spends: list[Spend], delta: float, adjacency: Adjacency, accountant: str = "pld") -> float:
    """ε of all `spends` together under one adjacency; infinite where no bound is known.

    Runs whose batches are visible compose with the rest by adding, at an equal share of δ each. Runs that protected different units do not
    compose into one promise about either.
    """
    if any(spend.noise_multiplier == 0 for spend in spends) or len({spend.unit for spend in spends}) > 1:
        return math.inf
    merged: dict[SampledGaussian, int] = {}
    for spend in spends:
        plan = replace(spend.plan(), adjacency=adjacency, steps=0)
        merged[plan] = merged.get(plan, 0) + spend.steps
    plans = [replace(plan, steps=steps) for plan, steps in merged.items()]
    visible = [plan for plan in plans if plan.visible_batches]
    hidden = [plan for plan in plans if not plan.visible_batches]
    share = delta / (len(visible) + bool(hidden) or 1)
    return epsilon(hidden, share, accountant) + sum(epsilon([plan], share) for plan in visible)


def check_budget_left(spends: list[Spend], planned: Spend, budget: float, delta: float) -> float:
    """Refuse a plan that would carry all runs on a dataset past its budget; return what would be left after it.

    A later run may be chosen after seeing what earlier ones gave, and composition by PLD does not allow that. A Rényi filter does: the
    Rényi costs of all runs are added order by order, and the sum, turned into ε, must stay within the budget.
    """
    adjacency = Adjacency(planned.adjacency)
    if adjacency is Adjacency.REPLACE_ONE:
        raise HalfmaskError("a budget over several runs is enforced with RDP, which has no bound for replace-one: use zero-out")
    if planned.visible_batches:
        raise HalfmaskError("a budget over several runs cannot be enforced where public and private batches are shared")
    if planned.noise_multiplier == 0:
        raise HalfmaskError(f"the dataset has a budget of ε = {budget:g} and this run would read it without noise (ε = ∞)")
    spent = total_epsilon(spends, delta, adjacency, "rdp") if spends else 0.0
    needed = total_epsilon([*spends, planned], delta, adjacency, "rdp")
    if needed > budget:
        left = f"of it {spent:.4g} is spent" if math.isfinite(spent) else "earlier runs on it have no bound (ε = ∞)"
        raise HalfmaskError(
            f"the dataset's budget is ε = {budget:g} at δ = {delta:g}, {left}, and this run would bring it to {needed:.4g} (RDP filter): "
            "lower --epsilon, or take fewer epochs"
        )
    return budget - needed
