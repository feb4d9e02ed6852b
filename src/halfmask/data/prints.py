"""Whose records these are: fingerprints of the photographs that records were cut from, of their annotations and of their subjects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from halfmask.data.people import Person
from halfmask.data.store import cached
from halfmask.privacy.fingerprints import (
    Fingerprints,
    fingerprint_annotation,
    fingerprint_images,
    fingerprint_name,
    fingerprint_picture,
    key,
)

if TYPE_CHECKING:
    from halfmask.data.records import PoseRecords

_PREFIX = "print_"


def empty_prints(count: int) -> dict[str, np.ndarray]:
    """Room for the fingerprints of as many pictures, to be filled in row by row and stored beside the crops."""
    return {f"{_PREFIX}{name}": np.zeros((count, *shape), kind) for name, (shape, kind) in _shapes().items()}


def print_picture(arrays: dict[str, np.ndarray], rows: Sequence[int], image: np.ndarray) -> None:
    """Fill in the rows of everybody who is on a picture, which was decoded and not yet cut."""
    fill_prints(arrays, rows, fingerprint_picture(image))


def fill_prints(arrays: dict[str, np.ndarray], rows: Sequence[int], found: dict[str, np.ndarray]) -> None:
    """Fill in the rows of everybody who is on a picture that was printed before."""
    for name, value in found.items():
        arrays[f"{_PREFIX}{name}"][list(rows)] = value


def people_prints(arrays: dict[str, np.ndarray], people: Sequence[Person]) -> Fingerprints:
    """The fingerprints of people whose pictures were printed, with their annotations and subjects."""
    secret, nobody = key(), np.zeros(16, np.uint8)
    return Fingerprints(
        *(arrays[f"{_PREFIX}{name}"] for name in ("exact", "bands", "sealed")),
        _rows([fingerprint_annotation(person.joints, secret) for person in people]),
        _rows([fingerprint_name("subject", person.subject_name, secret) if person.subject_name else nobody for person in people]),
    )


def named_prints(names: Sequence[str], subjects: Sequence[str] | None = None) -> Fingerprints:
    """Fingerprints of drawn people, who are known by name: the same whatever size they are drawn at."""
    secret = key()
    blank = empty_prints(len(names))
    return Fingerprints(
        _rows([fingerprint_name("drawn", name, secret) for name in names]),
        blank[f"{_PREFIX}bands"],
        blank[f"{_PREFIX}sealed"],
        np.zeros((len(names), 16), np.uint8),
        np.zeros((len(names), 16), np.uint8) if subjects is None else _rows([fingerprint_name("subject", s, secret) for s in subjects]),
    )


def fingerprints_of(records: PoseRecords) -> Fingerprints:
    """Those that the records carry, or, for records that were made in memory, those of their crops."""
    if records.prints is not None:
        return records.prints
    return Fingerprints.from_arrays(cached("fingerprints", records.key, lambda: fingerprint_images(records.images).arrays()))


def _rows(hashes: list[np.ndarray]) -> np.ndarray:
    return np.stack(hashes) if hashes else np.zeros((0, 16), np.uint8)


@cache
def _shapes() -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    trial = fingerprint_picture(np.zeros((16, 16, 3), np.uint8), bytes(32))
    return {name: (value.shape, value.dtype) for name, value in trial.items()}
