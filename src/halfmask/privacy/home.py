"""Where Halfmask keeps what must not travel with a run: ledgers, caches of private features, the fingerprints' key."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """`$HALFMASK_HOME`, or a folder of the user's data directory; readable by its owner alone."""
    path = Path(os.environ.get("HALFMASK_HOME") or platformdirs.user_data_dir("halfmask"))
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def private_folder(*parts: str) -> Path:
    """A folder below `home`, readable by its owner alone."""
    path = home().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
