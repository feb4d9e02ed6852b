"""A look at a dataset of clips before anything is trained on it: what is there, what is wrong with it, and which part of it is protected.

A clip is opened once. What is kept of it is how long and how large it is, and how much of it a mask protects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.clip_frames import protected_pixels
from halfmask.data.clip_masks import MaskSource
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.inspect import image_cost
from halfmask.data.people import LeftOut, count_reasons
from halfmask.data.threads import in_order
from halfmask.data.video import VideoFile
from halfmask.errors import HalfmaskError
from halfmask.report.filmstrip import filmstrip, sheet

Progress = Callable[[int, int], None]

GONE, DAMAGED = "video file missing", "video cannot be read"
MASK_DAMAGED = "mask cannot be read"
MASK_DIFFERS = "mask of another size or length than the film"
ALL_HIDDEN, NONE_HIDDEN = "nothing of the clip is public", "nothing of the clip is protected"
# Networks look at so many frames.
LENGTHS = (8, 16, 32)


@dataclass(frozen=True)
class Protection:
    """What of a clip would be protected in training.

    Attributes:
        protect: one of `halfmask.data.clips.PROTECT`; nothing to go by the mask that there is: what a mask of the data holder's says, or
            else the background.
        source: gives films their masks; their own if there is none.
        margin: stored pixels by which the protected part is grown.
    """

    protect: str | None = None
    source: MaskSource | None = None
    margin: int = 0

    def masked(self, take: Take, film: Film) -> Film:
        """The film with its mask."""
        return film if self.source is None else self.source(take, film)

    def hidden(self, film: Film) -> np.ndarray | None:
        """F×H×W, the stored pixels that are protected; None where there is no mask for it, or it does not fit."""
        protect = self.protect or ("mask" if film.person is None else "background")
        mask = film.protected if protect == "mask" else film.person
        if mask is None or np.shape(mask) != film.frames.shape[:3]:
            return None
        return protected_pixels(film, protect, self.margin)


@dataclass(frozen=True)
class ClipPart:
    """What is in one of a dataset's own splits.

    Attributes:
        clips: all that are named; `opened` of them can be read, or are taken to be where nothing was opened.
        classes: clips of each class, in the dataset's order, those of which there are none too.
        videos, subjects: clips of each, the fewest first; no subjects where nobody says who is who.
        frames, rows, columns: the fewest, the median and the most; nothing where nothing was opened.
        short: by the length of a network's clip, how many are shorter.
        masked: clips with a mask that fits.
        hidden: the share of pixels that are protected, over the clips with a mask.
        bad: clips that cannot be read.
        odd: clips that can, and whose mask is of no use.
    """

    name: str
    clips: int
    opened: int
    classes: dict[str, int]
    videos: tuple[int, ...]
    subjects: tuple[int, ...] | None
    frames: tuple[int, float, int] | None = None
    rows: tuple[int, float, int] | None = None
    columns: tuple[int, float, int] | None = None
    short: dict[int, int] = field(default_factory=dict)
    masked: int = 0
    hidden: float | None = None
    bad: tuple[LeftOut, ...] = ()
    odd: tuple[LeftOut, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Classes without a clip."""
        return [label for label, count in self.classes.items() if not count]


@dataclass(frozen=True)
class ClipInspection:
    """What `halfmask data inspect` found in a dataset of clips.

    Attributes:
        unused: clips that are in none of the dataset's own splits.
        torn: by unit, how many of them have clips in several splits: they cannot be private in one and public or test in another.
        video_cost, subject_cost: what a promise about clips is worth to a video and to a subject, by how many clips there are of it (see
            `halfmask.data.inspect.image_cost`).
        masks: where masks come from, in words; empty where there are none.
    """

    clips: ClipSet
    folder: Path
    format: str
    parts: tuple[ClipPart, ...]
    opened: bool
    unused: int
    torn: dict[str, int]
    masks: str = ""
    video_cost: dict[int, float] = field(default_factory=dict)
    subject_cost: dict[int, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "format": self.format,
            "folder": str(self.folder),
            "clips": len(self.clips.takes),
            "classes": list(self.clips.classes),
            "videos_opened": self.opened,
            "masks": self.masks or None,
            "in_no_split": self.unused,
            "in_several_splits": self.torn,
            "parts": {part.name: _part_json(part) for part in self.parts},
            "video_cost": {str(size): round(cost, 3) for size, cost in self.video_cost.items()},
            "subject_cost": {str(size): round(cost, 3) for size, cost in self.subject_cost.items()},
        }


def inspect_clips(
    clips: ClipSet,
    folder: Path,
    format: str,
    open_videos: bool = True,
    protection: Protection | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> ClipInspection:
    """Count what a dataset holds; with `open_videos`, read every clip.

    Args:
        protection: what would be protected, and where masks come from; the dataset's own if not given.
    """
    protection = protection or Protection()
    looks: dict[str, _Look] = {}
    if open_videos:
        jobs = in_order(lambda take: _look_at(take, protection), clips.takes, workers)
        for done, (take, look) in enumerate(zip(clips.takes, jobs, strict=True), start=1):
            looks[take.name] = look
            if progress and (done % 20 == 0 or done == len(clips.takes)):
                progress(done, len(clips.takes))
    splits = clips.splits or {"all": frozenset(take.name for take in clips.takes)}
    inside = {name: [take for take in clips.takes if take.name in names] for name, names in splits.items()}
    parts = tuple(_facts(name, takes, clips.classes, looks) for name, takes in inside.items())
    learnt = next((part for name in ("private", "train", "all") for part in parts if part.name == name), parts[0])
    return ClipInspection(
        clips,
        folder,
        format,
        parts,
        open_videos,
        sum(not any(take.name in names for names in splits.values()) for take in clips.takes),
        _torn(clips.takes, splits),
        clips.masks if protection.source is None else protection.source.words,
        image_cost(learnt.opened, max(learnt.videos, default=0)) if open_videos else {},
        image_cost(learnt.opened, max(learnt.subjects or (0,))) if open_videos else {},
    )


def sheet_of_clips(clips: ClipSet, count: int = 12, protection: Protection | None = None, frames: int = 8, height: int = 96) -> np.ndarray:
    """A picture of clips as filmstrips, one class after another, with what is protected tinted; those that cannot be read are left out."""
    protection = protection or Protection()
    strips, titles = [], []
    for take in _spread(clips, count):
        film, _ = _film(take, protection)
        if film is None:
            continue
        hidden = protection.hidden(film)
        strips.append(filmstrip(film.frames, hidden, count=frames, height=height))
        share = "" if hidden is None else f", {100 * float(hidden.mean()):.1f} % protected"
        titles.append(f"{take.label}{f', {take.subject}' if take.subject else ''}{share}")
    if not strips:
        raise HalfmaskError("no clip can be read, so there is nothing to show: restore the videos")
    return sheet(strips, titles)


def spread_of(counts: Sequence[int]) -> tuple[int, float, int] | None:
    """The fewest, the median and the most."""
    return (min(counts), float(np.median(counts)), max(counts)) if counts else None


@dataclass(frozen=True)
class _Look:
    """What opening a clip told: frames, rows and columns, the share that is protected where a mask fits, and what is wrong."""

    shape: tuple[int, int, int] | None
    hidden: float | None = None
    problem: str = ""


def _film(take: Take, protection: Protection) -> tuple[Film | None, str]:
    # Whatever is wrong with a file, it is the file's fault: the others are looked at all the same.
    try:
        film = take.read()
    except Exception:
        gone = isinstance(take.read, VideoFile) and not take.read.path.is_file()
        return None, GONE if gone else DAMAGED
    try:
        return protection.masked(take, film), ""
    except Exception:
        return film, MASK_DAMAGED


def _look_at(take: Take, protection: Protection) -> _Look:
    film, problem = _film(take, protection)
    if film is None:
        return _Look(None, None, problem)
    frames, rows, columns = film.frames.shape[:3]
    hidden = None if problem else protection.hidden(film)
    if hidden is None:
        masks = [mask for mask in (film.person, film.protected) if mask is not None]
        there = any(np.shape(mask) != film.frames.shape[:3] for mask in masks)
        return _Look((frames, rows, columns), None, problem or (MASK_DIFFERS if there else ""))
    share = float(hidden.mean())
    return _Look((frames, rows, columns), share, ALL_HIDDEN if share == 1 else NONE_HIDDEN if share == 0 else "")


def _facts(name: str, takes: Sequence[Take], classes: Sequence[str], looks: Mapping[str, _Look]) -> ClipPart:
    seen = [(take, looks[take.name]) for take in takes if take.name in looks]
    bad = [(take, look) for take, look in seen if look.shape is None]
    gone = {take.name for take, _ in bad}
    good = [take for take in takes if take.name not in gone]
    shapes = [look.shape for _, look in seen if look.shape is not None]
    hidden = [look.hidden for _, look in seen if look.hidden is not None]
    shown = Counter(take.label for take in good)
    named = Counter(take.subject for take in good)
    return ClipPart(
        name=name,
        clips=len(takes),
        opened=len(good),
        classes={label: shown[label] for label in classes},
        videos=tuple(sorted(Counter(take.video or take.name for take in good).values())),
        subjects=None if None in named or not named else tuple(sorted(named.values())),
        frames=spread_of([shape[0] for shape in shapes]),
        rows=spread_of([shape[1] for shape in shapes]),
        columns=spread_of([shape[2] for shape in shapes]),
        short={length: sum(shape[0] < length for shape in shapes) for length in LENGTHS} if shapes else {},
        masked=len(hidden),
        hidden=round(float(np.mean(hidden)), 4) if hidden else None,
        bad=tuple(LeftOut(take.name, look.problem) for take, look in bad),
        odd=tuple(LeftOut(take.name, look.problem) for take, look in seen if look.shape is not None and look.problem),
    )


def _torn(takes: Sequence[Take], splits: Mapping[str, frozenset[str]]) -> dict[str, int]:
    found = {}
    for unit in ("video", "subject"):
        sides: dict[str, set[str]] = {}
        for take in takes:
            owner = getattr(take, unit)
            if owner:
                sides.setdefault(owner, set()).update(part for part, names in splits.items() if take.name in names)
        found[unit] = sum(len(parts) > 1 for parts in sides.values())
    return {unit: count for unit, count in found.items() if count}


def _spread(clips: ClipSet, count: int) -> Iterator[Take]:
    """Some clips: of as many classes as there is room for, and of each from all over the dataset, so that people differ."""
    by_class = [takes for label in clips.classes if (takes := [take for take in clips.takes if take.label == label])]
    shown = min(count, len(by_class))
    for turn in range(shown):
        takes = by_class[turn * len(by_class) // shown]
        many = min(count // shown + (turn < count % shown), len(takes))
        # Each class begins elsewhere: sorted by name, the first of every class may show one person.
        start = turn * len(takes) // shown
        for step in range(many):
            yield takes[(start + step * len(takes) // many) % len(takes)]


def _part_json(part: ClipPart) -> dict[str, Any]:
    return {
        "clips": part.clips,
        "classes": part.classes,
        "classes_missing": part.missing,
        "units": {"clip": part.opened, "video": len(part.videos), "subject": None if part.subjects is None else len(part.subjects)},
        "clips_per_video": _spread_json(spread_of(part.videos)),
        "clips_per_subject": _spread_json(spread_of(part.subjects or ())),
        "frames": _spread_json(part.frames),
        "rows": _spread_json(part.rows),
        "columns": _spread_json(part.columns),
        "shorter_than": {str(length): count for length, count in part.short.items()},
        "masks": {"clips": part.masked, "protected_share": part.hidden},
        "left_out": count_reasons((*part.bad, *part.odd)),
        "bad_clips": [{"clip": one.image, "reason": one.reason} for one in (*part.bad, *part.odd)],
    }


def _spread_json(values: tuple[int, float, int] | None) -> dict[str, float] | None:
    return values and dict(zip(("fewest", "median", "most"), values, strict=True))
