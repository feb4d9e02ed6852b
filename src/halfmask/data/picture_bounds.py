"""How many pictures a person has at most: by the settings, or by how the embedded world is drawn, never by counting private pictures.

With such a bound the certificate of a promise to one image also states what ε is worth to a person. A dataset that breaks the bound is
refused, not cut: if some pictures of a person were passed over because there are others, then one that leaves would let another in, and
the promise to one image would be about two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from halfmask.data.pictures import UNITS
from halfmask.errors import HalfmaskError

_IMAGE, _SUBJECT = UNITS


def bounds_in(unit: str, drawn: int | None, said: int | None) -> dict[str, int]:
    """By coarser units, how many of this one each has at most.

    Args:
        drawn: how many pictures each person of `figures` has; None for pictures on disk.
        said: how many a person has at most by the settings; None where they do not say.
    """
    known = [most for most in (drawn, said) if most is not None]
    return {_SUBJECT: min(known)} if unit == _IMAGE and known else {}


def refuse_more(subjects: Iterable[str | int], most: int | None) -> None:
    """Refuse private people of more pictures than the settings say; numbers alone, for a name can be a person's."""
    if most is None:
        return
    counts = Counter(subjects)
    over = sum(count > most for count in counts.values())
    if over:
        raise HalfmaskError(
            f"data.pictures_per_subject is {most} and {over:,} private subjects have more pictures, up to {max(counts.values()):,}: raise "
            "it, or take some of theirs out of the dataset"
        )
