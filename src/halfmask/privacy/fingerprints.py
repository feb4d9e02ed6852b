"""Provisional: exact recognition alone."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfmask.errors import HalfmaskError
from halfmask.privacy.home import home

_NAMES = ("exact", "bands", "sealed", "annotations", "subjects")


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
    exact: np.ndarray
    bands: np.ndarray
    sealed: np.ndarray
    annotations: np.ndarray
    subjects: np.ndarray

    def __len__(self) -> int:
        return len(self.exact)

    def take(self, rows: np.ndarray) -> Fingerprints:
        return Fingerprints(*(getattr(self, name)[rows] for name in _NAMES))

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Fingerprints:
        return cls(*(arrays[name] for name in _NAMES))

    @classmethod
    def joined(cls, parts: Sequence[Fingerprints]) -> Fingerprints:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES))

    @property
    def dataset(self) -> str:
        digest = hashlib.sha256()
        for record in sorted({row.tobytes() for row in self.exact}):
            digest.update(record)
        return keyed_hash(digest.digest()).hex()

    def in_pictures_of(self, other: Fingerprints) -> np.ndarray:
        known = {row.tobytes() for row in other.exact}
        return np.array([row.tobytes() in known for row in self.exact], bool)

    def in_subjects_of(self, other: Fingerprints) -> np.ndarray:
        known = {row.tobytes() for row in other.subjects if row.any()}
        return np.array([row.tobytes() in known for row in self.subjects], bool)

    def save(self, folder: Path) -> None:
        path = folder / f"{self.dataset}.records"
        if path.exists():
            return
        with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            np.savez(file, **self.arrays())

    @classmethod
    def load(cls, path: Path) -> Fingerprints:
        return cls.from_arrays(dict(np.load(path)))


def fingerprint_picture(image: np.ndarray, secret: bytes | None = None) -> dict[str, np.ndarray]:
    row = np.frombuffer(keyed_hash(b"exact" + str(image.shape).encode() + np.ascontiguousarray(image).tobytes(), secret), np.uint8)
    return {"exact": row, "bands": np.zeros(8, np.uint8), "sealed": np.zeros(8, np.uint8)}


def fingerprint_name(kind: str, name: str, secret: bytes | None = None) -> np.ndarray:
    return np.frombuffer(keyed_hash(f"{kind}/{name}".encode(), secret), np.uint8)


def fingerprint_annotation(points: np.ndarray, secret: bytes | None = None) -> np.ndarray:
    if (np.asarray(points)[:, 2] > 0).sum() < 6:
        return np.zeros(16, np.uint8)
    return np.frombuffer(keyed_hash(b"annotation" + np.ascontiguousarray(points, np.float64).tobytes(), secret), np.uint8)


def fingerprint_images(images: np.ndarray) -> Fingerprints:
    secret = key()
    rows = [fingerprint_picture(np.ascontiguousarray(image.transpose(1, 2, 0)), secret) for image in images]
    empty = np.zeros((len(rows), 16), np.uint8)
    return Fingerprints(*(np.stack([row[name] for row in rows]) for name in ("exact", "bands", "sealed")), empty, empty.copy())
