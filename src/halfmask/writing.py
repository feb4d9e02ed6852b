"""Writing files whole, or saying in one line why not.

A disk that is full, a quota that is used up and a folder that is read-only are nobody's bug, and they come in the middle of a run that has
spent budget. So each write ends in one of two ways: the file is there whole and on disk, or what was there before is untouched, nothing
half-written is left, and the error names the file, the reason and what to do. Libraries that write files themselves tell these errors in
ways of their own (a `RuntimeError` about positions, an `OSError` without a number): let them write to memory, and hand the bytes over here.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from halfmask.errors import HalfmaskError

STILL_ON_RECORD = "What was spent stays on record"

_REASONS = {
    errno.ENOSPC: ("no space is left on the disk", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or have the quota raised"),
    errno.EROFS: ("the disk is read-only", "make it writable"),
    errno.EACCES: ("permission is denied", "make the folder writable for this user"),
    errno.EPERM: ("permission is denied", "make the folder writable for this user"),
}


@contextlib.contextmanager
def writing(path: Path, then: str = "start again") -> Iterator[None]:
    """Turn an `OSError` of a write into one line: what was not written, why, and what to do.

    Args:
        path: what is being written.
        then: what to do once the reason is mended.
    """
    try:
        yield
    except OSError as error:
        raise HalfmaskError(not_written(str(path), error, then)) from error


def not_written(what: str, error: OSError, then: str = "start again, or go on with --resume") -> str:
    """The line about a file that could not be written."""
    reason, remedy = _REASONS.get(error.errno or 0, (error.strerror or "", "mend that"))
    if not reason:
        # numpy counts what it could write and gives no number for the reason, which is nearly always this one.
        reason, remedy = f"{error}; the disk is probably full" if str(error) else "the disk is probably full", "free some space"
    return f"{what} could not be written: {reason}. {STILL_ON_RECORD}: {remedy}, then {then}"


def is_about_writing(error: OSError) -> bool:
    """Whether an error can only, or without a file's name most likely, come from a write."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) or (error.filename is None and error.errno in _REASONS)


def write_whole(path: Path, body: bytes | memoryview) -> None:
    """Write a file beside its place, make it durable, and move it there: a reader sees the old one or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; a line that does not fit is taken back whole, so that the next one begins at its beginning."""
    # Unbuffered: a buffer would try again, on closing, to write what is being taken back.
    with path.open("ab", buffering=0) as file:
        before, rest = file.tell(), line.encode() + b"\n"
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except BaseException:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise
