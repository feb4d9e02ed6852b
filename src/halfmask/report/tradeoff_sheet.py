"""The same people hidden in every way, side by side; and what a generator draws, beside what it might have learnt by heart.

The first shows nobody private: they are test people, or public ones. The second does, and is for drawn people alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfmask.audit.tradeoff import People
from halfmask.audit.tradeoff_ways import Way
from halfmask.report.lineup import lineup, nearest, nearest_sheet, pose_pictures

_RAW, _POSE = "original", "pose"


def people_sheet(people: People, ways: Sequence[Way], count: int = 6, seed: int = 0) -> np.ndarray:
    """Original, pose, each baseline at the published strength, drawn figures, and the first run of each curve and ε."""
    rows = np.unique(np.linspace(0, len(people.like) - 1, min(count, len(people.like))).astype(int))
    images, joints = people.like[rows], people.like_joints[rows]
    columns = {_RAW: images, _POSE: pose_pictures(joints, people.size, people.skeleton)}
    families = list(dict.fromkeys(way.family for way in ways))
    for way in sorted(ways, key=lambda way: (families.index(way.family), way.order)):
        title = f"{way.family} {way.strength}".strip()
        if way.kind != "raw" and way.pictured and title not in columns:
            columns[title] = way.hide(images, joints, seed)
    return lineup(columns)


def memory_sheet(people: People, ways: Sequence[Way], count: int = 12, seed: int = 0) -> np.ndarray | None:
    """Of the first run of the first curve, pictures in training poses beside the training pictures that are nearest; nothing without runs.

    That run has the largest ε, and would remember most. Poses are those of people it was trained with: there memory would show first.
    """
    runs = [way for way in ways if way.kind == "run"]
    if not runs:
        return None
    way = min((one for one in runs if one.family == runs[0].family), key=lambda one: one.order)
    known = people.division.learn
    rows = known[np.unique(np.linspace(0, len(known) - 1, min(count, len(known))).astype(int))]
    drawn = way.hide(people.images[rows], people.joints[rows], seed)
    training = people.images[known]
    return nearest_sheet(drawn, training, nearest(drawn, training))
