"""A process that works for a home on another machine.

Ledgers, and the key by which people are named in them, live in one home. Two machines with homes of their own would name the same people
differently and give each name a fresh budget. So a run that works elsewhere is a *guest*: it has the host's key, in memory and never on its
own disk, and whatever concerns a ledger it asks its host for (`halfmask.privacy.remote`). In a process that is a guest no ledger of its own
can be opened: what forgot to ask is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from halfmask.errors import HalfmaskError


@dataclass(frozen=True)
class Host:
    """The home that a guest works for.

    Attributes:
        key: by which the host names people.
        ask: a question by its name, and what it is about; raises what the host refuses, and `Unreachable` where no answer comes.
    """

    key: bytes = field(repr=False)
    ask: Callable[..., Any] = field(repr=False)


class Unreachable(HalfmaskError):
    """The home that a run spends through did not answer."""


_visited: list[Host] = []


def host() -> Host | None:
    """Whose guest this process is; None where it works for its own home."""
    return _visited[-1] if _visited else None


@contextmanager
def visiting(visited: Host) -> Iterator[None]:
    """Be the guest of a home for a while. It holds for the whole process: a worker does one run at a time."""
    _visited.append(visited)
    try:
        yield
    finally:
        _visited.pop()


def refuse_guests() -> None:
    """For whatever opens a ledger of this machine's own home."""
    if _visited:
        raise HalfmaskError(
            "this process spends through the ledger of another machine, and a ledger of its own was asked for: the same people would get a "
            "second budget. Do this where that ledger is"
        )
