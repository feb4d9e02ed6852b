"""The Weizmann actions: `ACTION/PERSON_ACTION.avi`, or the same files in one folder.

Nine people, ten actions, one still camera. Somebody may do an action twice (`lena_walk1`, `lena_walk2`): those two are one recording. Who
somebody is stands in the file's name, so a person can be a unit; and clips of one person are to be left out together.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import clip_set, named_like, relative, takes_named

ACTIONS = ("bend", "jack", "jump", "pjump", "run", "side", "skip", "walk", "wave1", "wave2")
_NAME = re.compile(rf"([A-Za-z]+)_({'|'.join(ACTIONS)})(\d?)\.\w+")


def detect_weizmann(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return named_like(folder, _NAME)


def read_weizmann(folder: Path) -> ClipSet:
    """The clips of a folder; none is opened. There is no division of its own: people are left out one at a time."""

    def take(path: Path, found: re.Match[str]) -> Take | None:
        # A clip in the folder of another action: one of the two is wrong, and which cannot be known.
        if path.parent != folder and path.parent.name in ACTIONS and path.parent.name != found[2]:
            return None
        person, action = found[1].lower(), found[2]
        return Take(relative(path, folder), action, VideoFile(path), f"{person}_{action}", subject=person)

    takes = takes_named(folder, _NAME, take, "PERSON_ACTION.avi, lie in the folder of another action")
    return clip_set("weizmann", folder, takes)
