"""Annotation files and where the images they name are: what all formats' readers share.

A file name can be a patient's name and an annotation a measurement of them, and the screen is an output like any other. So an error about
an annotation file names the file and the kind of mistake, and never a person in it: no image, no value, no place in the list. Whoever holds
the data finds those with `halfmask data inspect`, which is the one command that shows an error's `details`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import scipy.io

from halfmask.errors import HalfmaskError

# Where the releases of MPII, COCO and Human-Art put their annotation files.
_ANNOTATION_FOLDERS = ("", "annotations", "annot")
_KINDS_TOLD = 12
_LONGEST_VALUE = 120


def annotation_files(folder: Path, suffix: str) -> list[Path]:
    """All files of this kind where annotations are kept."""
    return sorted(path for place in _ANNOTATION_FOLDERS for path in (folder / place).glob(f"*{suffix}") if path.is_file())


def read_json(path: Path) -> Any:
    """A JSON file; the last few are kept, because formats are told apart by looking inside."""
    try:
        status = path.stat()
    except OSError as error:
        raise HalfmaskError(f"{path} cannot be read ({error.strerror}): check the path") from None
    return _read_json(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read_json(path: Path, modified: int, size: int) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadAnnotations(
            f"{path} is not valid JSON: mend it, or export or download it again ('halfmask data inspect' says where it breaks)",
            [f"{path.name}: {error}"],
        ) from None


def read_mat(path: Path) -> dict[str, Any]:
    """A MATLAB file's variables, structs as objects with attributes."""
    try:
        return dict(scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False))
    except FileNotFoundError:
        raise HalfmaskError(f"no file at {path}: check the path") from None
    except NotImplementedError:
        raise HalfmaskError(f"{path} is a MATLAB 7.3 file, which cannot be read: save it with -v7") from None
    except Exception as error:  # scipy raises a different kind for each way a file can be damaged
        message = f"{path} cannot be read as a MATLAB file: it is damaged or of another format"
        raise BadAnnotations(message, [f"{path.name}: {error}"]) from None


def describe(body: Any) -> str:
    """What a JSON value is, in a few words for an error: its kind and size, and nothing of what it holds."""
    if body is None:
        return "nothing"
    if isinstance(body, dict):
        return f"an object of {_counted(len(body), 'field')}"
    if isinstance(body, list | tuple):
        kinds = {_KINDS.get(type(one), "thing") for one in body}
        text = f"a list of {_counted(len(body), kinds.pop() if len(kinds) == 1 else 'thing')}"
        finite = all(np.isfinite(one) for one in body if type(one) is float)
        return text if finite else f"{text}, not all of them finite"
    return f"a {_KINDS.get(type(body), type(body).__name__)}"


_KINDS: dict[type, str] = {int: "number", float: "number", str: "text", list: "list", dict: "object", bool: "truth value"}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def split_of(path: Path) -> str:
    """The split that a file's name tells: `train`, `val`, `test`, or `all` if it tells none."""
    name = path.stem.lower()
    if "trainval" in name:
        return "all"
    return next((split for split in ("train", "val", "test") if split in name), "all")


class BadAnnotations(HalfmaskError):
    """Annotations that cannot be used.

    Attributes:
        details: for the data's holder alone: which entries, of which images, and what they hold.
    """

    def __init__(self, message: str, details: Iterable[str] = ()):
        super().__init__(message)
        self.details = tuple(details)


class Complaints:
    """Gathers what is wrong with the entries of an annotation file, so that all of it can be mended at once."""

    def __init__(self, path: Path, noun: str, folder: Path, plural: str = ""):
        self.path, self.noun, self.folder, self.plural = path, noun, folder, plural or f"{noun}s"
        self.entries: set[int] = set()
        self.details: list[tuple[int, str]] = []
        self._kinds: dict[str, int] = {}

    def add(self, number: int, image: Any, problem: str, value: Any = None) -> None:
        """Note something wrong with an entry; there may be more.

        Args:
            number: its place in the list; -1 for what concerns the file as a whole.
            problem: what was found and expected, without a word that comes from the entry.
            value: what the entry holds there, for its holder.
        """
        self._kinds[problem] = self._kinds.get(problem, 0) + 1
        self.entries.add(number)
        held = "" if value is None else f" (it holds {_shortened(value)})"
        of_image = f", image {image!r}" if isinstance(image, str) else ""
        place = "" if number < 0 else f", {self.noun} {number}{of_image}"
        self.details.append((number, f"{self.path.name}{place}: {problem}{held}"))

    @property
    def kinds(self) -> dict[str, int]:
        """How often each kind of mistake was made."""
        return dict(self._kinds)

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def raise_if_any(self, total: int) -> None:
        """Refuse the file if anything was noted: how many entries, and what kinds of mistake."""
        if not self:
            return
        kinds = sorted(self._kinds.items(), key=lambda item: -item[1])
        told = "; ".join(f"{count:,} × {problem}" for problem, count in kinds[:_KINDS_TOLD])
        more = f"; and {len(kinds) - _KINDS_TOLD} other kinds of mistake" if len(kinds) > _KINDS_TOLD else ""
        raise BadAnnotations(
            f"{self.path}: {len(self.entries - {-1}):,} of {total:,} {self.plural} cannot be used: {told}{more}. "
            f"Mend or remove them: {where_named(self.folder)}",
            [text for _, text in self.details],
        )


def where_named(folder: Path | str = "PATH") -> str:
    """Where the data's holder finds out which entries an error is about."""
    return f"'halfmask data inspect {folder}' names them"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


class ImageFinder:
    """Finds image files below a dataset's folder.

    Annotation files name images relative to some folder of their release (`HumanArt/images/…`, `train2017/…`, or nothing at all), and
    people keep them elsewhere. The first place that works is tried first for the next.
    """

    def __init__(self, folder: Path, places: Iterable[str]):
        self.folder = folder
        self.places = [folder / place for place in (*places, "images", "")]
        self._last: tuple[Path, int] = (self.places[0], 0)

    def __call__(self, name: str) -> Path:
        """The image's file, or where it was expected first if there is none."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or ".." in parts or parts[0] == "/":
            # An annotation file is not to lead out of its dataset.
            raise BadAnnotations(
                f"an annotation in {self.folder} names an image outside the dataset folder: expected a path inside it. "
                f"Mend it: {where_named(self.folder)}",
                [f"image {name!r}"],
            )
        place, dropped = self._last
        # os.path asks no questions: a name too long for the disk is no file, and no error that repeats it.
        if dropped < len(parts) and os.path.isfile(path := place.joinpath(*parts[dropped:])):
            return path
        for dropped in range(len(parts)):
            for place in self.places:
                path = place.joinpath(*parts[dropped:])
                if os.path.isfile(path):
                    self._last = (place, dropped)
                    return path
        place, dropped = self._last
        return place.joinpath(*parts[min(dropped, len(parts) - 1) :])


def finite_array(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """The value as finite numbers of this shape, or None if it is anything else."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.shape == shape and np.isfinite(array).all() else None
