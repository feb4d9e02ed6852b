"""Which format a dataset folder is in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from halfmask.data.coco import detect_coco, read_coco
from halfmask.data.folder import detect_folder, read_folder
from halfmask.data.humanart import detect_humanart, read_humanart
from halfmask.data.lsp import detect_lsp, read_lsp
from halfmask.data.mpii import detect_mpii, read_mpii
from halfmask.data.people import Annotations
from halfmask.errors import HalfmaskError, unknown_name

_KNOWN_SUFFIXES = (".json", ".mat", ".jpg", ".jpeg", ".png", ".txt", ".csv", ".zip")
FORMATS = ("folder", "lsp", "lspet", "mpii", "humanart", "coco")


def detect_format(folder: Path) -> str:
    """The format of a folder, by what is in it."""
    # Human-Art is COCO with more in it, so it is asked for first.
    for format, detect in (
        ("folder", detect_folder),
        ("lsp", detect_lsp),
        ("mpii", detect_mpii),
        ("humanart", detect_humanart),
        ("coco", detect_coco),
    ):
        if detect(folder):
            return format
    kinds = Counter(_kind_of(path) for path in folder.iterdir())
    listed = ", ".join(f"{kind}s: {count:,}" for kind, count in sorted(kinds.items())) or "nothing"
    raise HalfmaskError(
        f"{folder} is in no known format (found {listed}): expected annotations.json (your own images), joints.mat (LSP, LSPET), MPII's "
        "JSON or .mat, or COCO-style keypoint JSON in the folder or its 'annotations'"
    )


def _kind_of(path: Path) -> str:
    """What a file is, without its name, which can be a person's."""
    if path.is_dir():
        return "folder"
    return f"{path.suffix.lower()} file" if path.suffix.lower() in _KNOWN_SUFFIXES else "other file"


def read_annotations(
    folder: Path, format: str | None = None, annotations: tuple[str, ...] = (), boxes: str | None = None
) -> Annotations:  # fmt: skip
    """What a dataset folder says, in whichever format; no image is opened.

    Args:
        format: one of `FORMATS`; found out if not given.
        annotations: names of annotation files to read, where a folder holds several of one split.
        boxes: a detection file, for COCO-style datasets.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("dataset format", format, FORMATS)
    # What the shape of LSP's matrix tells need not be said; saying it overrules the shape.
    told = format if format in ("lsp", "lspet") else ""
    kind = format or detect_format(folder)
    if kind not in ("coco", "humanart") and boxes is not None:
        raise HalfmaskError(f"data.boxes is '{boxes}' and {folder} is in the format '{kind}': detected boxes are for coco and humanart")
    if kind == "coco":
        return read_coco(folder, annotations, boxes)
    if kind == "humanart":
        return read_humanart(folder, annotations, boxes)
    if kind == "mpii":
        return read_mpii(folder, annotations)
    if annotations:
        raise HalfmaskError(f"data.annotations is {list(annotations)} and the format '{kind}' has one annotation file: leave it out")
    return read_folder(folder) if kind == "folder" else read_lsp(folder, told)
