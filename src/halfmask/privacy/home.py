"""Where Halfmask keeps what must not travel with a run: ledgers, caches of private features, the fingerprints' key."""

from __future__ import annotations

import hashlib
import hmac
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


def fingerprint(text: str | bytes) -> str:
    """A keyed hash: the same here for the same data, and meaningless to anyone without this machine's key."""
    key_file = home() / "fingerprint.key"
    if not key_file.exists():
        try:
            with open(os.open(key_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(os.urandom(32))
        except FileExistsError:
            pass
    data = text.encode() if isinstance(text, str) else text
    return hmac.new(key_file.read_bytes(), data, hashlib.sha256).hexdigest()[:32]
