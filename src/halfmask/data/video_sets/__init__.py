"""Datasets of videos as their makers release them: which format a folder is in, and its clips.

A reader opens no video. It gives a `halfmask.data.clips.ClipSet`: what each clip shows, which recording it was cut from, who is seen where
the dataset tells, and the dataset's own division.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halfmask.data.clips import ClipSet
from halfmask.data.video_sets.airtlab import detect_airtlab, read_airtlab, read_airtlab_actions
from halfmask.data.video_sets.arid import detect_arid, read_arid
from halfmask.data.video_sets.hmdb51 import detect_hmdb51, read_hmdb51
from halfmask.data.video_sets.ntu import detect_ntu, read_ntu
from halfmask.data.video_sets.smarthome import detect_smarthome, read_smarthome
from halfmask.data.video_sets.ucf101 import detect_ucf101, read_ucf101
from halfmask.data.video_sets.weizmann import detect_weizmann, read_weizmann
from halfmask.errors import HalfmaskError, unknown_name

# In the order in which they are tried. What differs in a reading, and not in the files, comes second and is asked for by name.
# A reader takes the folder, and `split` where there are several official divisions.
READERS: dict[str, tuple[Callable[[Path], bool], Callable[..., ClipSet]]] = {
    "ntu": (detect_ntu, read_ntu),
    "smarthome": (detect_smarthome, read_smarthome),
    "ucf101": (detect_ucf101, read_ucf101),
    "hmdb51": (detect_hmdb51, read_hmdb51),
    "weizmann": (detect_weizmann, read_weizmann),
    "arid": (detect_arid, read_arid),
    "airtlab": (detect_airtlab, read_airtlab),
    "airtlab-actions": (detect_airtlab, read_airtlab_actions),
}
VIDEO_FORMATS = tuple(READERS)


def detect_video_format(folder: Path) -> str | None:
    """The format of a folder of videos, by what is in it; None if it is in none of these."""
    return next((format for format, (detect, _) in READERS.items() if detect(folder)), None)


def read_video_set(folder: Path, format: str | None = None) -> ClipSet:
    """The clips of a folder, in whichever format; none is opened.

    Args:
        format: one of `VIDEO_FORMATS`; found out if not given.
    """
    if format is not None and format not in READERS:
        raise unknown_name("format of videos", format, VIDEO_FORMATS)
    format = format or detect_video_format(folder)
    if format is None:
        raise HalfmaskError(f"{folder} is in no known format of videos: expected {', '.join(VIDEO_FORMATS)}, named as released")
    return READERS[format][1](folder)
