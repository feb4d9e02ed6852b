"""HMDB51: `CLASS/…_CLASS_f_nm_np1_ba_goo_0.avi`, and for each class `CLASS_test_split1.txt` with 1 (training), 2 (test) or 0 (neither).

What stands before the class in a file's name is the video it was cut from: such clips are one `video`, whatever class they show, and no
split cuts through it. Nobody says who is who. Without lists there is no division.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import clip_set, find_list, named_like, read_lines, refuse_missing, takes_named
from halfmask.errors import HalfmaskError

# Visible body parts, camera motion, people, viewpoint, quality, number.
_TAIL = r"_[fhlu]_(?:cm|nm)_np\d+_(?:ba|fr|le|ri)_(?:bad|goo|med)_\d+\.\w+"
_NAME = re.compile(rf"(.+){_TAIL}")
_PARTS = {"1": "train", "2": "test"}


def detect_hmdb51(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return named_like(folder, _NAME)


def read_hmdb51(folder: Path, split: int = 1) -> ClipSet:
    """The clips of a folder; none is opened.

    Args:
        split: which of the official splits, 1, 2 or 3.
    """
    takes = takes_named(folder, _NAME, _take, "as HMDB51's are (SOURCE_CLASS_f_nm_np1_ba_goo_0.avi)")
    return clip_set("hmdb51", folder, takes, None, _splits(folder, takes, split))


def _take(path: Path, found: re.Match[str]) -> Take:
    label = path.parent.name
    video = found[1].removesuffix(f"_{label}")
    return Take(f"{label}/{path.name}", label, VideoFile(path), video, group=video)


def _splits(folder: Path, takes: list[Take], split: int) -> dict[str, frozenset[str]]:
    labels = sorted({take.label for take in takes})
    files = {label: find_list(folder, f"{label}_test_split{split}.txt") for label in labels}
    if not any(files.values()) and split == 1:
        return {}
    absent = [label for label, path in files.items() if path is None]
    if absent:
        raise HalfmaskError(
            f"{folder} has no list CLASS_test_split{split}.txt for {len(absent)} of its {len(labels)} classes: download HMDB51's splits"
        )
    there = {take.name for take in takes}
    parts: dict[str, set[str]] = {part: set() for part in _PARTS.values()}
    missing: list[str] = []
    total = 0
    for label, path in files.items():
        for line in read_lines(path) if path else ():
            name, _, flag = line.rpartition(" ")
            if flag not in ("0", *_PARTS) or not name:
                raise HalfmaskError(f"{path} has lines that are not 'clip.avi 0', 1 or 2: download it again")
            if flag == "0":
                continue
            total += 1
            clip = f"{label}/{name.strip()}"
            if clip in there:
                parts[_PARTS[flag]].add(clip)
            else:
                missing.append(clip)
    refuse_missing(folder, f"its lists of split {split}", missing, total)
    return {part: frozenset(names) for part, names in parts.items()}
