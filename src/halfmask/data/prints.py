"""Whose records these are: fingerprints of the photographs that records were cut from, of their annotations and of their subjects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

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
    keyed_hash,
)

if TYPE_CHECKING:
    from halfmask.data.records import Records

_PREFIX = "print_"


def print_fields() -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """The kind and the shape of what is kept of one picture, to be filled in row by row and stored beside the crops."""
    return {f"{_PREFIX}{name}": (kind, shape) for name, (shape, kind) in _shapes().items()}


def empty_prints(count: int) -> dict[str, np.ndarray]:
    """Room in memory for the fingerprints of as many pictures."""
    return {name: np.zeros((count, *shape), kind) for name, (kind, shape) in print_fields().items()}


def print_picture(arrays: Mapping[str, Any], rows: Sequence[int], image: np.ndarray) -> None:
    """Fill in the rows of everybody who is on a picture, which was decoded and not yet cut."""
    fill_prints(arrays, rows, fingerprint_picture(image))


def fill_prints(arrays: Mapping[str, Any], rows: Sequence[int], found: dict[str, np.ndarray]) -> None:
    """Fill in the rows of everybody who is on a picture that was printed before."""
    for name, value in found.items():
        arrays[f"{_PREFIX}{name}"][list(rows)] = value


def people_prints(arrays: dict[str, np.ndarray], people: Sequence[Person]) -> Fingerprints:
    """The fingerprints of people whose pictures were printed, with their annotations and subjects."""
    secret, nobody = key(), np.zeros(16, np.uint8)
    pictures = {name: arrays[f"{_PREFIX}{name}"] for name in _shapes()}
    annotations = [fingerprint_annotation(person.joints, secret) for person in people]
    subjects = [fingerprint_name("subject", person.subject_name, secret) if person.subject_name else nobody for person in people]
    named = {"annotations": annotations, "subjects": subjects}
    return Fingerprints.from_arrays(pictures | {name: np.array(rows, np.uint8).reshape(len(people), 16) for name, rows in named.items()})


def named_prints(names: Sequence[str], subjects: Sequence[str] | None = None) -> Fingerprints:
    """Fingerprints of drawn people, who are known by name: the same whatever size they are drawn at."""
    secret = key()
    return Fingerprints.stacked(
        [{"exact": fingerprint_name("drawn", name, secret)} for name in names],
        subjects=None if subjects is None else [fingerprint_name("subject", subject, secret) for subject in subjects],
    )


def fingerprints_of(records: Records) -> Fingerprints:
    """Those that the records carry, or, for records that were made in memory, those of their pictures."""
    if records.prints is not None:
        return records.prints

    def pictures() -> Iterator[np.ndarray]:
        return (records.private.rows(np.array([row]))["image"][0] for row in range(len(records)))

    # Worth something under the key they were made with alone: under another one they are made anew.
    name = f"{records.key}/{keyed_hash(b'cache').hex()[:8]}"
    return Fingerprints.from_arrays(cached("fingerprints", name, lambda: fingerprint_images(pictures()).arrays()))


@cache
def _shapes() -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    trial = fingerprint_picture(np.zeros((16, 16, 3), np.uint8), bytes(32))
    return {name: (value.shape, value.dtype) for name, value in trial.items()}
