"""Words that sentences are put together with."""

from __future__ import annotations


def a_or_an(noun: str) -> str:
    """A noun with its article, by the letter it begins with.

    >>> a_or_an("image"), a_or_an("crop"), a_or_an("'image'")
    ('an image', 'a crop', "an 'image'")
    """
    bare = noun.lstrip("'").lower()
    return f"an {noun}" if bare[:1] in tuple("aeiou") and not bare.startswith(("uni", "use")) else f"a {noun}"
