"""ARID, actions in the dark: `train/CLASS/CLASS_GROUP_N.mp4` with `train.txt`, and the classes in `mapping_table_*.txt`.

Clips of a group show one scene, often one person after another: a group is one `video`, and no split cuts through it. Nobody says who is
who, and people recur in groups of other actions (somebody sits down in one, and stands up in another): no unit protects a person.

The clips are very dark, so they are brightened as they are read (`halfmask.data.video.brightened`): by a fixed map of each byte, which
measures nothing on a clip.

Where other lists than `train.txt` are there (`validate.txt`, `test.txt`), they are the dataset's division. Where it is alone there is none:
set some of each class's groups apart.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import clip_set, read_lines, refuse_missing, refuse_odd
from halfmask.errors import HalfmaskError

GAMMA = 0.4
_NAME = re.compile(r"(.+)_(\d+)_(\d+)\.\w+")
_PARTS = {"train": "train", "validate": "val", "val": "val", "test": "test"}


def detect_arid(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return _mapping(folder) is not None and bool(_lists(folder))


def read_arid(folder: Path, gamma: float = GAMMA) -> ClipSet:
    """The clips that the lists name; none is opened.

    Args:
        gamma: how much they are brightened; 1 for not at all.
    """
    classes = _classes(folder)
    takes: list[Take] = []
    splits: dict[str, frozenset[str]] = {}
    odd: list[str] = []
    missing: list[str] = []
    lists = _lists(folder)
    for part, path in lists.items():
        names = []
        for line in read_lines(path):
            fields = line.split()
            found = _NAME.fullmatch(Path(fields[-1]).name)
            number = int(fields[-2]) if len(fields) > 1 and fields[-2].isdecimal() else -1
            if found is None or not 0 <= number < len(classes) or ".." in Path(fields[-1]).parts or Path(fields[-1]).is_absolute():
                odd.append(line)
                continue
            file = folder / path.stem / fields[-1]
            name = f"{path.stem}/{fields[-1]}"
            if not file.is_file():
                missing.append(name)
                continue
            group = f"{found[1]}_{found[2]}"
            takes.append(Take(name, classes[number], VideoFile(file, gamma=gamma), group, group=group))
            names.append(name)
        splits[part] = frozenset(names)
    total = len(takes) + len(odd) + len(missing)
    refuse_odd(folder, odd, total, "lines of its lists are not 'number class CLASS/CLASS_GROUP_N.mp4' with a class of the mapping table")
    refuse_missing(folder, " and ".join(path.name for path in lists.values()), missing, total)
    return clip_set("arid", folder, takes, classes, splits if len(splits) > 1 else None)


def _mapping(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("mapping_table*.txt"))), None)


def _lists(folder: Path) -> dict[str, Path]:
    """By part, the lists that have a folder of clips beside them."""
    paths = {part: folder / f"{stem}.txt" for stem, part in _PARTS.items()}
    return {part: path for part, path in paths.items() if path.is_file() and (folder / path.stem).is_dir()}


def _classes(folder: Path) -> tuple[str, ...]:
    path = _mapping(folder)
    if path is None or not _lists(folder):
        raise HalfmaskError(f"{folder} is no copy of ARID: expected mapping_table_*.txt, and train.txt beside the folder 'train'")
    rows = [line.split(None, 1) for line in read_lines(path)]
    if any(len(row) != 2 or row[0] != str(number) for number, row in enumerate(rows)):
        raise HalfmaskError(f"{path} has lines that are not 'number class', counted from 0: download it again")
    return tuple(row[1] for row in rows)
