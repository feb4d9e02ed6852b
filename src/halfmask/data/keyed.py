"""Public random numbers that belong to a record: the same whoever else is there.

A generator hands its numbers out in turn, so that what a record gets depends on how many come before it: take one person away, and
everybody after them is cropped, turned and chosen differently. Then a person's gradient is no function of that person alone, and one who
leaves moves the sum by far more than their own clipped share. Here every number is a function of a key, (seed, use, step), of the record's
own stable id, of the showing, and of its place among the numbers of that showing: there is no state and no order, and nothing is drawn for
those who are not asked for.

The id must be public and must stay when others leave: neither a row number nor a hash of anybody's pixels. These numbers decide on
augmentation and on which records of a large unit are kept; anyone may know them. They are mixed well and are *not* cryptographic: noise and
private coins come from `halfmask.privacy.noise` alone.
"""

from __future__ import annotations

import hashlib

import numpy as np

# The constants of splitmix64 (Steele, Lea and Flood, 2014; Stafford's variant 13), whose outputs are those of counting by the first of them
# and mixing each count: what makes it a generator without a state.
_COUNT = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def uniforms(seed: int, use: str, step: int, ids: np.ndarray, showing: int | np.ndarray = 0, count: int = 1) -> np.ndarray:
    """N×`count` numbers strictly between 0 and 1, a row for each id.

    >>> three = uniforms(0, "example", 7, np.array([5, 6, 9]), count=2)
    >>> bool((uniforms(0, "example", 7, np.array([5, 9]), count=2) == three[[0, 2]]).all())
    True

    Args:
        use: what the numbers are for; those of different uses have nothing in common.
        step: which time it is, of that use.
        ids: the records, by stable public ids.
        showing: which of several showings of a record in one step; one for all, or one for each row.
        count: numbers for each. The first of them are the same, however many are asked for.
    """
    first, second = _words("uniforms", use, seed, step)
    state = mixed(mixed(np.asarray(ids).astype(np.uint64) + first) ^ second)
    state = mixed(state + np.atleast_1d(showing).astype(np.uint64) * np.uint64(_COUNT))
    numbers = mixed(state[:, None] + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(_COUNT))
    numbers >>= np.uint64(12)
    # 52 bits and a half: neither 0 nor 1 is ever drawn.
    drawn = numbers.astype(np.float64)
    drawn += 0.5
    drawn *= 2.0**-52
    return drawn


def record_id(*parts: object) -> int:
    """A 64-bit id from what names a record in public."""
    return int(_words("record", *parts)[0])


def ids_of_positions(count: int) -> np.ndarray:
    """Ids of records that have no name but their place. Only for records made in memory, from which nobody is ever taken away."""
    return mixed(np.arange(count, dtype=np.uint64) + np.uint64(_COUNT))


def mixed(words: np.ndarray) -> np.ndarray:
    """Each 64-bit word shuffled by a fixed bijection that leaves no trace of order: the finaliser of splitmix64."""
    words = words.astype(np.uint64)
    for shift, factor in _MIX:
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _words(*parts: object) -> np.ndarray:
    # Told apart by their quotes and commas: ("a", 12) and ("a1", 2) are different keys. A number is the same number in NumPy's clothes.
    text = repr(tuple(part.item() if isinstance(part, np.generic) else part for part in parts))
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8").astype(np.uint64)
