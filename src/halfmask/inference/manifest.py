"""What was done to which photograph, and what is promised to whom: `manifest.json`, which goes out with the pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfmask import __version__
from halfmask.inference.repainting import Region
from halfmask.writing import write_whole, writing

MANIFEST = "manifest.json"
_PROMISE = (
    "ε is a promise to the people of the training set, whose pictures the generator learnt from: it bounds what anything drawn tells of "
    "any one of them."
)
_NO_PROMISE = "There is no ε here: nothing is promised to the people of the training set, whose pictures the generator learnt from."
_OF_THE_PICTURED = (
    "ε says nothing of the people on these photographs. Of them the output shows the pose, the box (where they are, and how large), and "
    "the background: {background}. The pose and the build that it tells, the place, the company and the name of the file may say who "
    "somebody is. Whoever is outside the boxes was not replaced."
)
_BACKGROUNDS = {
    "keep": "everything outside the boxes is as it was, with belongings, shadows and reflections",
    "blur": "everything outside the boxes is there, blurred",
    "none": "nothing outside the boxes is shown",
}
_METADATA = "Metadata of the files (EXIF with place, time and camera, comments, thumbnails, colour profiles) were dropped."


@dataclass(frozen=True)
class Drawn:
    """One person who was replaced.

    Attributes:
        box: in whole pixels, all of which were painted over.
        poses: `given`, or `network`.
        joints: how many of the joints were known where they were drawn.
    """

    box: Region
    poses: str
    joints: int


@dataclass(frozen=True)
class Done:
    """A photograph that was written."""

    name: str
    width: int
    height: int
    people: tuple[Drawn, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "name": self.name,
            "size": [self.width, self.height],
            "people": len(self.people),
            "boxes": [[one.box.left, one.box.top, one.box.width, one.box.height] for one in self.people],
            "poses": [one.poses for one in self.people],
            "joints_known": [one.joints for one in self.people],
            "notes": list(self.notes),
        }


@dataclass
class Manifest:
    """Grows with the pictures.

    Attributes:
        header: what is the same for all of them.
        names: of all that are to be done, in their order.
        tried: how many of them were either written or given up.
    """

    folder: Path
    header: dict[str, Any]
    names: list[str]
    tried: int = 0
    done: list[Done] = field(default_factory=list)
    not_done: list[tuple[str, str]] = field(default_factory=list)

    def write(self) -> None:
        """Replace what is there, whole."""
        lists: dict[str, list[Any]] = {
            "files": [one.to_json() for one in self.done],
            "not_done": [{"name": name, "reason": reason} for name, reason in self.not_done],
            "waiting": self.names[self.tried :],
        }
        body = self.header | {"finished": self.tried == len(self.names)}
        text = json.dumps(body, indent=1, ensure_ascii=False)[: -len("\n}")]
        # A line for each file: there may be thousands.
        for name, rows in lists.items():
            lines = ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in rows)
            text += f',\n "{name}": [{lines}\n ]' if rows else f',\n "{name}": []'
        with writing(self.folder / MANIFEST, "start again with --overwrite"):
            write_whole(self.folder / MANIFEST, f"{text}\n}}\n".encode())


def promises(certificate: dict[str, Any] | None) -> bool:
    """Whether a certificate has an ε: those of views in the place of images, or of reads outside the mechanism, have none."""
    return certificate is not None and isinstance(certificate["epsilon"].get(certificate["adjacency"]), int | float)


def statement(promised: bool, background: str) -> list[str]:
    """Whom ε covers, and what of the others is shown, in plain words."""
    return [_PROMISE if promised else _NO_PROMISE, _OF_THE_PICTURED.format(background=_BACKGROUNDS[background]), _METADATA]


def header(
    certificate: dict[str, Any] | None,
    text: str,
    run: dict[str, Any],
    background: str,
    settings: dict[str, Any],
    cautions: Sequence[str],
) -> dict[str, Any]:
    """What is the same for all pictures.

    Args:
        certificate, text: `certificate.json` of the run and its promise in words.
        run: what names it.
    """
    promised = None
    if certificate is not None:
        kept = ("epsilon", "delta", "adjacency", "unit", "coarser", "run", "run_name", "dataset", "method", "weights_sha256", "date")
        promised = {"files": ["certificate.json", "certificate.md"], "text": text} | {name: certificate.get(name) for name in kept}
    return {
        "statement": statement(promises(certificate), background),
        "halfmask": __version__,
        "run": run,
        "certificate": promised,
        "cautions": list(cautions),
        "background": background,
        **settings,
    }
