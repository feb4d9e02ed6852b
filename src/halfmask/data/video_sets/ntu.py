"""NTU RGB+D: `SsssCcccPpppRrrrAaaa_rgb.avi`, which says the setup, camera, performer, repetition and action; folders do not matter.

The same performance is seen by up to three cameras: these clips are one `video`. The performer is the `subject`. Actions A050 to A060, and
from A106 on, have a second person in them whom nothing names: a unit `subject` protects the first alone. The division is the official one
by performer (cross-subject); the list of NTU RGB+D 120 contains that of NTU RGB+D, and says the same about its forty performers.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import by_subject, clip_set, named_like, takes_named

# Of NTU RGB+D, and, after the first twenty, of those that NTU RGB+D 120 added.
TRAINING_SUBJECTS = frozenset(
    (
        *(1, 2, 4, 5, 8, 9, 13, 14, 15, 16, 17, 18, 19, 25, 27, 28, 31, 34, 35, 38),
        *(45, 46, 47, 49, 50, 52, 53, 54, 55, 56, 57, 58, 59, 70, 74, 78, 80, 81, 82, 83),
        *(84, 85, 86, 89, 91, 92, 93, 94, 95, 97, 98, 100, 103),
    )
)
ACTIONS = (
    "drink water",
    "eat meal",
    "brush teeth",
    "brush hair",
    "drop",
    "pick up",
    "throw",
    "sit down",
    "stand up",
    "clapping",
    "reading",
    "writing",
    "tear up paper",
    "put on jacket",
    "take off jacket",
    "put on a shoe",
    "take off a shoe",
    "put on glasses",
    "take off glasses",
    "put on a hat or cap",
    "take off a hat or cap",
    "cheer up",
    "hand waving",
    "kicking something",
    "reach into pocket",
    "hopping",
    "jump up",
    "phone call",
    "play with phone or tablet",
    "type on a keyboard",
    "point to something",
    "taking a selfie",
    "check time",
    "rub two hands",
    "nod head or bow",
    "shake head",
    "wipe face",
    "salute",
    "put palms together",
    "cross hands in front",
    "sneeze or cough",
    "staggering",
    "falling down",
    "headache",
    "chest pain",
    "back pain",
    "neck pain",
    "nausea or vomiting",
    "fan self",
    "punch or slap",
    "kicking",
    "pushing",
    "pat on back",
    "point finger",
    "hugging",
    "giving object",
    "touch pocket",
    "shaking hands",
    "walking towards",
    "walking apart",
)
_NAME = re.compile(r"(S\d{3})(C\d{3})(P\d{3})(R\d{3})(A\d{3})(?:_rgb)?\.\w+")


def detect_ntu(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return named_like(folder, _NAME)


def read_ntu(folder: Path) -> ClipSet:
    """The clips of a folder; none is opened."""
    takes = takes_named(folder, _NAME, _take, "SsssCcccPpppRrrrAaaa_rgb.avi")
    codes = sorted({take.video[-4:] for take in takes})
    return clip_set("ntu", folder, takes, [action_name(code) for code in codes], by_subject(takes, TRAINING_SUBJECTS))


def action_name(code: str) -> str:
    """What `A001` is; a code that has no name here is its own."""
    number = int(code[1:])
    return ACTIONS[number - 1] if 1 <= number <= len(ACTIONS) else code


def _take(path: Path, found: re.Match[str]) -> Take:
    setup, _, person, repetition, action = found.groups()
    return Take(path.stem, action_name(action), VideoFile(path), f"{setup}{person}{repetition}{action}", subject=person)
