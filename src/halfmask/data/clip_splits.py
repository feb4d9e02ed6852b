"""Who of a dataset of clips is private, who is public and who is there to be judged on.

A dataset is divided by subject, by group or by video (`data.split_by`), whose names are sorted, numbers by their size, and counted from 1:
`1-6`, `daria`, `train:1-20,test:1-5`. Clips of one video are never on two sides. A dataset without splits of its own is all `train`, which
is private as far as nobody names it for another part: `test: daria` leaves the other eight private.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from halfmask.data.clips import ClipSet, Take
from halfmask.data.splits import divide_names
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.settings import setting

SPLIT_BY = ("subject", "group", "video")
_NOUNS = {"subject": "subjects", "group": "groups", "video": "videos"}
_RANGES = "subjects, groups or videos (data.split_by), counted or by name, such as 1-6, daria or train:1-100"
_WHOLE = "train"


@dataclass(frozen=True)
class ClipSplitsConfig:
    """Who is in each part; nothing for the dataset's own splits (train is private, val or test is the test)."""

    private: str | None = setting(None, "The clips to protect.", expected=_RANGES)
    public: str | None = setting(None, "Public clips to learn from.", expected=_RANGES)
    test: str | None = setting(None, "The clips the model is judged on.", expected=_RANGES)
    tuning: str | None = setting(None, "Public clips whose loss is watched. Nothing is trained on them.", expected=_RANGES)
    basis: str | None = setting(
        None, "S_pub, public clips for the subspace alone: a clip a model was trained on gives no honest gradient.", expected=_RANGES
    )


def divide_clips(clips: ClipSet, splits: ClipSplitsConfig, by: str | None = None, test_share: float = 0.0) -> dict[str, list[Take]]:
    """The parts that are there, under our names for them. What two of them claim is refused, and so is a video on two sides.

    Args:
        by: what is divided, one of `SPLIT_BY`; the first of them that every clip tells, if not given.
        test_share: of each class, so large a share of its groups (or whatever is divided), the last ones, is the split `test`; 0 for
            the dataset's own splits.
    """
    by = split_by(clips, by)
    own = _by_share(clips, by, test_share) if test_share else _own(clips)
    owners = {split: sorted({_owner(take, by) for take in takes}, key=natural) for split, takes in own.items()}
    named = {one.name: _counted(getattr(splits, one.name), owners) for one in fields(splits)}
    chosen = divide_names(owners, named, _NOUNS[by])
    parts = {
        part: [take for split, takes in own.items() for take in takes if (split, _owner(take, by)) in names]
        for part, names in chosen.items()
    }
    parts = {part: takes for part, takes in parts.items() if takes}
    _check_videos(parts)
    return parts


def split_by(clips: ClipSet, by: str | None) -> str:
    """What a dataset is divided by: what was asked for, or the first that every clip tells."""
    if by is None:
        return next(one for one in SPLIT_BY if all(_tells(take, one) for take in clips.takes))
    if by not in SPLIT_BY:
        raise unknown_name("way to divide clips (data.split_by)", by, SPLIT_BY)
    silent = sum(not _tells(take, by) for take in clips.takes)
    if silent:
        able = [one for one in SPLIT_BY if all(_tells(take, one) for take in clips.takes)]
        raise HalfmaskError(
            f"data.split_by is {by}, and {silent:,} clips of '{clips.name}' do not say theirs: expected {' or '.join(able)}"
        )
    return by


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts names as people count: `group 9` before `group 10`.

    >>> sorted(["Run_10", "Run_9", "Jump_11"], key=natural)
    ['Jump_11', 'Run_9', 'Run_10']
    """
    pieces = re.split(r"(\d+)", name)
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)


def missing_classes(parts: Mapping[str, Sequence[Take]], part: str = "private", other: str = "test") -> list[str]:
    """The classes that `other` has clips of and `part` has none of."""
    return sorted({take.label for take in parts.get(other, ())} - {take.label for take in parts.get(part, ())})


def sizes(clips: ClipSet, by: str | None = None) -> str:
    """How a dataset is divided, for a message."""
    chosen = split_by(clips, by)
    own = _own(clips)
    return ", ".join(f"{split} ({len({_owner(take, chosen) for take in takes}):,} {_NOUNS[chosen]})" for split, takes in own.items())


def _tells(take: Take, by: str) -> bool:
    return by == "video" or getattr(take, by) is not None


def _owner(take: Take, by: str) -> str:
    return str(getattr(take, by) or take.name)


def _own(clips: ClipSet) -> dict[str, list[Take]]:
    if not clips.splits:
        return {_WHOLE: list(clips.takes)}
    return {split: [take for take in clips.takes if take.name in names] for split, names in clips.splits.items()}


def _by_share(clips: ClipSet, by: str, share: float) -> dict[str, list[Take]]:
    """Of each class the last owners, one at least, are the test. Owners are those of a class: the same name elsewhere is another one."""
    test: set[tuple[str, str]] = set()
    for label in clips.classes:
        owners = sorted({_owner(take, by) for take in clips.takes if take.label == label}, key=natural)
        if owners:
            test |= {(label, owner) for owner in owners[-max(1, int(share * len(owners) + 1e-9)) :]}
    tested = [(take.label, _owner(take, by)) in test for take in clips.takes]
    return {
        _WHOLE: [take for take, inside in zip(clips.takes, tested, strict=True) if not inside],
        "test": [take for take, inside in zip(clips.takes, tested, strict=True) if inside],
    }


def _counted(text: str | None, owners: Mapping[str, Sequence[str]]) -> str | None:
    """With names in place of numbers turned into numbers: `train:daria` into `train:1`."""
    if text is None:
        return None
    pieces = []
    for piece in (piece.strip() for piece in str(text).split(",")):
        split, colon, name = piece.rpartition(":")
        where = [split] if colon else list(owners)
        found = [f"{one}:{owners[one].index(name) + 1}" for one in where if name in owners.get(one, ()) and not name.isdecimal()]
        pieces += found or [piece]
    return ",".join(pieces)


def _check_videos(parts: Mapping[str, Sequence[Take]]) -> None:
    """Clips of one recording show the same room and the same person: none may be on two sides."""
    sides: dict[str, set[str]] = {}
    for part, takes in parts.items():
        for take in takes:
            sides.setdefault(take.video or take.name, set()).add(part)
    torn = [found for found in sides.values() if len(found) > 1]
    if torn:
        between = " and ".join(sorted(torn[0]))
        raise HalfmaskError(
            f"{len(torn):,} videos have clips in two parts (such as {between}): clips of one video show the same people. Divide by what "
            "keeps them together (data.split_by), or name other splits"
        )
