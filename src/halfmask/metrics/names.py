"""What the metrics are called, and which two of a dataset's stand for all."""

from __future__ import annotations

from collections.abc import Iterable

# One pair for each way of scoring: the number a table is sorted by, and the one beside it.
HEADLINES: tuple[tuple[str, str], ...] = (("pckh@0.5", "pckh@0.1"), ("pck@0.2", "pck@0.5"), ("ap", "ar"))


def headline(names: Iterable[str]) -> tuple[str, str]:
    """The two numbers to show of a model, by the metrics it was scored with: of a task that is not known here the first two, or the first
    twice where there is one.
    """
    known = list(dict.fromkeys(names))
    if not known:
        return HEADLINES[0]
    return next((pair for pair in HEADLINES if pair[0] in known), (known[0], known[1] if len(known) > 1 else known[0]))


def is_percentage(name: str) -> bool:
    """Whether a metric is one of those that go from 0 to 100."""
    return any(name.partition("/")[0] in pair for pair in HEADLINES) or name[:2] in ("ap", "ar")


def printed(name: str) -> str:
    """A metric's name as tables print it: `PCKh@0.5`, `PCK@0.2`, `AP`."""
    if "@" in name:
        return name.replace("pckh", "PCKh").replace("pck@", "PCK@")
    return name.upper() if name[:2] in ("ap", "ar") else name
