"""Which files are meant, what they are called in the folder that is written, and whether anything would be lost there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfmask.errors import HalfmaskError
from halfmask.inference.photographs import SUFFIXES, UNSUPPORTED

_SHOWN = 3


@dataclass(frozen=True)
class Original:
    """A file to be sanitised.

    Attributes:
        name: what it is called in the new folder, with `/` between folders: as below the folder that was given, or its own name.
    """

    path: Path
    name: str


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        originals: pictures, and files that were named whatever they are.
        unsupported: pictures and films of other formats below the folders given.
        others: how many files below the folders given are no pictures.
    """

    originals: tuple[Original, ...]
    unsupported: tuple[Original, ...] = ()
    others: int = 0


def find_originals(given: Sequence[Path]) -> Found:
    """Files as they stand, and all pictures below folders, each once; two that would go by one name are refused."""
    originals: dict[Path, Original] = {}
    unsupported: dict[Path, Original] = {}
    others = 0
    for path in given:
        if not path.is_dir():
            if path.suffix.lower() not in SUFFIXES:
                raise HalfmaskError(f"{path} is in a format that is not supported: expected a folder, or {', '.join(SUFFIXES)}")
            originals.setdefault(_place(path), Original(path, path.name))
            continue
        for inside in _below(path):
            one = Original(inside, inside.relative_to(path).as_posix())
            if inside.suffix.lower() in SUFFIXES:
                originals.setdefault(_place(inside), one)
            elif inside.suffix.lower() in UNSUPPORTED:
                unsupported.setdefault(_place(inside), one)
            else:
                others += 1
    if not any(one.path.exists() for one in originals.values()):
        where = listed([str(path) for path in given])
        raise HalfmaskError(f"no images found in {where or 'nothing'}: expected files ending in {', '.join(SUFFIXES)}, or folders of such")
    taken: dict[str, Original] = {}
    for one in originals.values():
        # Some file systems do not tell A from a.
        other = taken.setdefault(one.name.casefold(), one)
        if other is not one:
            raise HalfmaskError(
                f"{other.path} and {one.path} would both be written as {one.name}, and names are kept: give a folder above both, or make "
                "two calls"
            )
    return Found(tuple(originals.values()), tuple(unsupported.values()), others)


def check_target(out: Path, given: Sequence[Path], originals: Sequence[Original], run: Path, overwrite: bool) -> int:
    """Refuse to write where originals, the run or anything at all would be lost; tells how many files are there already."""
    place = out.resolve()
    if out.exists() and not out.is_dir():
        raise HalfmaskError(f"--out is {out}, which is a file: give a folder")
    for folder in (run, *(path for path in given if path.is_dir())):
        if folder.resolve() == place or folder.resolve() in place.parents:
            what = "the run itself" if folder is run else f"{folder}, whose pictures are to be replaced"
            raise HalfmaskError(f"--out is {out}, inside {what}: give a folder outside of it")
    # By what is on disk, not by spelling: links and file systems that do not tell A from a lead to originals as well.
    kept = {_identity(one.path) for one in originals if one.path.exists()}
    lost = [one.path for one in originals if (target := out / one.name).exists() and _identity(target) in kept]
    if lost:
        raise HalfmaskError(f"--out is {out}, where {listed([str(path) for path in lost])} would be overwritten: give another folder")
    held = sum(1 for _ in _below(out)) if out.is_dir() else 0
    if held and not overwrite:
        raise HalfmaskError(
            f"{out} holds {held:,} file{'s' if held > 1 else ''} already: give another --out, or add --overwrite to replace those of the "
            "same names"
        )
    return held


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() or (path.is_symlink() and not path.is_dir()))


def _place(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
