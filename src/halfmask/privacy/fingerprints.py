"""Recognising a dataset, also under another name.

Each record gets two keyed hashes: of its exact pixels, and of a coarse sketch of them that survives re-encoding. They are kept beside the
ledger, in private storage. A dataset that shares records with another one shares its spending, too: a copy, a re-export or a subset does
not get a fresh budget.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.privacy.home import home, private_folder

# Different people may look alike in a sketch of 64 bits (an empty frame, a dark room), so a few such matches mean nothing.
_SKETCH_SHARE = 0.05


def key() -> bytes:
    """This machine's secret key, made on first use. Without it a fingerprint says nothing about a record."""
    path = home() / "fingerprint.key"
    if not path.exists():
        # Written beside its place and linked there whole: a reader never sees a key that is not all there.
        draft = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    secret = path.read_bytes()
    if len(secret) != 32:
        raise HalfmaskError(
            f"the key {path} is damaged ({len(secret)} bytes, expected 32): restore it from a backup, or the ledgers are lost"
        )
    return secret


def keyed_hash(data: bytes, secret: bytes | None = None) -> bytes:
    """16 bytes that name `data` to whoever has the key."""
    return hmac.new(secret or key(), data, hashlib.sha256).digest()[:16]


@dataclass(frozen=True)
class Fingerprints:
    """The records of a dataset, recognisable and unreadable."""

    exact: frozenset[bytes]
    sketches: frozenset[bytes]

    @property
    def dataset(self) -> str:
        """A name for the set of records, whatever their order."""
        digest = hashlib.sha256()
        for record in sorted(self.exact):
            digest.update(record)
        return keyed_hash(digest.digest()).hex()

    def overlaps(self, other: Fingerprints) -> bool:
        """Whether the two share a record."""
        if self.exact & other.exact:
            return True
        alike = len(self.sketches & other.sketches)
        return alike > _SKETCH_SHARE * min(len(self.sketches), len(other.sketches))

    def save(self, folder: Path) -> None:
        """Keep them beside the dataset's ledger."""
        path = folder / f"{self.dataset}.records"
        if path.exists():
            return
        draft = path.with_suffix(f".{os.getpid()}.draft")
        with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            file.write(len(self.exact).to_bytes(8, "big") + b"".join(sorted(self.exact)) + b"".join(sorted(self.sketches)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)

    @classmethod
    def load(cls, path: Path) -> Fingerprints:
        """Read what `save` wrote."""
        body = path.read_bytes()
        split = 8 + 16 * int.from_bytes(body[:8], "big")
        cut = lambda part: frozenset(part[i : i + 16] for i in range(0, len(part), 16))  # noqa: E731
        return cls(cut(body[8:split]), cut(body[split:]))


def fingerprint_images(images: np.ndarray) -> Fingerprints:
    """Fingerprints of records given as bytes, N×3×H×W."""
    secret = key()
    exact, sketches = set(), set()
    for image in images:
        exact.add(keyed_hash(b"exact" + image.tobytes(), secret))
        sketches.add(keyed_hash(b"sketch" + _sketch(image), secret))
    return Fingerprints(frozenset(exact), frozenset(sketches))


def overlapping(fingerprints: Fingerprints, folder: Path | None = None) -> list[str]:
    """Names of other known datasets that share records with this one."""
    folder = folder or private_folder("ledgers")
    return sorted(
        path.stem
        for path in folder.glob("*.records")
        if path.stem != fingerprints.dataset and fingerprints.overlaps(Fingerprints.load(path))
    )


def _sketch(image: np.ndarray) -> bytes:
    """Whether each of 8×8 coarse cells is brighter than its right neighbour: unmoved by compression, brightness and size."""
    grey = cv2.cvtColor(np.ascontiguousarray(image.transpose(1, 2, 0)), cv2.COLOR_RGB2GRAY)
    cells = cv2.resize(grey, (9, 8), interpolation=cv2.INTER_AREA).astype(np.int16)
    return np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes()
