"""What somebody wants looked at: pictures, folders, patterns, videos and cameras; and under which names the answers are written."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from halfmask.errors import HalfmaskError
from halfmask.inference.originals import listed

PICTURES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})
VIDEOS = frozenset({".avi", ".mp4", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"})
PICTURE, VIDEO, CAMERA = "picture", "video", "camera"
_NUMBER = re.compile(r"\d{1,2}")


@dataclass(frozen=True)
class Source:
    """One picture, one video or one camera.

    Attributes:
        path: the file; of a camera, its number.
    """

    path: Path
    kind: str

    @property
    def stem(self) -> str:
        """What its answers are named after."""
        return f"camera-{self.path}" if self.kind == CAMERA else self.path.stem


def find_sources(given: Iterable[Path], kinds: Sequence[str] = (PICTURE,)) -> list[Source]:
    """What is meant, each once: files as they stand, whatever of these kinds is in a folder or fits a pattern, and cameras by their number.

    A file is meant whatever its ending: one that cannot be read says so when it is opened.
    """
    endings = (PICTURES if PICTURE in kinds else frozenset()) | (VIDEOS if VIDEO in kinds else frozenset())
    found: list[Source] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix.lower() in endings and one.is_file())
            if not inside:
                what = " or ".join(f"{kind}s" for kind in kinds if kind != CAMERA)
                raise HalfmaskError(f"{path} holds no {what}: expected files ending in {', '.join(sorted(endings))}")
            found += [_of_file(one) for one in inside]
        elif not path.exists() and CAMERA in kinds and _NUMBER.fullmatch(str(path)):
            found.append(Source(path, CAMERA))
        elif not path.exists() and glob.has_magic(str(path)):
            fitting = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
            fitting = [one for one in fitting if one.is_file() and one.suffix.lower() in endings]
            if not fitting:
                raise HalfmaskError(f"no file fits {path}: expected some ending in {', '.join(sorted(endings))}")
            found += [_of_file(one) for one in fitting]
        else:
            found.append(_of_file(path))
    return list(dict.fromkeys(found))


def _of_file(path: Path) -> Source:
    return Source(path, VIDEO if path.suffix.lower() in VIDEOS else PICTURE)


def output_names(sources: Sequence[Source], out: Path, endings: Sequence[str]) -> list[str]:
    """A name for each: its stem, numbered where it is taken or a picture or video would be lost.

    Args:
        endings: of the files that are written for each.
    """
    originals = {one.path.resolve() for one in sources}
    taken: set[str] = set()
    names = []
    for one in sources:
        name, number = one.stem, 2
        # Some file systems do not tell A from a.
        while name.casefold() in taken or any((out / f"{name}{ending}").resolve() in originals for ending in endings):
            name, number = f"{one.stem}-{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names


def check_free(out: Path, names: Sequence[str], endings: Sequence[str], overwrite: bool) -> None:
    """Refuse to write over what is there, unless that is wanted."""
    if out.exists() and not out.is_dir():
        raise HalfmaskError(f"--out is {out}, which is a file: give a folder")
    there = [path.name for name in names for ending in endings if (path := out / f"{name}{ending}").exists()]
    if there and not overwrite:
        raise HalfmaskError(
            f"{out} holds {listed(there)} already, which would be overwritten: give another --out, or add --overwrite to replace "
            f"{'it' if len(there) == 1 else 'them'}"
        )
