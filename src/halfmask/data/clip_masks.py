"""Where masks come from: which pixels of a film show the person, or are protected.

| `data.masks` | the person (or, with `data.protect=mask`, what is protected) is |
|---|---|
| `own` | what the dataset itself says: drawn clips, our own folders |
| `files` | what is white in a PNG for each frame (`NAME/000.png`, …), or true in `NAME.npz` (key `mask`, F×H×W) |
| `boxes` | what is inside a box for each frame, from a CSV (`clip,frame,left,top,width,height`) or JSON (`{clip: {frame: box}}`) |
| `motion` | what moves before a still camera (`halfmask.data.clip_motion`): an estimate |
| `none` | unknown: nothing is hidden, and methods that need a mask refuse |

Whatever is in doubt is protected: grey in a mask, the edge of a box that cuts through a pixel, a frame of which nobody says anything. Masks
are public, as the certificate says: nothing of a mask may come from what is to be kept secret.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np

from halfmask.data.clips import PROTECT, Film, Take
from halfmask.data.files import BadAnnotations, describe, finite_array, read_json, where_named
from halfmask.data.people import file_stamp
from halfmask.errors import HalfmaskError, unknown_name

MASKS = ("own", "files", "boxes", "motion", "none")
_COLUMNS = ("clip", "frame", "left", "top", "width", "height")
_WHITE = 255


class MaskSource(Protocol):
    """Gives a film its mask.

    Attributes:
        kind: one of `MASKS`.
        words: where masks come from, in the words of the certificate.
        key: what, besides the files, decides what masks look like; for caches.
    """

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def words(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film with its mask; without one where there is none for it.

        Args:
            picked: the frames whose masks will be looked at; all, if not given.
        """

    def stamp(self, take: Take) -> str:
        """Changes when the mask's file does."""


@dataclass(frozen=True)
class NoMasks:
    """Nobody knows where the person is."""

    kind = "none"
    words = ""
    key = "none"

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film, and no mask."""
        return replace(film, person=None, protected=None)

    def stamp(self, take: Take) -> str:
        """There is nothing that could change."""
        return ""


@dataclass(frozen=True)
class OwnMasks:
    """The masks that come with the dataset."""

    words: str = ""
    kind = "own"
    key = "own"

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film as it is."""
        return film

    def stamp(self, take: Take) -> str:
        """The film's own stamp tells."""
        return ""


@dataclass(frozen=True)
class FileMasks:
    """A file, or a folder of files, for each take, named after it.

    Args:
        protect: what is protected; it decides what white stands for, and on which side grey is.
        blended: pixels on either side of the outline that mix both.
    """

    folder: Path
    protect: str
    blended: int = 1
    kind = "files"

    @property
    def words(self) -> str:
        """For the certificate."""
        return f"mask files of the data holder ({'white is protected' if self.protect == 'mask' else 'white is the person'})"

    @property
    def key(self) -> str:
        """The folder is told by the files' stamps."""
        return f"files/{self.protect}/{self.blended}"

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film with the mask that was found for it."""
        found = read_mask(self.folder, take.name)
        return film if found is None else with_mask(film, certain(found, self.protect), self.protect, self.blended)

    def stamp(self, take: Take) -> str:
        """Of all of its files."""
        return mask_stamp(self.folder, take.name)


@dataclass(frozen=True)
class BoxMasks:
    """Boxes from a file. What lies inside one counts as the person, the background beside them too.

    A frame without a box is protected whole, whatever is protected; a take without any box has no mask.
    """

    path: Path
    protect: str
    blended: int = 0
    kind = "boxes"

    @property
    def words(self) -> str:
        """For the certificate."""
        inside = "protected" if self.protect == "mask" else "the person"
        seen = ", so the background inside a box is public" if self.protect == "background" else ""
        return f"boxes of the data holder: all inside a box counts as {inside}{seen}"

    @property
    def key(self) -> str:
        """What decides besides the file."""
        return f"boxes/{self.protect}/{self.blended}"

    @cached_property
    def boxes(self) -> Mapping[str, Mapping[int, np.ndarray]]:
        """By take and frame, K×4."""
        return read_boxes(self.path)

    def __call__(self, take: Take, film: Film, picked: np.ndarray | None = None) -> Film:
        """The film with its boxes as the mask."""
        of_take = self.boxes.get(take.name) or self.boxes.get(str(Path(take.name).with_suffix("")))
        if not of_take:
            return film
        outwards = self.protect != "background"
        mask = np.full(film.frames.shape[:3], outwards)
        if max(of_take) >= len(mask):
            # Boxes of another cut of this film would protect the wrong pixels of every frame.
            return with_mask(film, np.zeros((max(of_take) + 1, *mask.shape[1:]), bool), self.protect, self.blended)
        for frame, boxes in of_take.items():
            mask[frame] = False
            for left, top, width, height in boxes:
                low, high = (math.floor, math.ceil) if outwards else (math.ceil, math.floor)
                rows = slice(max(0, low(top)), max(0, high(top + height)))
                mask[frame, rows, max(0, low(left)) : max(0, high(left + width))] = True
        return with_mask(film, mask, self.protect, self.blended)

    def stamp(self, take: Take) -> str:
        """One file for all."""
        return file_stamp(self.path)


def with_mask(film: Film, mask: np.ndarray, protect: str, blended: int) -> Film:
    """The film with a mask where `protect` looks for it."""
    part = {"protected": mask} if protect == "mask" else {"person": mask}
    return replace(film, **part, blended=blended)


def certain(mask: np.ndarray, protect: str) -> np.ndarray:
    """A mask of greys as truth values: grey is protected, whether the person is or the background."""
    if mask.dtype == bool:
        return mask
    top = _WHITE if mask.max(initial=0) > 1 else 1
    return mask >= top if protect == "background" else mask > 0


def read_mask(folder: Path, name: str) -> np.ndarray | None:
    """The mask of a take, F×H×W, from `NAME.npz` or from the PNG files in `NAME/`, in the order of their names; None if there is none."""
    archive = _archive(folder, name)
    if archive.is_file():
        try:
            with np.load(archive, allow_pickle=False) as arrays:
                mask = arrays["mask"]
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise BadAnnotations(
                f"a mask below {folder} cannot be read: expected an NPZ archive with the key 'mask' ({where_named()})",
                [f"{archive.name}: {error}"],
            ) from None
        return mask if mask.ndim == 3 and mask.dtype in (np.bool_, np.uint8) else np.zeros((0, 0, 0), bool)
    files = _pictures(folder, name)
    if not files:
        return None
    grey = []
    for path in files:
        picture = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        if picture is None or picture.dtype != np.uint8:
            raise BadAnnotations(f"a mask below {folder} cannot be read: expected PNG files of 8 bits ({where_named()})", [name])
        grey.append(picture if picture.ndim == 2 else picture[..., :3].min(2))
    shapes = {picture.shape for picture in grey}
    # Frames of different sizes are of no film's size: told later, with all others that are not.
    return np.stack(grey) if len(shapes) == 1 else np.zeros((0, 0, 0), bool)


def mask_stamp(folder: Path, name: str) -> str:
    """Changes when any of a take's mask files does."""
    archive = _archive(folder, name)
    files = [archive] if archive.is_file() else _pictures(folder, name)
    return "|".join(f"{path.name} {file_stamp(path)}" for path in files)


def read_boxes(path: Path) -> dict[str, dict[int, np.ndarray]]:
    """The boxes of a CSV or JSON file, by take and frame (counted from 0): K×4, left, top, width, height."""
    if not path.is_file():
        raise HalfmaskError(f"no boxes at {path}: give the CSV or JSON file with data.masks_path")
    rows = _json_rows(path) if path.suffix.lower() == ".json" else _csv_rows(path)
    found: dict[str, dict[int, list[np.ndarray]]] = {}
    wrong = []
    for clip, frame, box in rows:
        number, values = finite_array(frame, ()), finite_array(box, (4,))
        if number is None or number != int(number) or number < 0 or values is None or (values[2:] <= 0).any():
            wrong.append(f"{clip}, frame {frame}: {box!r}")
        else:
            found.setdefault(str(clip), {}).setdefault(int(number), []).append(values)
    if wrong:
        raise BadAnnotations(
            f"{path}: {len(wrong):,} boxes cannot be used: expected a frame, counted from 0, and left, top, width and height in stored "
            f"pixels, the last two above 0. Mend them ({where_named()})",
            wrong,
        )
    return {clip: {frame: np.stack(boxes) for frame, boxes in frames.items()} for clip, frames in found.items()}


def mask_source(kind: str, protect: str, path: Path | None = None, own: str = "", blended: int = 1, motion: str = "median") -> MaskSource:
    """The source that a recipe names.

    Args:
        path: the folder of `files`, or the file of `boxes`.
        own: where the dataset's own masks come from, in words.
        motion: the way to find what moves.
    """
    if protect not in PROTECT:
        raise unknown_name("part to protect (data.protect)", protect, PROTECT)
    if kind not in MASKS:
        raise unknown_name("source of masks (data.masks)", kind, MASKS)
    if kind == "none":
        return NoMasks()
    if kind == "own":
        return OwnMasks(own)
    if kind == "motion":
        from halfmask.data.clip_motion import MotionMasks

        return MotionMasks(protect, motion)
    if path is None:
        raise HalfmaskError(f"data.masks is {kind}: say with data.masks_path where they are")
    if kind == "files":
        if not path.is_dir():
            raise HalfmaskError(f"no folder of masks at {path}: give it with data.masks_path")
        return FileMasks(path, protect, blended)
    return BoxMasks(path, protect)


def _archive(folder: Path, name: str) -> Path:
    place = _inside(folder, name)
    whole = place.with_name(f"{place.name}.npz")
    return whole if whole.is_file() else place.with_suffix(".npz")


def _pictures(folder: Path, name: str) -> list[Path]:
    """A take that is called after its file (`run/ira_run.avi`) may have its masks in a folder without the suffix."""
    place = _inside(folder, name)
    return sorted(place.glob("*.png")) or sorted(place.with_suffix("").glob("*.png"))


def _inside(folder: Path, name: str) -> Path:
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise BadAnnotations(f"a clip's name leads out of the folder of masks {folder}: expected a path inside it", [name])
    return folder / name


def _csv_rows(path: Path) -> list[tuple[Any, Any, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        missing = [column for column in _COLUMNS if column not in (table.fieldnames or ())]
        if missing:
            raise HalfmaskError(f"{path} lacks the columns {', '.join(missing)}: expected {', '.join(_COLUMNS)}")
        return [(row["clip"], row["frame"], [row[column] for column in _COLUMNS[2:]]) for row in table]


def _json_rows(path: Path) -> list[tuple[Any, Any, Any]]:
    body = read_json(path)
    if not isinstance(body, dict) or not all(isinstance(frames, dict) for frames in body.values()):
        raise HalfmaskError(f"{path} holds {describe(body)}: expected {{clip: {{frame: [left, top, width, height]}}}}")
    rows = []
    for clip, frames in body.items():
        for frame, boxes in frames.items():
            several = isinstance(boxes, list) and bool(boxes) and isinstance(boxes[0], list)
            rows += [(clip, frame, box) for box in (boxes if several else [boxes])]
    return rows
