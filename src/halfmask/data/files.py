"""Annotation files and where the images they name are: what all formats' readers share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import scipy.io

from halfmask.errors import HalfmaskError

# Where the releases of MPII, COCO and Human-Art put their annotation files.
_ANNOTATION_FOLDERS = ("", "annotations", "annot")


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
        raise HalfmaskError(f"{path} is not valid JSON ({error}): mend it or download it again") from None


def read_mat(path: Path) -> dict[str, Any]:
    """A MATLAB file's variables, structs as objects with attributes."""
    try:
        return dict(scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False))
    except FileNotFoundError:
        raise HalfmaskError(f"no file at {path}: check the path") from None
    except NotImplementedError:
        raise HalfmaskError(f"{path} is a MATLAB 7.3 file, which cannot be read: save it with -v7") from None
    except Exception as error:  # scipy raises a different kind for each way a file can be damaged
        raise HalfmaskError(f"{path} cannot be read as a MATLAB file ({error}): it is damaged or of another format") from None


def describe(body: Any) -> str:
    """What a JSON file holds, in a few words for an error."""
    if isinstance(body, dict):
        return f"an object with {', '.join(map(str, list(body)[:6])) or 'nothing'}"
    if isinstance(body, list):
        return f"a list of {len(body)}" + (f", the first {describe(body[0])}" if body and isinstance(body[0], dict) else "")
    return f"a {type(body).__name__}"


def split_of(path: Path) -> str:
    """The split that a file's name tells: `train`, `val`, `test`, or `all` if it tells none."""
    name = path.stem.lower()
    if "trainval" in name:
        return "all"
    return next((split for split in ("train", "val", "test") if split in name), "all")


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
            raise HalfmaskError(f"an annotation in {self.folder} names the image '{name}': expected a path inside the dataset folder")
        place, dropped = self._last
        if dropped < len(parts) and (path := place.joinpath(*parts[dropped:])).is_file():
            return path
        for dropped in range(len(parts)):
            for place in self.places:
                path = place.joinpath(*parts[dropped:])
                if path.is_file():
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
