"""From takes to the records of the action task: films opened once, frames picked and resampled once, and kept in private storage.

Every film is opened whole, because a mask by motion needs all of it, and let go before the next; OpenCV works outside Python's lock, so
threads suffice. Which pixels are protected is decided on stored pixels (`halfmask.data.clip_frames`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from halfmask.data.clip_frames import FIT, SHORT, SMALLEST, network_frames, pick, protected_pixels, windows_of
from halfmask.data.clip_masks import MaskSource, NoMasks
from halfmask.data.clip_prints import film_print
from halfmask.data.clips import PROTECT, ClipRecords, Film, Take, records_of_clips
from halfmask.data.crops import ON_BAD
from halfmask.data.files import where_named
from halfmask.data.keyed import record_id
from halfmask.data.prints import fill_prints, named_prints, print_fields
from halfmask.data.store import Draft, cached_by_row
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_name, key, keyed_hash

Report = Callable[[str, int, int], None]

UNREADABLE = "a video that is missing or cannot be read"
TOO_SHORT = "a video of fewer frames than asked for"
_NO_MASK = "a video without a mask"
_OTHER_MASK = "a mask of another size or another number of frames than its video"
# Part of every key: clips that other code made of the same films are not found again.
_VERSION = 2
_NOBODY = np.zeros(16, np.uint8)


class _Problem(Exception):
    """Why a take cannot be used; never its name, which can be a person's."""


def clip_records(
    takes: Sequence[Take],
    classes: Sequence[str],
    frames: int,
    size: int,
    protect: str = "background",
    name: str = "clips",
    masks: MaskSource | None = None,
    margin: int = 0,
    short: str = "refuse",
    fit: str = "crop",
    report: Report | None = None,
    workers: int = 0,
    on_bad: str = "refuse",
    drawn: bool = False,
) -> tuple[ClipRecords, dict[str, int]]:
    """The clips of takes, and how many takes have none, for each reason.

    Args:
        classes: what may be done in them, in the order in which labels count: of the whole dataset, so that all parts count alike.
        frames, size: T and S; clips are T×3×S×S.
        protect: what of a clip is protected, one of `PROTECT`.
        name: names the dataset in public, and so its records.
        masks: where masks come from (`halfmask.data.clip_masks`); nothing if none are asked for, and then nothing is `hidden`.
        margin: stored pixels by which the protected part is grown, for masks that are estimates.
        short: what to do about a film of fewer frames: `refuse` to go on, `repeat` frames evenly, or `skip` the film.
        fit: the central square of a frame (`crop`), all of it (`squeeze`), or the square around the `person`, which needs masks.
        workers: threads; 0 for one per core.
        on_bad: what to do about a video that is missing or damaged: `refuse` to go on, or `skip` it.
        drawn: whether films are drawn, and so known by name; what is filmed is known by its pixels.
    """
    for kind, found, known in (
        ("way to treat bad videos (data.on_bad)", on_bad, ON_BAD),
        ("way to treat short videos (data.short)", short, SHORT),
        ("way to fit frames (data.fit)", fit, FIT),
        ("part to protect (data.protect)", protect, PROTECT),
    ):
        if found not in known:
            raise unknown_name(kind, found, known)
    _check(takes, classes, frames, size, name)
    if fit == "person" and (masks is None or masks.kind == "none"):
        raise HalfmaskError("data.fit is person and there are no masks: say with data.masks where the person is, or fit by crop or squeeze")
    source: MaskSource = masks or NoMasks()
    masked = source.kind != "none"
    # Fingerprints lie beside the clips, and are worth something under the key they were made with alone.
    secret = keyed_hash(b"cache").hex()[:8]
    looked = f"{protect}/{source.key}/{margin}" if masked else ""
    way = f"{frames}x{size}/{looked}/{short}/{fit}/{on_bad}/{drawn}"
    records_key = f"clips/{name}/{_digest(takes, source)}/{way}/{_VERSION}/{cv2.__version__}/{secret}"
    make = _Maker(source, protect if masked else "", margin, frames, size, short, fit)
    arrays = cached_by_row("records", records_key, lambda draft: _write(draft, takes, make, drawn, workers, on_bad, report))
    left_out: dict[str, int] = json.loads(arrays["left_out"].tobytes())
    shown = [takes[place] for place in arrays["kept"].tolist()]
    if not shown:
        raise HalfmaskError(f"none of the {len(takes):,} videos of '{name}' can be used: the dataset is empty. {_reasons(left_out)}")
    numbers = {label: number for number, label in enumerate(classes)}
    subjects = [take.subject for take in shown if take.subject is not None]
    told = len(subjects) == len(shown)
    records = records_of_clips(
        clips=arrays["clip"],
        labels=np.array([numbers[take.label] for take in shown], np.int64),
        hidden=arrays["hidden"] if masked else None,
        videos=np.array([record_id(name, "video", take.video or take.name) >> 1 for take in shown], np.int64),
        key=records_key,
        classes=tuple(classes),
        masks=source.words if masked else "",
        protect=protect if masked else "",
        subjects=np.array([record_id(name, "subject", one) >> 1 for one in subjects], np.int64) if told else None,
        prints=_named(shown, subjects if told else None) if drawn else _prints(arrays, shown, name),
        ids=np.array([record_id(name, take.name) for take in shown], np.uint64),
        joints=arrays.get("joints"),
    )
    return records, left_out


class _Maker:
    """Makes the rows of one take."""

    def __init__(self, source: MaskSource, protect: str, margin: int, frames: int, size: int, short: str, fit: str):
        self.source, self.protect, self.margin = source, protect, margin
        self.frames, self.size, self.short, self.fit = frames, size, short, fit

    def fields(self) -> dict[str, Any]:
        """The kind and the shape of everything that is kept of one clip, but what it is recognised by."""
        shape = (self.frames, self.size, self.size)
        hidden = {"hidden": (bool, shape)} if self.protect else {}
        return {"clip": (np.uint8, (self.frames, 3, *shape[1:]))} | hidden

    def __call__(self, take: Take) -> tuple[Film, dict[str, np.ndarray]]:
        """The film as it was read, and its rows."""
        try:
            film = take.read()
        except (HalfmaskError, OSError, ValueError, cv2.error):
            raise _Problem(UNREADABLE) from None
        stored = film.frames
        if stored.ndim != 4 or stored.shape[3] != 3 or stored.dtype != np.uint8 or 0 in stored.shape:
            raise _Problem(UNREADABLE)
        if len(stored) < self.frames and self.short != "repeat":
            raise _Problem(TOO_SHORT)
        picked = pick(len(stored), self.frames)
        protected = person = None
        if self.protect:
            masked = self.source(take, film, picked)
            own, person = masked.protected, masked.person
            if (own if self.protect == "mask" else person) is None or (person is None and self.fit == "person"):
                raise _Problem(_NO_MASK)
            if any(one is not None and np.shape(one) != stored.shape[:3] for one in (own, person)):
                raise _Problem(_OTHER_MASK)
            own, person = (None if one is None else np.asarray(one, bool)[picked] for one in (own, person))
            protected = protected_pixels(Film(stored[picked], person, own, masked.blended), self.protect, self.margin)
        windows = windows_of((self.frames, *stored.shape[1:3]), self.fit, person)
        clip, hidden = network_frames(stored[picked], protected, self.size, windows)
        return film, {"clip": clip} | ({} if hidden is None else {"hidden": hidden})


def _write(draft: Draft, takes: Sequence[Take], make: _Maker, drawn: bool, workers: int, on_bad: str, report: Report | None) -> None:
    """Each film is opened once and its rows are written; those that cannot be used are counted, and then refused or taken out."""
    fields = draft.fields(make.fields() | (_joint_fields(make.frames) if drawn else print_fields()), len(takes))

    def write(row: int) -> str:
        try:
            film, rows = make(takes[row])
        except _Problem as problem:
            return str(problem)
        for field, value in rows.items():
            fields[field][row] = value
        if not drawn:
            fill_prints(fields, [row], film_print(film.frames))
        elif film.joints is not None:
            shown = pick(len(film.frames), make.frames)
            height, width = film.frames.shape[1:3]
            fields["joints"][row] = (film.joints[shown] + 0.5) / (width, height) - 0.5
        return ""

    problems: list[str] = []
    for problem in in_order(write, range(len(takes)), workers):
        problems.append(problem)
        if report and (len(problems) % 50 == 0 or len(problems) == len(takes)):
            report("reading clips", len(problems), len(takes))
    found = Counter(problem for problem in problems if problem)
    _refuse(found, make, on_bad)
    kept = np.array([row for row, problem in enumerate(problems) if not problem], np.int64)
    draft.keep(kept)
    draft.save("kept", kept)
    draft.save("left_out", np.frombuffer(json.dumps(dict(found.most_common())).encode(), np.uint8))


def _joint_fields(frames: int) -> dict[str, Any]:
    """Of somebody who is drawn it is known where every joint is."""
    return {"joints": (np.float32, (frames, 16, 2))}


def _refuse(found: Counter[str], make: _Maker, on_bad: str) -> None:
    """Numbers alone: a video's name can be a person's."""
    if found[UNREADABLE] and on_bad == "refuse":
        raise HalfmaskError(
            f"{found[UNREADABLE]:,} videos are missing or cannot be read: restore them ({where_named()}), or leave them out with "
            "data.on_bad=skip"
        )
    if found[TOO_SHORT] and make.short == "refuse":
        raise HalfmaskError(
            f"{found[TOO_SHORT]:,} videos have fewer than the {make.frames} frames asked for: ask for fewer (model.frames), show some of "
            "theirs again with data.short=repeat, or leave them out with data.short=skip"
        )
    if found[_OTHER_MASK]:
        raise HalfmaskError(
            f"{found[_OTHER_MASK]:,} masks have another size or another number of frames than their video: expected one mask for each "
            f"stored frame, of its size. Make them again ({where_named()})"
        )
    if found[_NO_MASK]:
        raise HalfmaskError(
            f"data.protect is {make.protect} and {found[_NO_MASK]:,} videos have no mask: say with data.masks where masks come from "
            "(files, boxes, or motion for a still camera), or that none are needed (data.masks=none)"
        )


def _check(takes: Sequence[Take], classes: Sequence[str], frames: int, size: int, name: str) -> None:
    """Refuse what would pass for something else later, in numbers alone."""
    if frames < 1:
        raise HalfmaskError(f"clips of {frames} frames were asked for: expected at least 1")
    if size < SMALLEST:
        raise HalfmaskError(f"frames of {size}×{size} pixels were asked for: expected at least {SMALLEST}×{SMALLEST}")
    twice = len(takes) - len({take.name for take in takes})
    if twice:
        raise HalfmaskError(f"{twice:,} clips of '{name}' have the name of another one: expected a name of its own for each")
    missing = sum(not take.label for take in takes)
    if missing:
        raise HalfmaskError(f"{missing:,} clips of '{name}' have no label: expected what is done in each, one of {', '.join(classes)}")
    unknown = sum(take.label not in set(classes) for take in takes)
    if unknown:
        raise HalfmaskError(
            f"{unknown:,} clips of '{name}' have a label that is none of its {len(classes)} classes ({', '.join(classes)}): name all "
            "classes, or leave those clips out"
        )


def _reasons(left_out: dict[str, int]) -> str:
    told = ", ".join(f"{count:,} × {reason}" for reason, count in left_out.items())
    return f"Left out: {told}" if told else "Expected at least one clip"


def _prints(arrays: dict[str, np.ndarray], shown: Sequence[Take], name: str) -> Fingerprints:
    """Of the films, of their names (in place of an annotation) and of the subjects.

    Names count as annotations do: only where two datasets share several of them. They are what tells an anonymised copy, which has another
    person on every frame and the same protected background.
    """
    secret = key()
    columns = {
        "annotations": [fingerprint_name("clip", f"{name}/{take.name}", secret) for take in shown],
        "subjects": [_NOBODY if take.subject is None else fingerprint_name("subject", take.subject, secret) for take in shown],
    }
    pictures = {part: arrays[f"print_{part}"] for part in ("exact", "bands", "sealed")}
    return Fingerprints.from_arrays(pictures | {part: np.array(rows, np.uint8).reshape(len(shown), 16) for part, rows in columns.items()})


def _named(shown: Sequence[Take], subjects: Sequence[str] | None) -> Fingerprints:
    """Of drawn clips, whose names are nobody else's in any dataset: the same at every size."""
    return named_prints([take.name for take in shown], subjects)


def _digest(takes: Sequence[Take], source: MaskSource) -> str:
    """Names these takes of these files with these masks, for caches: what has changed is looked at again."""
    digest = hashlib.sha256()
    for take in takes:
        digest.update(f"{take.name!r}|{getattr(take.read, 'stamp', '')}|{source.stamp(take)}|".encode())
    return digest.hexdigest()[:24]
