"""Whether locks hold where ledgers lie.

Two runs that spend on the same people at once are told apart by a lock on a file. On a disk of one machine it holds. On a file system that
several machines share it may not: some have no locks, some keep them to each machine by itself. Without a lock two runs could be promised
the same rest of a budget, so such a home is refused before anything is written to it.

What can be tried is tried: one process holds a lock, and another must fail to take it. That both are on one machine says nothing about two
machines, so mounts that say of themselves that locks stay on one machine are refused as well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from halfmask.errors import HalfmaskError

# Disks of this machine alone, whose locks nobody need try. All others are tried, also those nobody has heard of.
_OWN_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay"})
# Mounts that keep locks to themselves (NFS, Lustre, SMB).
_KEPT_TO_ONE_MACHINE = frozenset({"nolock", "local_lock=flock", "local_lock=all", "localflock", "nobrl"})
_MOUNTS = Path("/proc/self/mountinfo")
_TRY = "import sys, filelock\ntry:\n    filelock.FileLock(sys.argv[1], timeout=0).acquire()\nexcept filelock.Timeout:\n    sys.exit(7)\n"
_HELD, _SECONDS = 7, 60

_found_good: set[tuple[Path, bool]] = set()


def check_locks(folder: Path, even_own_disks: bool = False) -> None:
    """Refuse a folder whose locks do not hold; asked again, a process remembers what it found.

    Args:
        even_own_disks: try the lock of a disk of this machine, too.
    """
    if (folder, even_own_disks) in _found_good:
        return
    kind, options = _mount_of(folder)
    alone = sorted(_KEPT_TO_ONE_MACHINE & options)
    if alone:
        raise _refused(folder, f"it is on a mount ({kind}, {', '.join(alone)}) whose locks hold on one machine only")
    if kind not in _OWN_DISKS or even_own_disks:
        _try(folder, kind)
    _found_good.add((folder, even_own_disks))


def _try(folder: Path, kind: str) -> None:
    path = folder / "lock-trial"
    try:
        with FileLock(path, timeout=_SECONDS, mode=0o600):
            other = subprocess.run([sys.executable, "-c", _TRY, str(path)], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, NotImplementedError, subprocess.TimeoutExpired) as error:
        raise _refused(folder, f"a lock cannot be taken there ({kind}: {error})") from None
    if other.returncode == 0:
        raise _refused(folder, f"two processes held one lock at the same time ({kind})")
    if other.returncode != _HELD:
        told = other.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise _refused(folder, f"a lock could not be tried there ({kind}: {' '.join(told) or other.returncode})")


def _refused(folder: Path, found: str) -> HalfmaskError:
    return HalfmaskError(
        f"the ledgers are in {folder}, and {found}: two runs at once could be promised the same budget. Set HALFMASK_HOME to a disk of one "
        "machine, or to a file system whose locks hold across machines; on a cluster, 'halfmask compare --ray' spends through one machine"
    )


def _mount_of(folder: Path) -> tuple[str, frozenset[str]]:
    """The kind of file system that a folder is on, and the options it is mounted with; where that cannot be read, nothing is known."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return "unknown", frozenset()
    place, best, found = folder.resolve(), -1, ("unknown", frozenset[str]())
    for line in lines:
        fields, _, rest = line.partition(" - ")
        at = Path(fields.split()[4].replace("\\040", " "))
        if (at == place or at in place.parents) and len(at.parts) >= best:
            kind, _, *more = rest.split()
            best, found = len(at.parts), (kind, frozenset(",".join([fields.split()[5], *more]).split(",")))
    return found
