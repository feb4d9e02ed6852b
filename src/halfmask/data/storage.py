"""What lies in private storage, and taking back the part of it that can be computed again.

Below `$HALFMASK_HOME` are copies of private people: their crops, what is public of them, features of a network, results of audits. A holder
must be able to see that they are there and to delete them. What was spent is remembered there too, and that is never deleted here: without
the ledgers, the key they are signed with and the records they were spent on, the same people would get a fresh budget.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.privacy.home import home

DRAFT = "draft-"
# A draft that nobody has written to for so long was left by a process that died.
_STALE_SECONDS = 3600.0

_HOLDS = {
    "records": "crops of people, private ones among them, with their joints",
    "regions": "where faces and other regions of photographs are",
    "views": "what is declared public of each crop",
    "features": "features of crops, from layers that do not train",
    "fingerprints": "keyed hashes and sealed sketches of crops made in memory",
    "overlaps": "which records recur in another part of their dataset",
    "audits": "what audits found about single people",
    "ledgers": "what was spent on each dataset, and keyed hashes of whom on",
    "locks": "which run folders are being worked on: empty files",
    "logs": "what libraries printed while workers of a sweep were at work",
    "key": "the secret that ledgers and hashes are keyed with",
}
_KEPT = {
    "ledgers": "they are the memory of what was spent: without them the same people would get a fresh budget",
    "locks": "a process may be holding one; they are empty",
    "key": "without it no ledger can be checked and nobody is recognised again",
    "other": "it is not known what they are",
}
_FOLDERS = ("audits", "ledgers", "locks", "logs")
# Results, not copies: only their holder can say that they are no longer wanted.
_ONLY_BY_NAME = ("audits",)


@dataclass(frozen=True)
class Stored:
    """One kind of private data, and where it is.

    Attributes:
        paths: its entries: a folder of arrays each for what is cached, files or folders for the rest.
        oldest, newest: when an entry was last written, in seconds since 1970; None if there is none.
    """

    kind: str
    place: Path
    paths: tuple[Path, ...]
    bytes: int
    oldest: float | None
    newest: float | None

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.paths)

    @property
    def holds(self) -> str:
        """What it is, in a few words."""
        return _HOLDS.get(self.kind, "arrays computed from records" if not self.kept else "files of unknown origin")

    @property
    def kept(self) -> str:
        """Why it is never deleted; empty if it may be."""
        return _KEPT.get(self.kind, "")

    @property
    def only_by_name(self) -> bool:
        """Whether it is deleted only where it is named."""
        return self.kind in _ONLY_BY_NAME

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "kind": self.kind,
            "holds": self.holds,
            "place": str(self.place),
            "entries": self.entries,
            "bytes": self.bytes,
            "oldest": day(self.oldest),
            "newest": day(self.newest),
            "can_be_cleared": not self.kept,
        }


@dataclass(frozen=True)
class Cleared:
    """What was deleted, and what not.

    Attributes:
        deleted: entries and bytes by kind.
        drafts: stale drafts, and their bytes.
        fresh_drafts: drafts that a process may still be writing, which were left alone.
        left: kinds that are still there, each with the reason.
    """

    deleted: dict[str, tuple[int, int]]
    drafts: tuple[int, int]
    fresh_drafts: int
    left: dict[str, str]


def stored() -> list[Stored]:
    """Everything below `$HALFMASK_HOME`, by kind; drafts aside."""
    root = home()
    # A file among cached arrays is none of ours, so it is not counted as one and never deleted.
    found = [_summed(path.name, path, [entry for entry in _entries(path) if entry.is_dir()]) for path in sorted(_folders(root / "cache"))]
    for kind in _FOLDERS:
        if (root / kind).is_dir():
            found.append(_summed(kind, root / kind, _entries(root / kind)))
    loose = [path for path in sorted(root.iterdir()) if path.name not in ("cache", *_FOLDERS)]
    keys = [path for path in loose if path.suffix == ".key"]
    others = [path for path in loose if path.suffix != ".key"]
    found += [_summed(kind, root, paths) for kind, paths in (("key", keys), ("other", others)) if paths]
    return found


def clear(kinds: Sequence[str] = ()) -> Cleared:
    """Delete what can be computed again: all of it, or the kinds that are named.

    Formal guarantee: no file of a ledger, no key and no `*.records` is touched. A process that works on a deleted entry keeps its mapping
    of it: on Linux the pages stay until it ends.
    """
    there = {one.kind: one for one in stored()}
    wanted = chosen(there.values(), kinds)
    deleted = {}
    for one in wanted:
        for path in one.paths:
            _delete(path)
        deleted[one.kind] = (one.entries, one.bytes)
    drafts, drafted, fresh = 0, 0, 0
    for path in _drafts():
        if time.time() - _newest(path) < _STALE_SECONDS:
            fresh += 1
            continue
        drafted += _size(path)
        drafts += 1
        _delete(path)
    left = {kind: one.kept or _why_left(one, kinds) for kind, one in there.items() if kind not in deleted and one.entries}
    return Cleared(deleted, (drafts, drafted), fresh, left)


def chosen(there: Iterable[Stored], kinds: Sequence[str]) -> list[Stored]:
    """The kinds that `clear` would delete. One that may not be deleted is refused by name."""
    by_name = {one.kind: one for one in there}
    for kind in kinds:
        if kind in _KEPT:
            raise HalfmaskError(f"'{kind}' are never deleted here: {_KEPT[kind]}. Name one of {', '.join(_clearable(by_name))}")
        if kind not in by_name and kind not in _HOLDS:
            raise unknown_name("kind of private storage", kind, _clearable(by_name))
    return [one for one in by_name.values() if not one.kept and (one.kind in kinds if kinds else not one.only_by_name)]


def drafts_waiting() -> tuple[int, int]:
    """Half-written entries, left by processes that died or still being written; and their bytes."""
    paths = list(_drafts())
    return len(paths), sum(_size(path) for path in paths)


def day(seconds: float | None) -> str | None:
    """A moment as one reads it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _clearable(there: Iterable[str]) -> list[str]:
    return sorted({*_HOLDS, *there} - _KEPT.keys())


def _why_left(one: Stored, kinds: Sequence[str]) -> str:
    return f"deleted only by name: halfmask cache clear {one.kind}" if one.only_by_name and not kinds else "not asked for"


def _entries(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(DRAFT)]


def _summed(kind: str, place: Path, paths: Sequence[Path]) -> Stored:
    times = [_newest(path) for path in paths]
    return Stored(kind, place, tuple(paths), sum(map(_size, paths)), min(times, default=None), max(times, default=None))


def _folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()) if folder.is_dir() else iter(())


def _drafts() -> Iterator[Path]:
    return (path for kind in _folders(home() / "cache") for path in sorted(kind.glob(f"{DRAFT}*")))


def _files(path: Path) -> Iterator[os.stat_result]:
    """The files of an entry, as far as they are still there: another process may be clearing too."""
    for inner in [path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())]:
        try:
            yield inner.lstat()
        except FileNotFoundError:
            continue


def _size(path: Path) -> int:
    # What a file takes on disk: a mapping that was never filled takes nothing.
    return sum(512 * status.st_blocks for status in _files(path))


def _newest(path: Path) -> float:
    return max((status.st_mtime for status in _files(path)), default=0.0)


def _delete(path: Path) -> None:
    """Take an entry out of its place whole, then delete it: no reader ever finds half of one."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
        return
    away = Path(tempfile.mkdtemp(prefix=DRAFT, dir=path.parent))
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, away / path.name)
    shutil.rmtree(away)
