"""The same people on both sides: private people who recur where they must not.

Nobody can be protected and public at once, nor protected and the measure of a model. Photographs are recognised whatever they are called
and however they were stored (`halfmask.privacy.fingerprints`), at every unit; subjects by their ids, where subjects are what is protected.
What is told of an overlap are numbers, never names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from halfmask.data.store import cached
from halfmask.errors import HalfmaskError
from halfmask.privacy.code import code_digest
from halfmask.privacy.fingerprints import Fingerprints
from halfmask.privacy.units import told_by_id
from halfmask.words import a_or_an

# Fewer pairs are compared at once; a result on disk would cost as much.
_WORTH_KEEPING = 50_000


@dataclass(frozen=True)
class Overlap:
    """How many private records recur in another part: on the same photographs, or by the same subjects."""

    part: str
    pictures: int
    subjects: int

    def words(self) -> str:
        """For a message."""
        found = [f"{self.pictures:,} by their photograph"] * bool(self.pictures) + [f"{self.subjects:,} by their subject"] * bool(
            self.subjects
        )
        return f"private records recur in '{self.part}': {', '.join(found)}"


def in_pictures(private: Fingerprints, other: Fingerprints) -> np.ndarray:
    """Which private records show a photograph that `other` has: compared once, and kept in private storage for the next run."""

    def build() -> dict[str, np.ndarray]:
        return {"recur": private.in_pictures_of(other)}

    if len(private) * len(other) < _WORTH_KEEPING:
        return build()["recur"]
    # By content, not by name: a result that is found again for other people would let them stand on both sides.
    content = [sha256(prints.exact.tobytes() + prints.annotations.tobytes()).hexdigest() for prints in (private, other)]
    return np.array(cached("overlaps", "/".join([*content, code_digest()]), build)["recur"])


def find_overlaps(private: Fingerprints, others: Mapping[str, Fingerprints]) -> list[Overlap]:
    """The parts in which private people recur."""
    found = [
        Overlap(part, int(in_pictures(private, prints).sum()), int(private.in_subjects_of(prints).sum())) for part, prints in others.items()
    ]
    return [overlap for overlap in found if overlap.pictures or overlap.subjects]


def recurring(private: Fingerprints, others: Mapping[str, Fingerprints], unit: str) -> np.ndarray:
    """Which private records recur in another part, one flag each.

    Each flag is a function of the record itself and of public data, so leaving those records out tells nothing of anybody who stays.
    """
    found = np.zeros(len(private), bool)
    for prints in others.values():
        found |= in_pictures(private, prints)
        if told_by_id(unit):
            found |= private.in_subjects_of(prints)
    return found


def check_overlaps(private: Fingerprints, others: Mapping[str, Fingerprints], unit: str, strangers: Sequence[str] = ()) -> list[str]:
    """Refuse people on both sides; return what is worth a warning.

    Args:
        unit: what is protected.
        strangers: parts without subject ids that are declared to show nobody who is protected.
    """
    if told_by_id(unit):
        for part, prints in {"private": private, **others}.items():
            unknown = int((~prints.subjects.any(1)).sum())
            if unknown and not (part in strangers and unknown == len(prints)):
                raise HalfmaskError(
                    f"{unknown:,} of {len(prints):,} records of '{part}' have no {unit} id, so it cannot be checked that no "
                    f"protected {unit} "
                    f"is among them: add the ids, protect a smaller unit such as an 'image'"
                    + ("" if part == "private" else f", or, if you know that they are others, declare it with data.strangers=[{part}]")
                )
    warnings = []
    for overlap in find_overlaps(private, others):
        if overlap.pictures or (overlap.subjects and told_by_id(unit)):
            side = "public" if overlap.part != "test" else "scored openly"
            raise HalfmaskError(
                f"{overlap.words()}. Nobody can be protected and {side} at once: move all records of a photograph"
                + (f" and of {a_or_an(unit)}" if told_by_id(unit) else "")
                + " to one part ('halfmask data inspect' counts them by part), or leave those private ones out, unprotected, with "
                "data.recurring=leave-out"
            )
        warnings.append(f"{overlap.words()}: the promise is to one {unit}, and not to a subject with all their pictures")
    return warnings
