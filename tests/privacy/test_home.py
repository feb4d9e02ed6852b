"""Private storage: nobody else reads it, and fingerprints mean nothing without its key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from halfmask.privacy.home import fingerprint, home, private_folder


def test_home_is_where_the_environment_says_and_closed_to_others(fresh_home: Path) -> None:
    assert home() == fresh_home
    assert stat.S_IMODE(fresh_home.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(private_folder("a", "b").stat().st_mode) & 0o077 == 0


def test_a_fingerprint_is_stable_here(fresh_home: Path) -> None:
    assert fingerprint("people") == fingerprint(b"people") != fingerprint("others")
    assert stat.S_IMODE((fresh_home / "fingerprint.key").stat().st_mode) == 0o600
    assert len((fresh_home / "fingerprint.key").read_bytes()) == 32


def test_a_fingerprint_differs_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = []
    for name in ("one", "two"):
        monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / name))
        prints.append(fingerprint("people"))
    assert prints[0] != prints[1]
