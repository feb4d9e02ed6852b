"""Avatars with the bodies of `anny` (PyPI, Apache 2.0; `pip install halfmask[anny]`): parametric people of all ages and builds.

Only bodies at rest are asked for, one for each avatar, and kept; poses and drawing are `halfmask.data.mannequin`'s. The first body takes
minutes, as the package builds its model and keeps it in its own cache; further ones take no time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from halfmask.data.avatars import AVATARS, Avatar, avatar_of
from halfmask.data.mannequin import SEGMENTS, Mannequin, draw_mannequin, upright
from halfmask.errors import HalfmaskError

# Bones that begin a segment; all that hang on one go with it, up to the next. Whatever is left is the trunk.
_BEGIN = {"neck02": "head", "head": "head"} | {
    f"{bone}.{side.upper()}": f"{side}_{segment}"
    for side in "rl"
    for bone, segment in (("upperleg01", "thigh"), ("lowerleg01", "shin"), ("upperarm01", "upper"), ("lowerarm01", "forearm"))
}
# In MPII's order: the bones that begin where a joint is. The pelvis is between the hips, and the top of the head has no bone.
_JOINTS = (
    *("foot.R", "lowerleg01.R", "upperleg01.R", "upperleg01.L", "lowerleg01.L", "foot.L", "", "neck01", "head", ""),
    *("wrist.R", "lowerarm01.R", "upperarm01.R", "upperarm01.L", "lowerarm01.L", "wrist.L"),
)


def draw_anny(joints: np.ndarray, key: str | int, size: tuple[int, int], present: np.ndarray | None = None) -> np.ndarray:
    """As `halfmask.data.avatar_draw.draw_avatar`, with a body of anny's in the same clothes."""
    avatar = avatar_of(key)
    return draw_mannequin(body_of(AVATARS.index(avatar)), avatar, joints, size, present)


@lru_cache(maxsize=len(AVATARS))
def body_of(number: int) -> Mannequin:
    """The body of an avatar, by its place among `AVATARS`."""
    import torch

    model = _model()
    with torch.no_grad():
        chosen = {name: torch.tensor([value]) for name, value in phenotype(AVATARS[number], number).items()}
        pose = torch.eye(4)[None, None].repeat(1, model.bone_count, 1, 1)
        found = model(pose_parameters=pose, phenotype_kwargs=chosen)
    vertices = found["rest_vertices"][0].double().numpy()
    heads = found["rest_bone_heads"][0].double().numpy()
    places = {label: heads[bone] for bone, label in enumerate(model.bone_labels)}
    joints = np.stack([places.get(name, np.zeros(3)) for name in _JOINTS])
    joints[6] = 0.5 * (joints[2] + joints[3])
    up = joints[7] - joints[6]
    up /= np.linalg.norm(up)
    joints[9] = joints[8] + up * float(((vertices - joints[8]) @ up).max())
    faces = np.asarray(model.faces)
    return upright(vertices, faces, _weights(model, len(vertices)), joints)


def phenotype(avatar: Avatar, number: int) -> dict[str, float]:
    """What a body is like, from 0 to 1 each: its build is the avatar's, the rest follows from its place."""
    build = float(np.clip((avatar.build - 0.8) / 0.5, 0.0, 1.0))
    return {
        "gender": float(number * 7 % 12) / 11,
        "age": 0.55 + 0.3 * float(number * 5 % 9) / 8,
        "muscle": 0.35 + 0.4 * float(number * 3 % 7) / 6,
        "weight": 0.3 + 0.55 * build,
        "height": 0.5,
        "proportions": 0.5,
    }


@lru_cache(maxsize=1)
def _model() -> Any:
    try:
        import anny
    except ImportError:
        raise HalfmaskError("avatars of anny need the package anny: install it with pip install 'halfmask[anny]'") from None
    return anny.Anny()


def _weights(model: Any, vertices: int) -> np.ndarray:
    """How much of each vertex goes with each segment (V×10)."""
    names = list(SEGMENTS)
    segment: list[str] = []
    for bone, label in enumerate(model.bone_labels):
        parent = int(model.bone_parents[bone])
        segment.append(_BEGIN.get(label, segment[parent] if 0 <= parent < bone else "trunk"))
    numbers = np.array([names.index(name) for name in segment])
    weights = np.zeros((vertices, len(names)))
    rows = np.arange(vertices)
    indices, shares = model.vertex_bone_indices.numpy(), model.vertex_bone_weights.double().numpy()
    for column in range(indices.shape[1]):
        np.add.at(weights, (rows, numbers[indices[:, column]]), shares[:, column])
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
