"""Mistakes a user can make, told apart from faults of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


class HalfmaskError(Exception):
    """A problem the user can mend. The command prints its message on one line and exits with code 2.

    The message says what was found, what was expected, and what to do.

    Attributes:
        told: whether another process of the same run says it, so that this one need not.
    """

    told = False


class OverBudget(HalfmaskError):
    """A run that no budget of its dataset admits: other runs may still fit, and to try this one again changes nothing."""


class Problems:
    """Gathers mistakes, so that all of them can be mended at once.

    >>> problems = Problems()
    >>> with problems.gathered():
    ...     raise HalfmaskError("batch is 0: expected at least 1")
    >>> problems.told
    ['batch is 0: expected at least 1']
    """

    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Note the mistake that is found inside, if any, and go on."""
        try:
            yield
        except HalfmaskError as error:
            self.add(str(error))

    def add(self, problem: str) -> None:
        """Note a mistake; one that two checks find is one."""
        if problem not in self.told:
            self.told.append(problem)

    def raise_if_any(self, about: str) -> None:
        """Refuse what is wrong: one mistake in its own words, several of them numbered."""
        if len(self.told) == 1:
            raise HalfmaskError(self.told[0])
        if self.told:
            listed = "; ".join(f"({number}) {problem}" for number, problem in enumerate(self.told, 1))
            raise HalfmaskError(f"{len(self.told)} things are wrong with {about}: {listed}")


def unknown_name(kind: str, found: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> HalfmaskError:
    """Build the error for a misspelt name, suggesting the nearest known one.

    Args:
        meant: known names by what others call the same thing.
    """
    choices = sorted(known)
    other = (meant or {}).get(found.lower(), "")
    near = [other] if other in choices else difflib.get_close_matches(found, choices, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return HalfmaskError(f"unknown {kind} '{found}': {hint}known: {', '.join(choices)}")
