"""Words that sentences are put together with."""

from __future__ import annotations


def a_or_an(noun: str) -> str:
    """A noun with its article, by the letter it begins with.

    >>> a_or_an("image"), a_or_an("crop")
    ('an image', 'a crop')
    """
    return f"an {noun}" if noun[:1].lower() in tuple("aeiou") and not noun.lower().startswith(("uni", "use")) else f"a {noun}"
