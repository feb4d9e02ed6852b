"""What the joints of a dataset are called, which of them mirror each other, and which are drawn as bones.

Every dataset keeps its own joints in its own order; a `Skeleton` travels with the records so that nothing downstream has to guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from halfmask.data.figures import FLIP_PAIRS, JOINT_NAMES
from halfmask.errors import HalfmaskError, unknown_name

_SIDES = {"r_": "right", "l_": "left", "right_": "right", "left_": "left"}
_UPPER = ("head", "face", "neck", "shoulder", "elbow", "wrist", "thorax")
_GROUP_OF = {
    "head_top": "head",
    "upper_neck": "neck",
    "nose": "face",
    "eye": "face",
    "ear": "face",
}


@dataclass(frozen=True)
class Skeleton:
    """The joints of a dataset.

    Attributes:
        names: as the dataset spells them, in its order. Left and right are the person's own.
        flip_pairs: joints that change places when an image is mirrored.
        edges: pairs of joints between which a bone is drawn.
        oks_sigmas: how far annotators disagree on each joint, in units of the person's size; empty where nobody measured it.
    """

    name: str
    names: tuple[str, ...]
    flip_pairs: tuple[tuple[int, int], ...]
    edges: tuple[tuple[int, int], ...]
    oks_sigmas: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sides(self) -> tuple[str, ...]:
        """`left`, `right` or `middle`, for each joint."""
        return tuple(next((side for prefix, side in _SIDES.items() if name.startswith(prefix)), "middle") for name in self.names)

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Joints that tables show as one column: both knees, both wrists, the points of the face."""
        groups: dict[str, tuple[int, ...]] = {}
        for joint, name in enumerate(self.names):
            bare = bare_name(name)
            group = _GROUP_OF.get(bare, bare)
            groups[group] = (*groups.get(group, ()), joint)
        return groups

    @cached_property
    def upper_body(self) -> tuple[int, ...]:
        """Joints above the waist; the others make the lower body. Half-body augmentation shows one of the two."""
        return tuple(sorted(joint for group, joints in self.groups.items() if group in _UPPER for joint in joints))

    def index(self, name: str) -> int:
        """Where a joint is, by its full name such as `left_shoulder`, however this skeleton abbreviates it."""
        wanted = full_name(name)
        for joint, own in enumerate(self.names):
            if full_name(own) == wanted:
                return joint
        raise HalfmaskError(f"the {self.name} skeleton has no joint '{name}': it has {', '.join(self.names)}")


def bare_name(name: str) -> str:
    """A joint's name without its side."""
    return next((name[len(prefix) :] for prefix in _SIDES if name.startswith(prefix)), name)


def full_name(name: str) -> str:
    """A joint's name with its side spelt out, the same for every dataset: `r_knee` is `right_knee`."""
    return next((f"{side}_{name[len(prefix) :]}" for prefix, side in _SIDES.items() if name.startswith(prefix)), name)


def _pairs(names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    full = [full_name(name) for name in names]
    return tuple(
        (joint, full.index(name.replace("left_", "right_", 1))) for joint, name in enumerate(full) if name.startswith("left_")
    )  # fmt: skip


MPII = Skeleton(
    "mpii",
    JOINT_NAMES,
    FLIP_PAIRS,
    ((6, 7), (7, 8), (8, 9), (6, 2), (2, 1), (1, 0), (7, 12), (12, 11), (11, 10), (6, 3), (3, 4), (4, 5), (7, 13), (13, 14), (14, 15)),
)

_COCO_NAMES = (
    "nose",
    "left_eye",
    "right_eye",
    "left_ear",
    "right_ear",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
)
_COCO_EDGES = (
    *((5, 6), (11, 12), (5, 11), (6, 12), (0, 1), (0, 2), (1, 3), (2, 4)),
    *((5, 7), (7, 9), (6, 8), (8, 10), (11, 13), (13, 15), (12, 14), (14, 16)),
)
_COCO_SIGMAS = (0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089)

COCO = Skeleton("coco", _COCO_NAMES, _pairs(_COCO_NAMES), _COCO_EDGES, _COCO_SIGMAS)

_LSP_NAMES = (
    "r_ankle",
    "r_knee",
    "r_hip",
    "l_hip",
    "l_knee",
    "l_ankle",
    "r_wrist",
    "r_elbow",
    "r_shoulder",
    "l_shoulder",
    "l_elbow",
    "l_wrist",
    "neck",
    "head_top",
)
_LSP_EDGES = (
    *((12, 13), (2, 3), (8, 12), (9, 12), (8, 2), (9, 3)),
    *((2, 1), (1, 0), (8, 7), (7, 6), (3, 4), (4, 5), (9, 10), (10, 11)),
)

LSP = Skeleton("lsp", _LSP_NAMES, _pairs(_LSP_NAMES), _LSP_EDGES)

SKELETONS: dict[str, Skeleton] = {skeleton.name: skeleton for skeleton in (MPII, COCO, LSP)}


def skeleton_named(name: str) -> Skeleton:
    """A skeleton by its name."""
    if name not in SKELETONS:
        raise unknown_name("skeleton", name, SKELETONS)
    return SKELETONS[name]


def skeleton_with(joints: int) -> Skeleton:
    """The skeleton of a network with this many outputs: no two have the same number of joints."""
    for skeleton in SKELETONS.values():
        if len(skeleton) == joints:
            return skeleton
    known = ", ".join(f"{len(skeleton)} ({name})" for name, skeleton in SKELETONS.items())
    raise HalfmaskError(f"a model places {joints} joints and no skeleton has as many: expected {known}")
