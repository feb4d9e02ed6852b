"""What the readers of video datasets share: the files below a folder, lists of clips, and refusals that name nobody."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.files import BadAnnotations, where_named
from halfmask.data.video import VIDEO_SUFFIXES
from halfmask.errors import HalfmaskError

# A format is told by the names of so many files, and not by all of a hundred thousand.
_SAMPLE = 40


def videos_below(folder: Path) -> Iterator[Path]:
    """All video files, folder by folder in the order of their names; hidden ones are passed over."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in VIDEO_SUFFIXES:
                yield Path(place, name)


def named_like(folder: Path, pattern: re.Pattern[str]) -> bool:
    """Whether the videos below a folder are named so: most of the first few, because strays are refused by name and not passed over."""
    names = [path.name for path in islice(videos_below(folder), _SAMPLE)]
    return bool(names) and 2 * sum(pattern.fullmatch(name) is not None for name in names) > len(names)


def takes_named(folder: Path, pattern: re.Pattern[str], make: Callable[[Path, re.Match[str]], Take | None], named: str) -> list[Take]:
    """The clips of a dataset whose file names say what they are; none is opened.

    Args:
        make: the take of a file, by what its name matches; None where that contradicts itself.
        named: how files are named, for the refusal of those that are not. A second copy of a clip is refused with them: it would be one
            person's second unit.
    """
    takes: dict[str, Take] = {}
    odd: list[str] = []
    for path in videos_below(folder):
        found = pattern.fullmatch(path.name)
        take = None if found is None else make(path, found)
        if take is None or take.name in takes:
            odd.append(relative(path, folder))
        else:
            takes[take.name] = take
    refuse_odd(folder, odd, len(odd) + len(takes), f"clips are not named {named}, or are there twice")
    return list(takes.values())


def by_subject(takes: Iterable[Take], training: frozenset[int]) -> dict[str, frozenset[str]]:
    """A division by who is seen (`P001`): these subjects are for training, and all others are the test."""
    parts: dict[str, set[str]] = {"train": set(), "test": set()}
    for take in takes:
        parts["train" if int((take.subject or "0").lstrip("Pp")) in training else "test"].add(take.name)
    return {part: frozenset(names) for part, names in parts.items()}


def find_list(folder: Path, name: str) -> Path | None:
    """A list of clips: in the folder, or in a folder in it."""
    return next((path for path in (folder / name, *sorted(folder.glob(f"*/{name}"))) if path.is_file()), None)


def read_lines(path: Path) -> list[str]:
    """The lines of a list that hold anything."""
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise HalfmaskError(f"{path} cannot be read as text in UTF-8: download it again") from None


def refuse_odd(folder: Path, odd: Sequence[str], total: int, expected: str) -> None:
    """Refuse files that the format's names do not fit: what they show, and of whom, cannot be known."""
    if odd:
        raise BadAnnotations(
            f"{folder}: {len(odd):,} of {total:,} {expected}. Mend or remove them: {where_named(folder)}",
            [f"{name}: not named so" for name in odd],
        )


def refuse_missing(folder: Path, source: str, missing: Sequence[str], total: int) -> None:
    """Refuse a list that names files which are not there."""
    if missing:
        raise BadAnnotations(
            f"{folder}: {len(missing):,} of the {total:,} clips that {source} names are not there: restore them, or take their lines out "
            f"of it ({where_named(folder)})",
            [f"{name}: not there" for name in sorted(missing)],
        )


def relative(path: Path, folder: Path) -> str:
    """What a clip is called within its dataset: its path, the same on every machine."""
    return path.relative_to(folder).as_posix()


def clip_set(
    name: str,
    folder: Path,
    takes: Iterable[Take],
    classes: Sequence[str] | None = None,
    splits: dict[str, frozenset[str]] | None = None,
) -> ClipSet:
    """The set, once it is known to hold something.

    Args:
        classes: in the order in which they are counted; those that occur, in the order of their names, if not given. One that nothing
            shows would be learnt from nothing and scored on nothing, so it is refused.
    """
    takes = tuple(sorted(takes, key=lambda take: take.name))
    if not takes:
        raise HalfmaskError(f"{folder} holds no clips of the format {name}: check the path, or whether the videos were unpacked")
    shown = {take.label for take in takes}
    if classes is None:
        classes = sorted(shown)
    empty = [label for label in classes if label not in shown]
    if empty:
        raise HalfmaskError(
            f"{folder}: {len(empty)} of the {len(classes)} classes that its lists name have no clips ({', '.join(empty[:5])}"
            f"{' …' if len(empty) > 5 else ''}): restore their clips, or take them out of the lists"
        )
    return ClipSet(name, takes, tuple(classes), splits or {})
