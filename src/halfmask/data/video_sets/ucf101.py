"""UCF101: `CLASS/v_CLASS_gGG_cCC.avi`, with `classInd.txt`, `trainlist01.txt` and `testlist01.txt` of the official splits.

The clips of a group were cut from one video: a group is one `video`, and no split cuts through it. Nobody says who is who. The videos lie
in the folder or in one below it (`UCF-101`), as do the lists (`ucfTrainTestlist`); without lists there is no division.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import clip_set, find_list, named_like, read_lines, refuse_missing, takes_named
from halfmask.errors import HalfmaskError

_NAME = re.compile(r"v_(\w+)_g(\d+)_c(\d+)\.\w+")


def detect_ucf101(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return named_like(folder, _NAME)


def read_ucf101(folder: Path, split: int = 1) -> ClipSet:
    """The clips of a folder; none is opened.

    Args:
        split: which of the official splits, 1, 2 or 3.
    """
    takes = takes_named(folder, _NAME, _take, "v_CLASS_gGG_cCC.avi")
    return clip_set("ucf101", folder, takes, _classes(folder), _splits(folder, {take.name for take in takes}, split))


def _take(path: Path, found: re.Match[str]) -> Take:
    # The folder is the class, as in the lists; the file's name may spell it otherwise (HandStandPushups).
    label = path.parent.name
    video = f"{label}_g{found[2]}"
    return Take(f"{label}/{path.name}", label, VideoFile(path), video, group=video)


def _classes(folder: Path) -> tuple[str, ...] | None:
    path = find_list(folder, "classInd.txt")
    if path is None:
        return None
    rows = [line.split() for line in read_lines(path)]
    if any(len(row) != 2 or row[0] != str(number) for number, row in enumerate(rows, start=1)):
        raise HalfmaskError(f"{path} has lines that are not 'number class', counted from 1: download it again")
    return tuple(row[1] for row in rows)


def _splits(folder: Path, there: set[str], split: int) -> dict[str, frozenset[str]]:
    files = {part: find_list(folder, f"{part}list{split:02d}.txt") for part in ("train", "test")}
    if not any(files.values()) and split == 1:
        return {}
    absent = [f"{part}list{split:02d}.txt" for part, path in files.items() if path is None]
    if absent:
        raise HalfmaskError(f"{folder} has no {' and no '.join(absent)}: a split needs both lists. Download UCF101's train and test lists")
    # A line of the training list ends in the number of its class.
    named = {part: [line.split()[0] for line in read_lines(path)] for part, path in files.items() if path is not None}
    for part, names in named.items():
        refuse_missing(folder, f"{part}list{split:02d}.txt", [name for name in names if name not in there], len(names))
    return {part: frozenset(names) for part, names in named.items()}
