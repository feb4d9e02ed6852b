"""What is wrong with the entries of `annotations.json`: everything, not only the first of it.

Each problem is told in words that hold nothing of the entry, with the value that is wrong beside it, for the data's holder alone: see
`halfmask.data.files`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from halfmask.data.files import Complaints, describe, finite_array
from halfmask.data.skeleton import MPII

SPLITS = ("private", "public", "test")
VERSION = 2
VISIBILITIES = (0, 1, 2)
FIELDS = ("image", "split", "box", "joints", "head_box", "subject")
_REQUIRED = {"image": str, "split": str, "box": list, "joints": list}
_KIND_NAMES = {str: "a text", list: "a list"}
_NECK, _TOP = MPII.index("upper_neck"), MPII.index("head_top")
_CORNERS = "'head_box' is where x1, y1, x2, y2 would be on the head: expected x, y, width, height, as of 'box'"
_EITHER = (
    '\'head_box\' may be x, y, width, height or, as it was before version 2, x1, y1, x2, y2: say "version": 2 beside "records" if it is '
    "the first, or rewrite the folder with 'halfmask data convert --head-boxes corners'"
)

Problem = tuple[str, Any]


def check_entries(entries: Sequence[Any], version: Any, complaints: Complaints) -> list[tuple[int, dict[str, Any]]]:
    """Note all that is wrong, and give back the entries that are right, each with its number."""
    if version not in (None, VERSION) or isinstance(version, bool):
        complaints.add(-1, None, f'"version" is {describe(version)}, expected {VERSION}', version)
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        problems = list(_problems(entry))
        if not problems:
            problems += _head_box_problem(entry, version)
            # Written out, for a list cannot be remembered; whose record it is makes no second person of it. Somebody in two splits is for
            # `halfmask.data.overlaps`, which may leave them out.
            said = repr(
                (entry["image"], entry["split"], [float(value) for value in entry["box"]], np.asarray(entry["joints"], np.float64).tolist())
            )
            if said in seen:
                problems.append(("the same image, box and joints as an earlier record: one person would count as two", None))
            seen.add(said)
        for problem in problems:
            complaints.add(number, entry.get("image") if isinstance(entry, dict) else None, *problem)
    return [(number, entry) for number, entry in enumerate(entries) if number not in complaints.entries]


def unknown_fields(entries: Sequence[Any]) -> dict[str, int]:
    """Fields that mean nothing here, and how many records have them: perhaps another spelling of one that does."""
    counts: dict[str, int] = {}
    for entry in entries:
        for name in entry if isinstance(entry, dict) else ():
            if name not in FIELDS:
                counts[name] = counts.get(name, 0) + 1
    return counts


def _problems(entry: Any) -> Iterator[Problem]:
    """What is wrong with an entry by itself."""
    if not isinstance(entry, dict):
        yield f"found {describe(entry)}, expected an object", entry
        return
    for name, kind in _REQUIRED.items():
        if not isinstance(entry.get(name), kind):
            yield f"no valid '{name}': found {describe(entry.get(name))}, expected {_KIND_NAMES[kind]}", entry.get(name)
    if isinstance(entry.get("image"), str):
        yield from _path_problem(entry["image"])
    if isinstance(entry.get("split"), str) and entry["split"] not in SPLITS:
        yield f"'split' is another word than {', '.join(SPLITS)}", entry["split"]
    for name, shape in (("box", (4,)), ("head_box", (4,)), ("joints", (len(MPII), 3))):
        if name in entry and (isinstance(entry[name], list) or name not in _REQUIRED):
            yield from _number_problem(name, entry[name], shape)
    if "subject" in entry and (isinstance(entry["subject"], bool) or not isinstance(entry["subject"], str | int)):
        yield f"'subject' is {describe(entry['subject'])}, expected a text or a whole number", entry["subject"]


def _path_problem(image: str) -> Iterator[Problem]:
    parts = PurePosixPath(image.replace("\\", "/")).parts
    if not parts or ".." in parts or parts[0] == "/":
        # An annotation file is not to lead out of its dataset.
        yield "'image' is no path inside the folder", image


def _number_problem(name: str, value: Any, shape: tuple[int, ...]) -> Iterator[Problem]:
    if _has_texts(value):
        yield f"'{name}' has numbers written as texts, expected {_shape(shape)} finite numbers", value
        return
    numbers = finite_array(value, shape)
    if numbers is None:
        yield f"'{name}' is {describe(value)}, expected {_shape(shape)} finite numbers", value
    elif name == "joints":
        if not np.isin(numbers[:, 2], VISIBILITIES).all():
            yield "'joints' has a visibility that is not 0 (not labelled), 1 (hidden) or 2 (visible)", numbers[:, 2].tolist()
    elif not (numbers[2:] > 0).all():
        yield f"'{name}' has no area: expected x, y and a width and a height above 0", value


def _has_texts(value: Any) -> bool:
    """Whether a number is written as "1", which numpy would take for one."""
    if isinstance(value, list):
        return any(_has_texts(one) for one in value)
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, bool)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _head_box_problem(entry: dict[str, Any], version: Any) -> list[Problem]:
    if "head_box" not in entry:
        return []
    reading = head_box_reading(entry["head_box"], entry["box"], np.asarray(entry["joints"], np.float64))
    if reading == "corners":
        return [(_CORNERS, entry["head_box"])]
    if reading == "either" and version is None:
        return [(_EITHER, entry["head_box"])]
    return []


def head_box_reading(head: Sequence[float], box: Sequence[float], joints: np.ndarray) -> str:
    """What four numbers are on this person: `sides` (x, y, width, height), `corners` (x1, y1, x2, y2), or `either`.

    As corners, the second is right of and below the first. Where that is so, the reading is right whose middle is clearly nearer to
    that of neck and top of the head, or, where these are not labelled, which alone lies on the person.
    """
    x, y, third, fourth = map(float, head)
    if third <= x or fourth <= y:
        return "sides"
    sides, corners = (x, y, x + third, y + fourth), (x, y, third, fourth)
    if (joints[[_NECK, _TOP], 2] > 0).all():
        middle = joints[[_NECK, _TOP], :2].mean(0)
        off_sides, off_corners = (np.hypot(*(np.add(one[:2], one[2:]) / 2 - middle)) for one in (sides, corners))
        fits_sides, fits_corners = off_sides < off_corners / 2, off_corners < off_sides / 2
    else:
        on_sides, on_corners = _on(sides, box), _on(corners, box)
        fits_sides, fits_corners = on_sides and not on_corners, on_corners and not on_sides
    return "sides" if fits_sides else "corners" if fits_corners else "either"


def _on(corners: Sequence[float], box: Sequence[float]) -> bool:
    """Whether a box lies on a person, whose own box may leave out hair and a hat."""
    left, top, width, height = map(float, box)
    slack = max(width, height) / 4
    return (
        corners[0] >= left - slack
        and corners[1] >= top - slack
        and corners[2] <= left + width + slack
        and corners[3] <= top + height + slack
    )
