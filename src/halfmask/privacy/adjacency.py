"""Which two datasets must look alike: the relation every promise is made against."""

from __future__ import annotations

from enum import Enum

from halfmask.errors import unknown_name


class Adjacency(str, Enum):
    """How two neighbouring datasets differ in one unit.

    * `add-remove`: the unit is present in one and absent from the other.
    * `zero-out`: the unit's private part is replaced by nothing; the number of units is the same.
    * `replace-one`: the unit's private part is replaced by another's; the number of units is the same.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, word: str | Adjacency) -> Adjacency:
        """Read the word used in recipes and on the command line."""
        try:
            return cls(word)
        except ValueError:
            raise unknown_name("adjacency", str(word), [a.value for a in cls]) from None

    def sensitivity(self, clip_norm: float) -> float:
        """How far the sum of clipped gradients can move between neighbours.

        Formal guarantees: with every unit's contribution of norm at most `clip_norm`, leaving one out moves the sum by at most
        `clip_norm`; exchanging one for another moves it by at most twice that.

        >>> Adjacency.REPLACE_ONE.sensitivity(0.1)
        0.2
        """
        return 2.0 * clip_norm if self is Adjacency.REPLACE_ONE else clip_norm
