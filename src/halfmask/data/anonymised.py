"""Anonymised datasets: every clip of a set without its person, written as a folder of clips, and sheets to look at.

No clip is ever written with its person in it: one of which nobody knows where the person is, or in what pose, is left out and counted.
The folder appears under its name when it is whole. It shows no person, but the rooms that they were in: it is as private as those are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from halfmask.data.anonymise import Pipeline, Stages, stages
from halfmask.data.avatar_joints import PELVIS, THORAX, fill_gaps
from halfmask.data.clip_folder import ClipFolderWriter
from halfmask.data.clip_joints import JointSource
from halfmask.data.clip_masks import MaskSource
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.threads import in_order
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.writing import writing

AVATAR_BY = ("video", "subject", "clip")
NO_MASK, NO_POSE = "no mask of the person", "no pose of the person"
_COVERED = "exact: where a drawn avatar covers a pixel wholly"
_SHEET_FRAMES = 6

Progress = Callable[[int, int], None]


@dataclass
class Written:
    """What became of a dataset.

    Attributes:
        left_out: how many clips are not there, and why.
        covered: the mean share of pixels that are avatar, and so not protected with the background.
        shown: stages of the first clips, with the films that they began with; for the data's holder alone.
    """

    clips: int = 0
    avatars: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    covered: float = 0.0
    shown: list[tuple[Film, Stages]] = field(default_factory=list)


def avatar_key(take: Take, by: str) -> str:
    """What names a clip's avatar in public: clips of one video look alike, or of one subject, or each has its own."""
    if by not in AVATAR_BY:
        raise unknown_name("way to give avatars (--avatar-by)", by, AVATAR_BY)
    if by == "subject" and take.subject is None:
        raise HalfmaskError("avatars were to go by subject, and nobody says whom a clip shows: let them go by video or by clip")
    return str(take.subject if by == "subject" else take.name if by == "clip" else take.video or take.name)


def write_anonymised(
    clips: ClipSet,
    folder: Path,
    masks: MaskSource,
    joints: JointSource | None,
    pipeline: Pipeline | None = None,
    by: str = "video",
    shown: int = 8,
    workers: int = 1,
    progress: Progress | None = None,
) -> Written:
    """Write a folder of anonymised clips.

    Args:
        folder: it must not be there yet, or be empty.
        masks: where the person is; one that protects the person, so that what is in doubt is removed.
        joints: None to remove people and draw nobody: `pipeline.draw` must be `no_avatar` then.
        by: what clips must have in common to share an avatar: one of `AVATAR_BY`.
        shown: of how many clips, spread over the set, to keep the stages.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HalfmaskError(f"{folder} is there already and not empty: nothing was written; name another folder")
    keys = [avatar_key(take, by) for take in clips.takes]
    pipeline = pipeline or Pipeline()
    written = Written()
    used: set[str] = set()
    split_of = {name: split for split, names in reversed(list(clips.splits.items())) for name in names}
    looked = set(np.unique(np.linspace(0, len(clips.takes) - 1, min(shown, len(clips.takes))).astype(int)).tolist() if shown else [])
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        writer = ClipFolderWriter(
            unfinished,
            name=clips.name,
            masks=f"{_COVERED}; poses: {joints.words if joints else 'none'}; people were found by: {masks.words or clips.masks}",
            blended=0,
            classes=clips.classes,
        )
        todo = list(enumerate(zip(clips.takes, keys, strict=True)))

        def one(job: tuple[int, tuple[Take, str]]) -> tuple[Film, Stages] | str:
            return _anonymised(job[1][0], job[1][1], masks, joints, pipeline)

        for (number, (take, key)), made in zip(todo, in_order(one, todo, workers), strict=True):
            if isinstance(made, str):
                written.left_out[made] = written.left_out.get(made, 0) + 1
            else:
                film = made[1].film
                assert film.person is not None
                writer.add(take, film, split_of.get(take.name, ""))
                used.add(key)
                written.clips += 1
                written.covered += float(film.person.mean())
                if number in looked:
                    written.shown.append(made)
            if progress:
                progress(number + 1, len(todo))
        if not written.clips:
            told = ", ".join(f"{count:,} with {why}" for why, count in written.left_out.items()) or "there are none"
            raise HalfmaskError(f"not one clip could be anonymised ({told}): nothing was written")
        writer.finish()
        _put(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    written.avatars, written.covered = len(used), written.covered / written.clips
    return written


def _anonymised(take: Take, key: str, masks: MaskSource, joints: JointSource | None, pipeline: Pipeline) -> tuple[Film, Stages] | str:
    """A clip's stages, or why it is left out."""
    film = masks(take, take.read())
    if film.person is None or not film.person.any():
        return NO_MASK
    if joints is None:
        found = np.full((len(film.frames), 16, 2), np.nan)
    else:
        placed = joints(take, film)
        if placed is None or not _posed(placed):
            return NO_POSE
        found = placed
    return film, stages(film, found, key, pipeline)


def _posed(joints: np.ndarray) -> bool:
    """Whether a trunk is known in any frame: without one there is nothing to draw an avatar on."""
    filled = fill_gaps(joints, np.ones(len(joints), bool))
    return bool(np.isfinite(filled[:, [PELVIS, THORAX]]).all(axis=(1, 2)).any())


def _put(unfinished: Path, folder: Path) -> None:
    """Give a folder its name: it is whole, or not there. An empty one of that name makes way, any other does not."""
    with writing(folder):
        # Folders of `mkdtemp` are for their owner alone.
        mask = os.umask(0)
        os.umask(mask)
        unfinished.chmod(0o777 & ~mask)
        if folder.is_dir():
            folder.rmdir()
        unfinished.rename(folder)


def sheet_of_stages(shown: list[tuple[Film, Stages]], real: bool, height: int = 96) -> np.ndarray:
    """What became of some clips: where somebody was, the room without them, with their avatar, and what of that is protected (red).

    Args:
        real: begin with the clips as they were. Such a sheet shows real people: it is for the data's holder alone.
    """
    from halfmask.report.filmstrip import filmstrip, sheet

    strips = []
    for film, made in shown:
        person = made.film.person
        assert person is not None
        silhouette = np.where(made.mask[..., None], np.uint8(230), np.uint8(40)).repeat(3, axis=3)
        rows: list[tuple[np.ndarray, np.ndarray | None]] = [(film.frames, None)] if real else []
        rows += [(silhouette, None), (made.inpainted, None), (made.film.frames, None), (made.film.frames, ~person)]
        lines = [filmstrip(frames, hidden, count=_SHEET_FRAMES, height=height) for frames, hidden in rows]
        gap = np.full((2, lines[0].shape[1], 3), 255, np.uint8)
        strips.append(np.concatenate([part for line in lines for part in (line, gap)][:-1]))
    # Two columns: a sheet is looked at on a screen.
    half = (len(strips) + 1) // 2
    columns = [sheet(part) for part in (strips[:half], strips[half:]) if part]
    tall = max(column.shape[0] for column in columns)
    return np.concatenate([np.pad(one, ((0, tall - one.shape[0]), (0, 0), (0, 0)), constant_values=255) for one in columns], axis=1)
