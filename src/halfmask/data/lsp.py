"""Leeds Sports Pose (LSP) and its extension (LSPET): `joints.mat` and `images/im0001.jpg` …, one person per image.

The two differ in what the third number of a joint means, and the shape of the matrix tells which it is:

* LSP is 3×14×N. Every joint was placed by its annotators; the number is 1 where the joint is *occluded*, although the release's notes
  say the opposite. All joints count as labelled.
* LSPET is 14×3×N. The number is 1 where the joint was annotated, and 0 where it was not; the coordinates are then garbage.

Neither has person boxes: the box is that of the labelled joints. The 2,000 images of LSP are divided by its authors, the first half to
train on and the second to test on; LSPET is not divided.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halfmask.data.crops import joints_box
from halfmask.data.files import BadAnnotations, read_mat
from halfmask.data.people import NO_JOINT, Annotations, LeftOut, Part, Person
from halfmask.data.skeleton import LSP
from halfmask.errors import HalfmaskError

_JOINTS = len(LSP)
_LSP_IMAGES = 2000


def detect_lsp(folder: Path) -> bool:
    """Whether the folder looks like LSP or LSPET."""
    return (folder / "joints.mat").is_file()


def read_lsp(folder: Path, format: str = "") -> Annotations:
    """The people of LSP or LSPET; no image is opened.

    Args:
        format: `lsp` or `lspet` to say what the third number means; by default the shape of the matrix tells.
    """
    path = folder / "joints.mat"
    if not path.is_file():
        raise HalfmaskError(f"{folder} has no joints.mat: expected the folder of LSP or LSPET, with joints.mat and images/")
    joints, guess = _read_joints(path)
    kind = format or guess
    visibility = _visibility(joints[..., 2], kind)
    names = _image_names(folder, len(joints))
    people, left_out = [], []
    for number, (name, points, seen) in enumerate(zip(names, joints, visibility, strict=True), start=1):
        labelled = (seen > 0) & np.isfinite(points[:, :2]).all(1)
        if not labelled.any():
            left_out.append(LeftOut(name, NO_JOINT, f"person {number}"))
            continue
        placed = np.column_stack([points[:, :2], np.where(labelled, seen, 0)])
        people.append(Person(name, folder / "images" / name, number, joints_box(points, labelled), placed))
    parts = {"all": Part("all", names, tuple(people), tuple(left_out))}
    if kind == "lsp" and len(names) == _LSP_IMAGES:
        parts = {
            part: _between(parts["all"], part, first, last)
            for part, first, last in (("train", 0, _LSP_IMAGES // 2), ("test", _LSP_IMAGES // 2, _LSP_IMAGES))
        }
    return Annotations(kind, folder, LSP, parts, (path,))


def _read_joints(path: Path) -> tuple[np.ndarray, str]:
    """Joints as N×14×3, and which dataset the shape speaks of."""
    variables = {name: value for name, value in read_mat(path).items() if not name.startswith("__")}
    joints = variables.get("joints")
    if joints is None:
        message = f"{path} has no variable 'joints' among its {len(variables)}: expected one, as LSP and LSPET have"
        raise BadAnnotations(message, [f"{path.name} has the variables {', '.join(variables) or '(none)'}"])
    joints = np.asarray(joints)
    if joints.ndim == 2:
        joints = joints[..., None]
    if joints.ndim == 3 and np.issubdtype(joints.dtype, np.number):
        if joints.shape[:2] == (_JOINTS, 3):
            return joints.transpose(2, 0, 1).astype(np.float64), "lspet"
        if joints.shape[:2] == (3, _JOINTS):
            return joints.transpose(2, 1, 0).astype(np.float64), "lsp"
    shape = "×".join(map(str, joints.shape))
    raise HalfmaskError(f"{path}: 'joints' is {shape} of {joints.dtype}: expected numbers, 14×3×N (LSPET) or 3×14×N (LSP)")


def _visibility(flags: np.ndarray, kind: str) -> np.ndarray:
    if kind == "lsp":
        return np.where(flags > 0, 1, 2)
    return np.where(flags > 0, 2, 0)


def _image_names(folder: Path, count: int) -> tuple[str, ...]:
    """Image names by number: four digits in LSP, five in LSPET, whichever the folder has."""
    images = folder / "images"
    if not images.is_dir():
        raise HalfmaskError(f"{folder} has no folder 'images': expected joints.mat and images/im00001.jpg … beside it")
    digits = next((digits for digits in (5, 4) if (images / f"im{1:0{digits}d}.jpg").is_file()), None)
    if digits is None:
        found = sorted(path.name for path in images.glob("im*.jpg"))
        digits = len(found[0]) - len("im.jpg") if found else 5
    return tuple(f"im{number:0{digits}d}.jpg" for number in range(1, count + 1))


def _between(part: Part, name: str, first: int, last: int) -> Part:
    names = part.images[first:last]
    inside = frozenset(names)
    return Part(
        name,
        names,
        tuple(person for person in part.people if person.image in inside),
        tuple(one for one in part.left_out if one.image in inside),
    )
