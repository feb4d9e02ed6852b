"""Files are written whole or not at all, and one line says why not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.writing import append_line, is_about_writing, not_written, write_whole, writing


@pytest.mark.parametrize(
    "number, reason, remedy",
    [
        (errno.ENOSPC, "no space is left on the disk", "free some space"),
        (errno.EDQUOT, "the disk quota is used up", "free some space"),
        (errno.EROFS, "the disk is read-only", "make it writable"),
        (errno.EACCES, "permission is denied", "make the folder writable"),
        (errno.EIO, os.strerror(errno.EIO), "mend that"),
        (None, "3 requested and 1 written; the disk is probably full", "free some space"),
    ],
)
def test_what_is_said(number: int | None, reason: str, remedy: str, tmp_path: Path) -> None:
    error = OSError("3 requested and 1 written") if number is None else OSError(number, os.strerror(number))
    with pytest.raises(HalfmaskError) as told, writing(tmp_path / "file", "go on"):
        raise error
    assert str(told.value).startswith(f"{tmp_path / 'file'} could not be written: {reason}. What was spent stays on record: {remedy}")
    assert str(told.value).endswith(", then go on") and told.value.__cause__ is error


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing(tmp_path):
        raise ZeroDivisionError


def test_which_errors_are_about_writing() -> None:
    assert is_about_writing(OSError(errno.ENOSPC, "")) and is_about_writing(OSError(errno.EROFS, "", "name"))
    assert is_about_writing(PermissionError(errno.EACCES, "")) and not is_about_writing(PermissionError(errno.EACCES, "", "name"))
    assert not is_about_writing(FileNotFoundError(errno.ENOENT, "", "name")) and not is_about_writing(OSError("odd"))
    assert "the disk is probably full" in not_written("a file", OSError())


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "")))
            with pytest.raises(OSError):
                write_whole(path, b"new and longer")
        assert path.read_bytes() == b"old" and [one.name for one in tmp_path.iterdir()] == ["file"]
    write_whole(path, memoryview(b"new"))
    assert path.read_bytes() == b"new"


def test_a_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_line(path, "one")
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # A file of at most ten bytes: the real write stops in the middle of the line.
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OSError):
            append_line(path, "a line that is too long")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"
