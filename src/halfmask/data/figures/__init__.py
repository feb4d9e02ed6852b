"""The embedded world ``figures``: procedurally drawn people, so that everything works without a download.

>>> world = World("private")
>>> figure = world.figure(0)
>>> figure.image.shape, figure.joints.shape
((256, 192, 3), (16, 2))
"""

from halfmask.data.figures.actions import ACTIONS
from halfmask.data.figures.clips import Clips, DrawnClip
from halfmask.data.figures.movements import CARE_ACTIONS, MOVEMENTS
from halfmask.data.figures.places import PLACES
from halfmask.data.figures.populations import POPULATIONS
from halfmask.data.figures.scene import Figure
from halfmask.data.figures.skeleton import FLIP_PAIRS, JOINT_NAMES
from halfmask.data.figures.world import World

__all__ = [
    "ACTIONS",
    "CARE_ACTIONS",
    "FLIP_PAIRS",
    "JOINT_NAMES",
    "MOVEMENTS",
    "PLACES",
    "POPULATIONS",
    "Clips",
    "DrawnClip",
    "Figure",
    "World",
]
