from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy import locking
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.locking import check_locks

MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / {place} rw,relatime shared:2 - {kind} server:/export rw,{options}
"""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch) -> None:
    monkeypatch.setattr(locking, "_found_good", set())


@pytest.fixture
def mounted(monkeypatch, tmp_path):
    """Says that a folder is on some file system."""

    def mount(kind: str, options: str = "hard") -> Path:
        table, place = tmp_path / "mountinfo", tmp_path / "shared home"
        (place / "ledgers").mkdir(parents=True, exist_ok=True)
        table.write_text(MOUNTS.format(place=str(place).replace(" ", "\\040"), kind=kind, options=options))
        monkeypatch.setattr(locking, "_MOUNTS", table)
        return place / "ledgers"

    return mount


def test_a_file_system_that_locks_is_good(mounted, monkeypatch) -> None:
    folder = mounted("nfs4")
    check_locks(folder)
    monkeypatch.setattr(locking, "_try", lambda *a: pytest.fail("asked twice"))
    check_locks(folder)


@pytest.mark.parametrize("kind", ["nfs4", "fuse.something", "unheard-of"])
def test_one_that_lets_two_hold_a_lock_is_refused(mounted, monkeypatch, kind) -> None:
    folder = mounted(kind)
    # What a file system without locks looks like: the first process believes that it holds one.
    monkeypatch.setattr(locking, "FileLock", lambda *a, **k: nullcontext())
    with pytest.raises(HalfmaskError, match="two processes held one lock at the same time"):
        check_locks(folder)
    with pytest.raises(HalfmaskError, match="two processes"), Ledger("dataset", folder).locked():
        pass
    assert not list(folder.glob("*.jsonl"))


def test_one_without_locks_is_refused(mounted, monkeypatch) -> None:
    def unable(*a, **k):
        raise OSError(95, "Operation not supported")

    folder = mounted("lustre")
    monkeypatch.setattr(locking, "FileLock", unable)
    with pytest.raises(HalfmaskError, match="cannot be taken there"):
        check_locks(folder)


@pytest.mark.parametrize(
    "kind, options", [("nfs", "vers=3,nolock"), ("nfs4", "local_lock=flock"), ("lustre", "localflock"), ("cifs", "nobrl")]
)
def test_mounts_that_keep_locks_to_one_machine_are_refused(mounted, kind, options) -> None:
    with pytest.raises(HalfmaskError, match="hold on one machine only"):
        check_locks(mounted(kind, options))


def test_a_disk_of_this_machine_is_tried_only_if_asked(mounted, monkeypatch) -> None:
    folder, tried = mounted("ext4"), []
    monkeypatch.setattr(locking, "_try", lambda *a: tried.append(a))
    check_locks(folder)
    assert not tried
    check_locks(folder, even_own_disks=True)
    assert len(tried) == 1


def test_where_nothing_is_known_of_mounts_locks_are_tried(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(locking, "_MOUNTS", tmp_path / "nowhere")
    monkeypatch.setattr(locking, "FileLock", lambda *a, **k: nullcontext())
    with pytest.raises(HalfmaskError, match="two processes"):
        check_locks(tmp_path)
