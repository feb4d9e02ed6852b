"""Mistakes a user can make, told apart from faults of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HalfmaskError(Exception):
    """A problem the user can mend. The command prints its message on one line and exits with code 2.

    The message says what was found, what was expected, and what to do.

    Attributes:
        told: whether another process of the same run says it, so that this one need not.
    """

    told = False


class OverBudget(HalfmaskError):
    """A run that no budget of its dataset admits: other runs may still fit, and to try this one again changes nothing."""


def unknown_name(kind: str, found: str, known: Iterable[str]) -> HalfmaskError:
    """Build the error for a misspelt name, suggesting the nearest known one."""
    choices = sorted(known)
    near = difflib.get_close_matches(found, choices, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return HalfmaskError(f"unknown {kind} '{found}': {hint}known: {', '.join(choices)}")
