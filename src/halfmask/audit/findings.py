"""What a check says, and the notes that go with every audit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One check: what was found, what was expected, and which fault it would have shown."""

    check: str
    passed: bool
    found: str
    expected: str
    sees: str

    def to_json(self) -> dict[str, Any]:
        """For the audit's file."""
        return asdict(self)


def interval(low: float, high: float) -> str:
    """A range for reading."""
    return f"{low:.5g} to {high:.5g}"
