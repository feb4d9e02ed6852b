"""Arrays that are computed once and kept on disk, in private storage."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from halfmask.data.storage import DRAFT
from halfmask.privacy.home import private_folder
from halfmask.writing import writing


def cached(kind: str, key: str, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of `build`, memory-mapped from disk; built only if nothing is stored under `key`.

    A half-written entry is never seen: it is written beside its place and moved there whole. Files are readable by their owner alone,
    because they hold private images or features of them.
    """
    parent = private_folder("cache", kind)
    place = parent / hashlib.sha256(key.encode()).hexdigest()[:24]
    found = _load(place)
    if not found:
        _write(parent, place, build())
        found = _load(place)
    return found


def _load(place: Path) -> dict[str, np.ndarray]:
    """The arrays of an entry; none if there is no such entry, or if it is cleared just now."""
    try:
        return {path.stem: np.load(path, mmap_mode="c") for path in sorted(place.glob("*.npy"))}
    except FileNotFoundError:
        return {}


def _write(parent: Path, place: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an entry whole. What is left of one that could not be finished is removed, whatever stopped it."""
    with writing(place, "start again ('halfmask cache clear' deletes what can be computed again)"):
        draft = tempfile.mkdtemp(prefix=DRAFT, dir=parent)
        try:
            for name, array in arrays.items():
                path = os.path.join(draft, f"{name}.npy")
                np.save(path, array)
                os.chmod(path, 0o600)
            os.rename(draft, place)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            # Another process may have been quicker; what it wrote serves as well.
            if not (isinstance(error, OSError) and place.is_dir()):
                raise
