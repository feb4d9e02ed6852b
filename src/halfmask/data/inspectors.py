"""Who looks at datasets that are not people with joints, for `halfmask data inspect`: a function for each of their formats.

Such a function is named, as `module:function`, under its format in `INSPECTORS`, and called as `Inspect` says.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.table import Table

from halfmask.data.clip_sets import clip_formats, detect_clip_format
from halfmask.data.face_sets import FACE_FORMATS, detect_face_format
from halfmask.data.formats import FORMATS, detect_format
from halfmask.data.picture_folders import PICTURE_FORMATS, detect_picture_format
from halfmask.errors import HalfmaskError, unknown_name

Progress = Callable[[int, int], None]

_OF_FACES = "Of faces: labels.csv (68 landmarks), aflw.sqlite (AFLW), JSON of faces with 19 keypoints, or .pts files beside photographs"
_OF_PICTURES = "Of pictures of one person each: bounding_box_train (Market-1501), or folders of frames PERSON/ACTIVITY (CAD-60)"
_OF_CLIPS = f"Of clips: clips.csv (your own), or videos named as they are released ({', '.join(clip_formats()[1:])})"


@dataclass(frozen=True)
class Looked:
    """What a look at a dataset told.

    Attributes:
        body: for programs.
        lines: tables and lines of text, in the order they are shown.
        sheet: a picture of some records, H×W×3, where one was asked for.
        problems: how many things had better be mended, which `--strict` does not let pass.
    """

    body: dict[str, Any]
    lines: list[Table | str] = field(default_factory=list)
    sheet: np.ndarray | None = None
    problems: int = 0


class Inspect(Protocol):
    """How the function of a format is called.

    Args of the call: the folder, the format it was found under, whether to open the images, how many records to put on a picture (0 for
    none), whom to tell how far it is, and, where somebody gave any, options that only the formats in `TAKES_MASKS` know.
    """

    def __call__(
        self, folder: Path, format: str, *, open_images: bool, pictured: int, progress: Progress | None = None, **options: str
    ) -> Looked:
        """Look at a dataset."""


# By format, where the function is: it is imported when it is asked for.
INSPECTORS: dict[str, str] = {
    **dict.fromkeys(FACE_FORMATS, "halfmask.cli.inspection_faces:look_at_faces"),
    **dict.fromkeys(clip_formats(), "halfmask.cli.inspection_clips:look_at_clips"),
    **dict.fromkeys(PICTURE_FORMATS, "halfmask.cli.inspection_pictures:look_at_pictures"),
}


# Formats whose function takes `masks`, `masks_path` and `protect`.
TAKES_MASKS = clip_formats()


def find_out_format(folder: Path) -> str:
    """The format of a folder, of people with joints, of faces, clips or pictures; an error says what was expected of each."""
    try:
        return detect_format(folder)
    except HalfmaskError as no_people:
        for detect in (detect_face_format, detect_clip_format, detect_picture_format):
            try:
                return detect(folder)
            except HalfmaskError:
                continue
        raise HalfmaskError(f"{no_people}. {_OF_FACES}. {_OF_CLIPS}. {_OF_PICTURES}") from None


def inspector_of(format: str | None) -> Inspect | None:
    """The function for a format; None where it is one of people with joints, or is to be found out."""
    if format is None or format in FORMATS:
        return None
    if format not in INSPECTORS:
        raise unknown_name("dataset format", format, [*FORMATS, *INSPECTORS])
    module, _, name = INSPECTORS[format].partition(":")
    found: Inspect | None = getattr(importlib.import_module(module), name, None)
    if found is None:
        raise HalfmaskError(f"datasets in the format '{format}' cannot be inspected: {module} has no '{name}'")
    return found
