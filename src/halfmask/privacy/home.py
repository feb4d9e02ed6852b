"""Where Halfmask keeps what must not travel with a run: ledgers, caches of private features, the fingerprints' key."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from halfmask.errors import HalfmaskError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# A disk that is full or read-only is told of where all writes are.
_NOT_A_FOLDER = (FileExistsError, NotADirectoryError, FileNotFoundError)

_SHUT: ContextVar[bool] = ContextVar("private storage is shut", default=False)


@contextmanager
def shut() -> Iterator[None]:
    """Within, private storage cannot be had: for work whose results are shown to whoever asks, so that none of it can get among them."""
    before = _SHUT.set(True)
    try:
        yield
    finally:
        _SHUT.reset(before)


def home_path() -> Path:
    """Where `home` is, or would be: for whoever must keep away from it. Nothing is made."""
    return Path(os.environ.get("HALFMASK_HOME") or platformdirs.user_data_dir("halfmask"))


def home() -> Path:
    """`$HALFMASK_HOME`, or a folder of the user's data directory; readable by its owner alone."""
    path = home_path()
    if _SHUT.get():
        raise HalfmaskError(f"{path} holds private data, which nothing that is shown to others is made of: ask on the command line")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except _NOT_A_FOLDER as error:
        raise _no_folder(path, error) from None
    return _closed(path)


def private_folder(*parts: str) -> Path:
    """A folder below `home`, readable by its owner alone; so are those on the way to it."""
    path = home()
    for part in parts:
        path = _closed(path / part)
    return path


@contextmanager
def throwaway_home() -> Iterator[Path]:
    """A folder that is thrown away, with a home in it: whatever is spent or kept in the meantime is nobody's."""
    before = os.environ.get("HALFMASK_HOME")
    with tempfile.TemporaryDirectory(prefix="halfmask-") as folder:
        os.environ["HALFMASK_HOME"] = str(Path(folder) / "home")
        try:
            yield Path(folder)
        finally:
            if before is None:
                os.environ.pop("HALFMASK_HOME")
            else:
                os.environ["HALFMASK_HOME"] = before


def folder_lock(folder: Path) -> FileLock:
    """Keeps every other process off a run's folder until it is released; refused where one is at work on it.

    It lies here: a run folder holds what is released, and nothing else.
    """
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]
    lock = FileLock(private_folder("locks") / f"{name}.lock", timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise HalfmaskError(f"another process is at work on {folder}: wait for it, or stop it first") from None
    return lock


def _closed(path: Path) -> Path:
    """The folder, made if need be, and closed to others: also one that was there before, made by hand or by a careless copy."""
    try:
        path.mkdir(exist_ok=True, mode=stat.S_IRWXU)
    except _NOT_A_FOLDER as error:
        raise _no_folder(path, error) from None
    if not hasattr(os, "getuid"):  # a system without owners and modes
        return path
    status = path.stat()
    if not status.st_mode & _OTHERS:
        return path
    found = f"{path} holds private data and is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_uid != os.getuid():
        raise HalfmaskError(
            f"{found}; it belongs to user {status.st_uid}, who must close it ('chmod 700'): or set HALFMASK_HOME to a folder of your own"
        )
    try:
        path.chmod(stat.S_IRWXU)
    except OSError as error:
        raise HalfmaskError(
            f"{found}, and cannot be closed: {error.strerror}. Set HALFMASK_HOME to a folder on a disk that keeps modes"
        ) from None
    return path


def _no_folder(path: Path, error: OSError) -> HalfmaskError:
    return HalfmaskError(
        f"{path} is to hold ledgers and private data, and no such folder can be made: {error.strerror}. Nothing is spent without a ledger: "
        "set HALFMASK_HOME to a folder that can be written"
    )
