"""Whose records these are: fingerprints of the photographs that records were cut from, of their annotations and of their subjects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from halfmask.data.people import Person
from halfmask.data.store import cached
from halfmask.privacy.fingerprints import (
    Fingerprints,
    fingerprint_annotation,
    fingerprint_name,
    fingerprint_picture,
    key,
    keyed_hash,
)
from halfmask.privacy.units import told_by_id

if TYPE_CHECKING:
    from halfmask.data.records import Records

_PREFIX = "print_"
# A field of so many numbers names a record by itself; fewer recur by chance, and all fields together have to do.
TELLING = 64
# A picture has sides of at least so many pixels; what is smaller has no sketch to be known by.
_LEAST_SIDE = 16


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
    """Those that the records carry, or, for records that were made in memory, those of what they hold."""
    if records.prints is not None:
        return records.prints

    def build() -> dict[str, np.ndarray]:
        secret, rows = key(), []
        for row in range(len(records)):
            at = np.array([row])
            fields = {name: value[0] for table in (records.private, records.targets) for name, value in table.rows(at).items()}
            rows.append(print_record(fields, "", secret))
        # The coarsest: whoever recurs by it recurs, whichever unit is protected.
        subject = next((unit for unit in reversed(records.unit_names()) if told_by_id(unit)), None)
        names = None if subject is None else [fingerprint_name(subject, str(one), secret) for one in records.unit_ids(subject)]
        return Fingerprints.stacked(rows, subjects=names).arrays()

    # Worth something under the key they were made with alone: under another one they are made anew.
    name = f"{records.key}/{_content(records)}/{keyed_hash(b'cache').hex()[:8]}"
    return Fingerprints.from_arrays(cached("fingerprints", name, build))


def print_record(fields: Mapping[str, np.ndarray], owner: str, secret: bytes) -> dict[str, np.ndarray]:
    """What a record is known again by: its largest field, whatever the others say; a picture also by its sketch.

    A label that was changed does not make somebody else of a person. Where the largest field is so small that equal ones are no sign
    of one person, all fields count, and whose they are.
    """
    # Of fields as large the one that says most: of tokens and their mask, the tokens. In whatever order they come.
    name = max(sorted(fields), key=lambda field: (fields[field].size, len(np.unique(fields[field]))))
    value = fields[name]
    seen = picture(value)
    if seen is not None:
        return fingerprint_picture(seen, secret)
    told = [value] if value.size >= TELLING else [fields[field] for field in sorted(fields)]
    digest = hashlib.sha256(owner.encode() if value.size < TELLING else b"")
    for one in told:
        # The same numbers in another precision or another shape are the same record.
        digest.update(f"{one.size} ".encode() + np.ascontiguousarray(one, np.float32).tobytes())
    return {"exact": fingerprint_name("item", digest.hexdigest(), secret)}


def picture(value: np.ndarray) -> np.ndarray | None:
    """A field as a picture, H×W×3 bytes, if it looks like one: one or three channels, first or last, of a size that shows something."""
    if value.ndim == 2:
        value = value[None]
    if value.ndim != 3 or value.dtype.kind not in "uif":
        return None
    if value.shape[0] in (1, 3) and min(value.shape[1:]) >= _LEAST_SIDE:
        value = value.transpose(1, 2, 0)
    elif not (value.shape[2] in (1, 3) and min(value.shape[:2]) >= _LEAST_SIDE):
        return None
    if value.dtype != np.uint8:
        numbers = value.astype(np.float64)
        if not np.isfinite(numbers).all():
            return None
        low, high = float(numbers.min()), float(numbers.max())
        # Numbers from 0 to 1, from 0 to 255, or normalised in some other way: brought to bytes, so that the same picture is the same.
        if low < 0 or high > 255:
            numbers = (numbers - low) / max(high - low, 1e-12) * 255
        elif high <= 1:
            numbers = numbers * 255
        value = numbers.round().astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(value, (*value.shape[:2], 3)))


def _content(records: Records) -> str:
    """Names what records hold and whose they are: a name that was given twice is not enough."""
    digest = hashlib.sha256()
    for unit in records.unit_names():
        digest.update(unit.encode() + np.ascontiguousarray(records.unit_ids(unit)).tobytes())
    for row in range(len(records)):
        for table in (records.private, records.targets):
            for name, value in table.rows(np.array([row])).items():
                digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    return digest.hexdigest()[:24]


@cache
def _shapes() -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    trial = fingerprint_picture(np.zeros((16, 16, 3), np.uint8), bytes(32))
    return {name: (value.shape, value.dtype) for name, value in trial.items()}
