"""People with joints from a table: a row a person, a header that names the columns, for `halfmask data convert`.

    image,split,subject,box_x,box_y,box_width,box_height,head_x,head_y,head_width,head_height,r_ankle_x,r_ankle_y,r_ankle_v,…

Only `image` and the x and y of one joint must be there. Joints are named as MPII, COCO or LSP name them, sides as `r_` or `right_`; an
empty cell is a joint without a label; without a `_v` column a joint with numbers is visible. Without a box, it is that of the joints.
Cells may be divided by commas, semicolons or tabs, and a byte-order mark is accepted.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.crops import joints_box
from halfmask.data.files import Complaints, ImageFinder
from halfmask.data.folder_checks import SPLITS
from halfmask.data.people import Annotations, Box, Part, Person
from halfmask.data.skeleton import SKELETONS, Skeleton, full_name
from halfmask.errors import HalfmaskError, unknown_name

_BOX = ("x", "y", "width", "height")
_KNOWN = {full_name(name) for skeleton in SKELETONS.values() for name in skeleton.names}
_NOT_JOINTS = ("box", "head")


def read_people_csv(path: Path) -> Annotations:
    """The people of a table, by split, `all` where it has none; no image is opened."""
    header, rows = _read(path)
    skeleton = _skeleton(path, header)
    complaints = Complaints(path, "row", path.parent)
    find = ImageFinder(path.parent, ())
    people: dict[str, list[Person]] = {}
    numbers: dict[str, int] = {}
    subjects: dict[str, int] = {}
    # The header is row 1, as programs that show tables count.
    for number, cells in enumerate(rows, 2):
        row = dict(zip(header, cells, strict=False))
        problems, numbered = _problems(row, skeleton)
        for problem in problems:
            complaints.add(number, row.get("image") or None, *problem)
        if problems:
            continue
        joints, box, head = numbered
        name, subject = row["image"], row.get("subject", "")
        people.setdefault(row.get("split") or "all", []).append(
            Person(
                name,
                find(name),
                numbers.setdefault(name, len(numbers)),
                box,
                joints,
                head,
                subject=subjects.setdefault(subject, len(subjects)) if subject else None,
                subject_name=subject,
                annotation_id=number,
            )
        )
    complaints.raise_if_any(len(rows))
    if not people:
        raise HalfmaskError(f"{path} has a header and no rows: the dataset is empty")
    parts = {split: Part(split, tuple(sorted({one.image for one in some})), tuple(some)) for split, some in people.items()}
    return Annotations("csv", path.parent, skeleton, parts, (path,))


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise HalfmaskError(f"{path} cannot be read ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise HalfmaskError(f"{path} is no text in UTF-8: save it as CSV UTF-8") from None
    first = text.partition("\n")[0]
    divider = max(",;\t", key=first.count)
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), delimiter=divider) if any(cell.strip() for cell in row)]
    header = rows[0] if rows else []
    if "image" not in header:
        raise HalfmaskError(f"{path} has no column 'image': expected a header such as image,split,box_x,box_y,…,r_ankle_x,r_ankle_y")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise HalfmaskError(f"{path} has two columns '{twice}': expected each once")
    return header, rows[1:]


def _skeleton(path: Path, header: list[str]) -> Skeleton:
    names = [column[:-2] for column in header if column.endswith("_x") and column[:-2] not in _NOT_JOINTS]
    for name in names:
        if full_name(name) not in _KNOWN:
            raise unknown_name(f"joint in the header of {path}", name, _KNOWN)
        if f"{name}_y" not in header:
            raise HalfmaskError(f"{path} has a column '{name}_x' and no '{name}_y': expected both")
    if not names:
        raise HalfmaskError(f"{path} has no joint among its columns: expected such as r_ankle_x and r_ankle_y")
    return Skeleton("csv", tuple(names), (), ())


def _problems(row: dict[str, str], skeleton: Skeleton) -> tuple[list[tuple[str, Any]], tuple[np.ndarray, Box, Box | None]]:
    """All that is wrong with a row, in words that hold nothing of it; and its joints, box and head box."""
    problems: list[tuple[str, Any]] = []
    if not row["image"]:
        problems.append(("no 'image'", None))
    if "split" in row and row["split"] not in SPLITS:
        problems.append((f"'split' is another word than {', '.join(SPLITS)}", row["split"]))
    joints = np.zeros((len(skeleton), 3))
    for place, name in enumerate(skeleton.names):
        cells = [row.get(f"{name}_{axis}", "") for axis in "xy"]
        seen = row.get(f"{name}_v", "") or ("2" if all(cells) else "0")
        numbers = [_number(cell) for cell in cells]
        if seen not in ("0", "1", "2"):
            problems.append((f"'{name}_v' is not 0 (not labelled), 1 (hidden) or 2 (visible)", seen))
        elif seen != "0" and None in numbers:
            problems.append((f"'{name}_x' or '{name}_y' is no number, and the joint is labelled", cells))
        elif seen != "0":
            joints[place] = [*(number or 0.0 for number in numbers), float(seen)]
    box, wrong = _box(row, "box")
    head, wrong_head = _box(row, "head")
    problems += wrong + wrong_head
    labelled = joints[:, 2] > 0
    if not problems and not labelled.any():
        problems.append(("no joint is labelled", None))
    if not problems and box is None:
        box = joints_box(joints, labelled)
    if not problems and box is not None and not (box[2] > 0 and box[3] > 0):
        problems.append(("the box has no area", list(box)))
    corners = None if head is None else (head[0], head[1], head[0] + head[2], head[1] + head[3])
    return problems, (joints, box or (0.0, 0.0, 0.0, 0.0), corners)


def _box(row: dict[str, str], name: str) -> tuple[Box | None, list[tuple[str, Any]]]:
    cells = [row.get(f"{name}_{side}", "") for side in _BOX]
    if not any(cells):
        return None, []
    x, y, width, height = (_number(cell) for cell in cells)
    if x is None or y is None or width is None or height is None or not (width > 0 and height > 0):
        return None, [
            (f"'{name}_x', '{name}_y', '{name}_width', '{name}_height' are not four numbers with a width and height above 0", cells)
        ]
    return (x, y, width, height), []


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
