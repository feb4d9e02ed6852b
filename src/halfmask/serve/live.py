"""How far runs have come, from what they have logged: public losses and ε by step.

Nothing tells when a line was written: how long a step takes follows how many people it read (see `halfmask.training.outputs`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from halfmask.serve.folder import ServedFolder

TRAINING, STOPPED, DONE, NOTHING = "training", "stopped", "done", "came to nothing"
_LONGEST = 8 * 2**20
_CURVE = ("step", "public_loss", "epsilon")
# What a report is made of, besides audits.
_REPORTED = ("config.yaml", "log.jsonl", "metrics.json", "certificate.json", "certificate.md")


@dataclass(frozen=True)
class Progress:
    """How far one run has come.

    Attributes:
        steps: how many are planned; None where nothing was logged yet.
        curve: what was logged at the end of each epoch.
    """

    name: str
    settings: Mapping[str, Any]
    state: str
    step: int
    steps: int | None
    curve: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        wanted = {name: self.settings.get(name) for name in ("task", "method", "epsilon", "seed")}
        return {"name": self.name, "state": self.state, "step": self.step, "steps": self.steps, "curve": list(self.curve)} | wanted


class Watch:
    """Reads runs again when they have changed, and only then."""

    def __init__(self, folder: ServedFolder):
        self.folder = folder
        self._known: dict[Path, tuple[tuple[int, ...], Progress]] = {}

    def look(self) -> dict[str, Any]:
        """All runs, those that are not done with their curves; and a version, which changes when the report does."""
        runs, left_out = self.folder.scan()
        found = [self._progress(name, path) for name, path in runs.items()]
        return {
            "version": self._version(runs),
            "runs": [one.to_json() if one.state != DONE else {"name": one.name, "state": one.state} for one in found],
            "left_out": left_out,
        }

    def version(self) -> str:
        """A name for what a report would be made of now."""
        return self._version(self.folder.runs())

    def _version(self, runs: Mapping[str, Path]) -> str:
        digest = hashlib.sha256()
        for name, path in runs.items():
            digest.update(repr((name, [_stamp(path / file) for file in _REPORTED], _stamp(path / "audit"))).encode())
        digest.update(repr([_stamp(self.folder.root / file) for file in ("results.json", "audit")]).encode())
        return digest.hexdigest()[:16]

    def _progress(self, name: str, path: Path) -> Progress:
        stamp = (*_stamp(path / "log.jsonl"), *_stamp(path / "config.yaml"))
        if path not in self._known or self._known[path][0] != stamp:
            self._known[path] = stamp, progress_of(name, path)
        return self._known[path][1]


def progress_of(name: str, folder: Path) -> Progress:
    """Read one run's log, as far as it is written."""
    events = _events(folder / "log.jsonl")
    starts = [event for event in events if event.get("event") == "start"]
    curve = [{key: event.get(key) for key in _CURVE} for event in events if event.get("event") == "epoch"]
    last = events[-1] if events else {}
    state = TRAINING
    if last.get("event") == "end":
        state = NOTHING if last.get("came_to_nothing") else STOPPED if last.get("interrupted") else DONE
    step = next((int(event["step"]) for event in reversed(events) if isinstance(event.get("step"), int)), 0)
    steps = starts[-1].get("steps") if starts else None
    return Progress(name, _settings(folder / "config.yaml"), state, step, steps if isinstance(steps, int) else None, curve)


def _events(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; the last one may be being written."""
    try:
        with path.open("rb") as file:
            body = file.read(_LONGEST)
    except OSError:
        return []
    found = []
    for line in body[: body.rfind(b"\n") + 1].splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def _settings(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            body = yaml.safe_load(file.read(_LONGEST))
    except (OSError, yaml.YAMLError):
        return {}
    return body if isinstance(body, dict) else {}


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
