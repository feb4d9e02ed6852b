"""Private storage: nobody else reads it."""

from __future__ import annotations

import stat
from pathlib import Path

from halfmask.privacy.home import home, private_folder


def test_home_is_where_the_environment_says_and_closed_to_others(fresh_home: Path) -> None:
    assert home() == fresh_home
    assert stat.S_IMODE(fresh_home.stat().st_mode) & 0o077 == 0


def test_folders_below_are_closed_too(fresh_home: Path) -> None:
    folder = private_folder("a", "b")
    assert folder == fresh_home / "a" / "b" and folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
