"""A folder of your own clips, which `halfmask data anonymise` writes and anybody can look at.

    clips.csv                 clip,label,split,video,subject
    frames/CLIP/000.png …     or clips/CLIP.avi (mp4, mkv, …)
    masks/CLIP/000.png …      or masks/CLIP.npz (key `mask`, F×H×W); white is what `dataset.json` says
    dataset.json              {"mask": "person" | "protected", "masks": "where from", "blended": pixels, "fps": 15, "name": "…"}

`clip` names a clip within the dataset, for good; `split` is `private`, `public`, `test`, … or empty; `video` is the recording it was cut
from (its own if empty) and `subject` whom it shows (empty if nobody says). `dataset.json` and masks may be missing. Frames are written
without loss: a codec would carry what is protected over the outline into what is public.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from halfmask.data.clip_masks import certain, mask_stamp, read_mask
from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.files import Complaints, describe, read_json
from halfmask.data.images import read_image
from halfmask.data.people import file_stamp
from halfmask.errors import HalfmaskError
from halfmask.writing import write_whole, writing

TABLE, ABOUT = "clips.csv", "dataset.json"
VIDEO_SUFFIXES = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".mpg", ".mpeg", ".m4v")
_COLUMNS = ("clip", "label", "split", "video", "subject")
_NEEDED = ("clip", "label")
_SHOWN = {"person": "background", "protected": "mask"}


@dataclass(frozen=True)
class FolderClip:
    """A clip of the folder, opened when it is called."""

    folder: Path
    name: str
    mask: str = "person"
    blended: int = 1

    def __call__(self) -> Film:
        """Its frames, and its mask if there is one."""
        frames, stride = self._frames()
        found = read_mask(self.folder / "masks", self.name)
        if found is None:
            return Film(frames, blended=self.blended)
        mask = certain(found[::stride], _SHOWN[self.mask])
        if self.mask == "person":
            return Film(frames, person=mask, blended=self.blended)
        return Film(frames, protected=mask, blended=self.blended)

    @property
    def stamp(self) -> str:
        """Changes when any of its files does."""
        video = self._video()
        files = [video] if video else self._pictures()
        parts = [f"{path.name} {file_stamp(path)}" for path in files]
        return "|".join([*parts, mask_stamp(self.folder / "masks", self.name), self.mask, str(self.blended)])

    def _pictures(self) -> list[Path]:
        return sorted((self.folder / "frames" / self.name).glob("*.png"))

    def _video(self) -> Path | None:
        places = (self.folder / "clips" / f"{self.name}{suffix}" for suffix in VIDEO_SUFFIXES)
        return next((path for path in places if path.is_file()), None)

    def _frames(self) -> tuple[np.ndarray, int]:
        """The frames, and which of the file's they are: all, or every second, every fourth …"""
        files = self._pictures()
        if files:
            frames = [read_image(path) for path in files]
            if len({frame.shape for frame in frames}) > 1:
                raise HalfmaskError("the frames of a clip have different sizes: expected one size for all")
            return np.stack(frames), 1
        video = self._video()
        if video is None:
            raise HalfmaskError(
                f"a clip has neither frames nor a video below {self.folder}: expected frames/CLIP/000.png or clips/CLIP.avi"
            )
        from halfmask.data.video import read_thinned

        return read_thinned(video)


def detect_clip_folder(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return (folder / TABLE).is_file()


def read_clip_folder(folder: Path) -> ClipSet:
    """What a folder of clips says; no frame is opened."""
    about = _read_about(folder)
    rows = _read_table(folder)
    takes = tuple(
        Take(
            name=row["clip"],
            label=row["label"],
            read=FolderClip(folder, row["clip"], about["mask"], about["blended"]),
            video=row["video"] or row["clip"],
            subject=row["subject"] or None,
        )
        for row in rows
    )
    splits: dict[str, set[str]] = {}
    for row in rows:
        if row["split"]:
            splits.setdefault(row["split"], set()).add(row["clip"])
    classes = tuple(about["classes"] or sorted({row["label"] for row in rows}))
    return ClipSet(
        name=about["name"] or folder.resolve().name,
        takes=takes,
        classes=classes,
        splits={split: frozenset(names) for split, names in splits.items()},
        masks=about["masks"] or ("mask files of the dataset" if (folder / "masks").is_dir() else ""),
    )


@dataclass
class ClipFolderWriter:
    """Writes a folder clip by clip; `finish` writes the table, without which it is no dataset.

    Args:
        name: of the dataset that the clips come from: a copy under the same name is known to be one.
        masks: where masks come from, in the words of the certificate.
        mask: what white stands for, `person` or `protected`.
        classes: in the order in which they are counted; those of the clips, sorted, if not given.
    """

    folder: Path
    name: str = ""
    masks: str = ""
    mask: str = "person"
    blended: int = 1
    fps: float = 15.0
    classes: tuple[str, ...] = ()
    rows: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.mask not in _SHOWN:
            raise HalfmaskError(f"masks of '{self.mask}' were to be written: expected person or protected")
        if detect_clip_folder(self.folder):
            raise HalfmaskError(f"{self.folder} holds clips already: name another folder")

    def add(self, take: Take, film: Film, split: str = "") -> None:
        """Write one clip: its frames and its mask, without loss."""
        write_clip(self.folder, take.name, film, self.mask)
        values = (take.name, take.label, split, take.video, take.subject or "")
        self.rows.append(dict(zip(_COLUMNS, values, strict=True)))

    def finish(self) -> Path:
        """Write what says which clips there are."""
        about: dict[str, Any] = {"mask": self.mask, "masks": self.masks, "blended": self.blended, "fps": self.fps}
        about |= {key: value for key, value in (("name", self.name), ("classes", list(self.classes))) if value}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / ABOUT, (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_whole(self.folder / TABLE, text.getvalue().encode())
        return self.folder


def write_clip(folder: Path, name: str, film: Film, mask: str = "person") -> None:
    """Write the frames of a clip and its mask as PNG files."""
    _check_name(name)
    digits = max(3, len(str(len(film.frames) - 1)))
    for number, frame in enumerate(film.frames):
        _write_png(folder / "frames" / name / f"{number:0{digits}d}.png", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    white = film.person if mask == "person" else film.protected
    for number, one in enumerate([] if white is None else white):
        _write_png(folder / "masks" / name / f"{number:0{digits}d}.png", np.where(one, np.uint8(255), np.uint8(0)))


def _write_png(path: Path, picture: np.ndarray) -> None:
    done, body = cv2.imencode(".png", picture)
    if not done:
        raise HalfmaskError(f"a frame of {picture.shape} cannot be written as PNG: expected H×W or H×W×3 bytes")
    # Not one by one on disk: what counts is the table, which is written last.
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body.tobytes())


def _check_name(name: str) -> None:
    parts = Path(name).parts
    if not parts or ".." in parts or Path(name).is_absolute() or "\\" in name:
        raise HalfmaskError("a clip's name leads out of its dataset folder, or is empty: expected a path inside it")


def _read_about(folder: Path) -> dict[str, Any]:
    defaults: dict[str, Any] = {"mask": "person", "masks": "", "blended": 1, "name": "", "classes": [], "fps": 15.0}
    path = folder / ABOUT
    if not path.is_file():
        return defaults
    body = read_json(path)
    if not isinstance(body, dict):
        raise HalfmaskError(f"{path} holds {describe(body)}: expected an object with mask, masks and blended")
    about = defaults | body
    checks: dict[str, tuple[Callable[[Any], bool], str]] = {
        "mask": (lambda value: value in _SHOWN, "person or protected"),
        "masks": (lambda value: isinstance(value, str), "a text that says where masks come from"),
        "name": (lambda value: isinstance(value, str), "a text"),
        "blended": (lambda value: type(value) is int and value >= 0, "a number of pixels, 0 or more"),
        "classes": (lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of names"),
    }
    for key, (fits, expected) in checks.items():
        if not fits(about[key]):
            raise HalfmaskError(f"{path}: {key} is {describe(about[key])} that will not do: expected {expected}")
    return about


def _read_table(folder: Path) -> list[dict[str, str]]:
    path = folder / TABLE
    if not path.is_file():
        raise HalfmaskError(f"{folder} has no {TABLE}: see 'halfmask.data.clip_folder' for the format it is expected in")
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file)
        missing = [column for column in _NEEDED if column not in (table.fieldnames or ())]
        if missing:
            raise HalfmaskError(f"{path} lacks the columns {', '.join(missing)}: expected {', '.join(_COLUMNS)}")
        rows = [{column: (row.get(column) or "").strip() for column in _COLUMNS} for row in table]
    complaints = Complaints(path, "clip", folder)
    seen: set[str] = set()
    for number, row in enumerate(rows):
        try:
            _check_name(row["clip"])
        except HalfmaskError:
            complaints.add(number, row["clip"], "a name that is empty or leads out of the folder")
        if row["clip"] in seen:
            complaints.add(number, row["clip"], "the name of another clip")
        if not row["label"]:
            complaints.add(number, row["clip"], "no label")
        seen.add(row["clip"])
    complaints.raise_if_any(len(rows))
    return rows
