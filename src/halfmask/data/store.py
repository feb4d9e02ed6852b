"""Arrays that are computed once and kept on disk, in private storage."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

from halfmask.privacy.home import private_folder


def cached(kind: str, key: str, build: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of `build`, memory-mapped from disk; built only if nothing is stored under `key`.

    A half-written entry is never seen: it is written beside its place and moved there whole. Files are readable by their owner alone,
    because they hold private images or features of them.
    """
    parent = private_folder("cache", kind)
    place = parent / hashlib.sha256(key.encode()).hexdigest()[:24]
    if not place.is_dir():
        arrays = build()
        draft = tempfile.mkdtemp(prefix="draft-", dir=parent)
        try:
            for name, array in arrays.items():
                path = os.path.join(draft, f"{name}.npy")
                np.save(path, array)
                os.chmod(path, 0o600)
            os.rename(draft, place)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if not place.is_dir():
                raise
    return {path.stem: np.load(path, mmap_mode="c") for path in sorted(place.glob("*.npy"))}
