"""What a unit is told by: by the record itself, or by an id that its owner gave it."""

from __future__ import annotations

# A record, or what it was cut from, is recognised by its content, whatever it is called.
TOLD_BY_CONTENT = frozenset({"record", "crop", "image", "region", "clip", "video"})


def told_by_id(unit: str) -> bool:
    """Whether a unit is somebody of whom there are several records: a subject, a patient. Other records of theirs are the same unit.

    >>> told_by_id("patient"), told_by_id("crop")
    (True, False)
    """
    return unit not in TOLD_BY_CONTENT
