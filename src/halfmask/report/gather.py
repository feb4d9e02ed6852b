"""What run folders say, read for a report: their settings, scores, certificates and logs, and which runs differ in what.

A report is made of released files alone. Runs that are still training, were stopped, or came to nothing are read as far as they have
come, and say so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import METHODS
from halfmask.report.tables import UNKNOWN

# The same reader in C, ten times as fast, where PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# How deep below a folder runs are looked for: a folder of sweeps, whose runs lie in `runs`.
_DEPTH = 3
# What tells lines of a chart apart by switches of their own; and settings that say nothing about how a run was made.
_SWITCHED = ("method", "epsilon", "clip_norm", "seed", "strategy")
_IDLE = ("device", "even_so", "chunk", "insecure_seed", "unsafe_diagnostics", "budget")
# What a report needs of every certificate.
_STATED = ("epsilon", "adjacency", "delta", "unit", "units", "weights_sha256")
TRAINING, STOPPED, DONE, NOTHING = "training", "stopped", "done", "came to nothing"


@dataclass(frozen=True)
class ReportRun:
    """A run folder, read.

    Attributes:
        name: where it lies below the folder that was asked for, or its own name.
        config: its settings as they were written.
        scores: the content of `metrics.json`; empty for a run that was not judged.
        certificate: the content of `certificate.json`; empty where there is none.
        statement: `certificate.md`.
        variant: settings in which it differs from others of the report, besides those that have a switch.
    """

    folder: Path
    name: str
    config: Mapping[str, Any]
    scores: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    statement: str = ""
    log: Sequence[Mapping[str, Any]] = ()
    variant: str = ""

    @property
    def task(self) -> str:
        """What it learns."""
        return str(self.config.get("task", "own"))

    @property
    def dataset(self) -> str:
        """What its dataset is called."""
        return str(self.scores.get("dataset") or _group(self.config, "data").get("name", UNKNOWN))

    @property
    def group(self) -> str:
        """Runs of one group can be compared: one task, one dataset."""
        return f"{self.task} on {self.dataset}"

    @property
    def method(self) -> str:
        """How it was trained."""
        return str(self.config.get("method", UNKNOWN))

    @property
    def noised(self) -> bool:
        """Whether private records were read through noise: else ε and clip norm mean nothing."""
        return self.method not in METHODS or METHODS[self.method].private == "noised"

    @property
    def epsilon(self) -> float | None:
        """The ε that was asked for."""
        value = self.config.get("epsilon") if self.noised else None
        return None if value is None else float(value)

    @property
    def clip_norm(self) -> float | None:
        """The clip norm that was asked for."""
        value = self.config.get("clip_norm") if self.noised else None
        return None if value is None else float(value)

    @property
    def strategy(self) -> str:
        """Which part of the network trained, from which start."""
        return str(self.config.get("strategy", UNKNOWN))

    @property
    def view(self) -> str | None:
        """What it takes to be public; None for a method that looks at no view."""
        if self.method in METHODS and not METHODS[self.method].view:
            return None
        view = _group(self.config, "view")
        options = view.get("options") if isinstance(view.get("options"), Mapping) else None
        words = [f"{name} {value}" for name, value in (options or {}).items()]
        return f"{view.get('name', UNKNOWN)}{' (' + ', '.join(words) + ')' if words else ''}"

    @property
    def seed(self) -> int:
        """The seed of its public draws."""
        return int(self.config.get("seed") or 0)

    @property
    def bound(self) -> float | None:
        """The ε that its certificate states at its own adjacency, which may be infinite; None where nothing is stated."""
        value = self.certificate["epsilon"].get(self.certificate["adjacency"]) if self.certificate else None
        return None if value is None else math.inf if value == "infinity" else float(value)

    @property
    def label(self) -> str:
        """What it is called where there are several."""
        parts = [self.method]
        parts += [] if self.epsilon is None else [f"ε={self.epsilon:g}"]
        parts += [] if self.clip_norm is None else [f"C={self.clip_norm:g}"]
        return " ".join([*parts, f"seed {self.seed}"])

    @property
    def state(self) -> str:
        """How far it has come."""
        last = self.log[-1] if self.log else {}
        if last.get("came_to_nothing"):
            return NOTHING
        if last.get("event") != "end":
            return TRAINING
        return DONE if last.get("interrupted") is False else STOPPED

    @property
    def metrics(self) -> dict[str, float]:
        """What was measured, by name."""
        found = self.scores.get("metrics")
        return {str(n): float(v) for n, v in found.items() if isinstance(v, int | float)} if isinstance(found, Mapping) else {}

    @property
    def judged_on(self) -> int | None:
        """How many test records it was judged on; None where its log does not say."""
        found = next((line["test_records"] for line in self.log if "test_records" in line), None)
        return int(found) if found else None

    @property
    def epochs(self) -> list[Mapping[str, Any]]:
        """The lines of its log that end an epoch."""
        return [line for line in self.log if line.get("event") == "epoch"]


def gather(folders: Sequence[Path]) -> list[ReportRun]:
    """All runs at or below these folders, baselines first, then by method, ε and clip norm."""
    found: dict[Path, ReportRun] = {}
    for folder in folders:
        if not folder.is_dir():
            raise HalfmaskError(f"no folder at {folder}: give the folder of a run that 'halfmask train' wrote, or of a sweep by 'compare'")
        for place in run_folders(folder):
            name = folder.name if place == folder else place.relative_to(folder).as_posix()
            found.setdefault(place.resolve(), _read(place, name.removeprefix("runs/")))
    order = list(METHODS)
    runs = sorted(
        found.values(),
        key=lambda run: (
            run.group,
            order.index(run.method) if run.method in order else len(order),
            run.strategy,
            run.view or "",
            run.epsilon or 0.0,
            run.clip_norm or 0.0,
            run.seed,
            run.name,
        ),
    )
    return _told_apart(runs)


def run_folders(folder: Path, depth: int = _DEPTH) -> list[Path]:
    """The run folders at or below a folder; links are not followed, so that nothing outside it is read."""
    if is_own(folder / "config.yaml"):
        return [folder]
    if depth == 0:
        return []
    inside = [child for child in sorted(folder.iterdir()) if child.is_dir() and not child.is_symlink() and not child.name.startswith(".")]
    return [run for child in inside for run in run_folders(child, depth - 1)]


def _read(folder: Path, name: str) -> ReportRun:
    try:
        config = yaml.load((folder / "config.yaml").read_text(), _LOADER)
    except (yaml.YAMLError, UnicodeDecodeError):
        config = None
    if not isinstance(config, dict):
        raise HalfmaskError(f"{folder / 'config.yaml'} holds no settings: expected those that a run wrote; leave the folder out")
    statement, certificate = folder / "certificate.md", _json(folder / "certificate.json")
    missing = [key for key in _STATED if key not in certificate] if certificate else []
    if missing or (certificate and certificate["adjacency"] not in certificate["epsilon"]):
        raise HalfmaskError(
            f"{folder / 'certificate.json'} lacks {', '.join(missing) or 'ε at its own adjacency'}: expected what a run wrote, of this "
            "version; leave the folder out"
        )
    return ReportRun(
        folder,
        name,
        config,
        _json(folder / "metrics.json"),
        certificate,
        statement.read_text() if is_own(statement) else "",
        _lines(folder / "log.jsonl"),
    )


def is_own(path: Path) -> bool:
    """Whether a file is there and lies where it seems to: no link is followed out of a folder that a page is made of."""
    return path.is_file() and not path.is_symlink()


def _json(path: Path) -> dict[str, Any]:
    if not is_own(path):
        return {}
    try:
        body = json.loads(path.read_text())
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise HalfmaskError(f"{path} is not what a run writes there: expected JSON with names and values; leave the folder out")
    return body


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; one that is being written at this moment is not yet one."""
    found = []
    for text in path.read_text().splitlines() if is_own(path) else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def _told_apart(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Each run with the settings in which those of its group differ: runs that differ in more than their seed are not averaged."""
    flat = {run.folder: dict(_flattened(run.config)) for run in runs}
    varied: dict[str, list[str]] = {}
    for group in dict.fromkeys(run.group for run in runs):
        members = [flat[run.folder] for run in runs if run.group == group]
        names = dict.fromkeys(name for one in members for name in one)
        varied[group] = [name for name in names if len({json.dumps(one.get(name), default=str) for one in members}) > 1]
    return [
        ReportRun(
            **{name: getattr(run, name) for name in ReportRun.__dataclass_fields__ if name != "variant"},
            variant=", ".join(f"{name}={flat[run.folder].get(name)}" for name in varied[run.group]),
        )
        for run in runs
    ]


def _flattened(config: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in config.items():
        whole = f"{above}{name}"
        if whole in (*_SWITCHED, *_IDLE, "view"):
            continue
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{whole}.")
        else:
            yield whole, value


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}
