"""Whether two datasets show the same people, remembered: to compare some thousand photographs with some thousand others takes a while.

A verdict is kept under all that it depends on: both sets of records, byte for byte, and the code that compares. It is keyed like a
ledger's line; one that was changed is not believed, and the people are compared again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from pathlib import Path

from halfmask.privacy.code import code_digest
from halfmask.privacy.fingerprints import Fingerprints, key

_FILE = "relations"


def related(mine: Fingerprints, theirs: Fingerprints, folder: Path) -> tuple[bool, bool]:
    """Whether the two share a photograph (or annotations), and whether they share a subject."""
    secret = key()
    name = hmac.new(secret, "/".join([_content(mine), _content(theirs), code_digest()]).encode(), hashlib.sha256).hexdigest()
    known = _read(folder, secret)
    if name not in known:
        # A cut copy is found more surely from one side than from the other, so both are tried.
        pictures = bool(mine.in_pictures_of(theirs).any()) or bool(theirs.in_pictures_of(mine).any())
        known[name] = [pictures, bool(mine.in_subjects_of(theirs).any())]
        _write(folder, secret, known)
    pictures, subjects = known[name]
    return pictures, subjects


def _content(prints: Fingerprints) -> str:
    """Sketches are sealed anew each time and are a function of the picture, which `exact` names."""
    digest = hashlib.sha256()
    for rows in sorted(zip(*(map(bytes, part) for part in (prints.exact, prints.annotations, prints.subjects)), strict=True)):
        digest.update(b"".join(rows))
    return digest.hexdigest()


def _seal(known: dict[str, list[bool]], secret: bytes) -> str:
    return hmac.new(secret, json.dumps(known, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _read(folder: Path, secret: bytes) -> dict[str, list[bool]]:
    try:
        body = json.loads((folder / _FILE).read_text())
        known: dict[str, list[bool]] = body["known"]
        return known if hmac.compare_digest(body["seal"], _seal(known, secret)) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(folder: Path, secret: bytes, known: dict[str, list[bool]]) -> None:
    """Whole, or not at all: two writers at once lose a verdict, which is then found again."""
    draft = folder / f"{_FILE}.{os.getpid()}.draft"
    with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"known": known, "seal": _seal(known, secret)}, file)
    os.replace(draft, folder / _FILE)
