"""Toyota Smarthome: `Activity_pXX_rYY_vZZ_cWW.mp4`, which says the activity, subject, repetition, video and camera; folders do not matter.

Recordings of somebody's days at home were cut into clips, and several cameras saw the same. Clips of one subject with one video number are
taken to be one recording (a unit `video`), whatever activity, repetition and camera: where that joins more than it must, a unit is larger
and the promise covers more. The division is the official one by subject (cross-subject).
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import by_subject, clip_set, named_like, takes_named

TRAINING_SUBJECTS = frozenset((3, 4, 6, 7, 9, 12, 13, 15, 17, 19, 25))
_NAME = re.compile(r"([A-Za-z.]+)_(p\d+)_(r\d+)_(v\d+)_(c\d+)\.\w+")


def detect_smarthome(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return named_like(folder, _NAME)


def read_smarthome(folder: Path) -> ClipSet:
    """The clips of a folder; none is opened."""
    takes = takes_named(folder, _NAME, _take, "Activity_pXX_rYY_vZZ_cWW.mp4")
    return clip_set("smarthome", folder, takes, None, by_subject(takes, TRAINING_SUBJECTS))


def _take(path: Path, found: re.Match[str]) -> Take:
    activity, person, _, video, _ = found.groups()
    return Take(path.stem, activity, VideoFile(path), f"{person}_{video}", subject=person)
