"""Drawn clips as takes: exact masks, and known by name."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.figures_records import drawing_digest
from halfmask.errors import HalfmaskError, unknown_name

if TYPE_CHECKING:
    from halfmask.data.figures.clips import Clips

LABELS = ("action", "action-and-place")
POPULATIONS = ("private", "public", "test")
# How the world is laid out, whoever is drawn: videos are cut into two or three clips, and nobody is in more than four videos.
MOST_CLIPS = {"video": 3, "subject": 12}
MOST_VIDEOS_OF_A_SUBJECT = 4
_MASKS = "exact: the people of the embedded world are drawn, and their masks with them"
_AVATARS = "exact: a pixel counts as the person where a drawn avatar covers it wholly"
# A drawn outline is smooth: one pixel on either side of it may mix person and room.
_BLENDED = 1


@dataclass(frozen=True)
class _World:
    """The clips of a population. Every thread has its own: what they keep in memory is not for several at once."""

    population: str
    seed: int
    size: int
    frames: int
    balance: float
    only: tuple[str, ...] | None
    _own: threading.local = field(default_factory=threading.local, repr=False, compare=False)

    def clips(self) -> Clips:
        if not hasattr(self._own, "clips"):
            from halfmask.data.figures.clips import Clips

            self._own.clips = Clips(self.population, self.seed, (self.size, self.size), self.frames, self.balance, only=self.only)
        found: Clips = self._own.clips
        return found


@dataclass(frozen=True)
class DrawnFilm:
    """A clip that is drawn when it is called, and drawn anew when the code that draws it changes.

    Attributes:
        avatar: names the avatar in the place of the person; nothing for the person.
        stamp: changes with the drawing code and with how it is asked to draw.
    """

    world: _World
    number: int
    stamp: str
    avatar: str | None = None

    def __call__(self) -> Film:
        """The film with its exact mask."""
        drawn = self.world.clips().clip(self.number)
        film = Film(drawn.frames, person=drawn.person, blended=_BLENDED, joints=drawn.joints)
        if self.avatar is None:
            return film
        from halfmask.data.anonymise import anonymise

        return anonymise(film, drawn.joints, self.avatar)


def figures_clips(
    population: str,
    count: int,
    frames: int,
    size: int,
    seed: int = 0,
    skip: int = 0,
    balance: float = 0.0,
    labels: str = "action",
    anonymised: bool = False,
) -> ClipSet:
    """The clips number `skip` … `skip + count − 1` of a population; none is drawn yet.

    The public does more than the private do. Told by their action, public clips are of what the private do, so that labels count alike;
    told by movement and place, of everything.

    Args:
        frames, size: they are drawn at the network's size, so that nothing is resampled.
        balance: by how much each action is rarer than the one before it.
        labels: what is to be told: the action or, of public clips, the movement and the place it is done in.
        anonymised: replace people by avatars, one for each subject, before anything else.
    """
    from halfmask.data.figures.clips import CARE_ACTIONS

    if population not in POPULATIONS:
        raise unknown_name("population", population, POPULATIONS)
    if labels not in LABELS:
        raise unknown_name("kind of labels (data.labels)", labels, LABELS)
    placed = labels != "action"
    if placed and population != "public":
        raise HalfmaskError(f"data.labels is {labels}: expected 'action' for {population} clips; only public ones are told by place")
    world = _World(population, seed, size, frames, balance, None if placed else CARE_ACTIONS)
    clips = world.clips()
    # Another balance or another choice of actions has other clips under the same numbers.
    name = f"figures-clips/{population}/{seed}" + (f"/{balance:g}" if balance else "") + (f"/{labels}" if placed else "")
    stamp = f"{drawing_digest()}/{frames}x{size}/" + (_avatar_digest() if anonymised else "")
    takes = []
    for number in range(skip, skip + count):
        action, subject = clips.action_of(number), f"figures-clips/{population}/{seed}/{clips.subject_of(number)}"
        film = DrawnFilm(world, number, stamp, subject if anonymised else None)
        label = _with_place(action, clips.place_of(number)) if placed else action
        takes.append(Take(f"{name}/{number}", label, film, video=f"{name}/video {clips.video_of(number)}", subject=subject))
    classes = tuple(_with_place(one, place) for one in clips.classes for place in clips.places) if placed else CARE_ACTIONS
    return ClipSet("figures", tuple(takes), classes, masks=_AVATARS if anonymised else _MASKS)


def _with_place(action: str, place: str) -> str:
    return f"{action} ({place})"


def _avatar_digest() -> str:
    """A fingerprint of the code that replaces people, so that changed avatars are drawn anew."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("anonymise*.py"), *folder.glob("avatar*.py"), *folder.glob("inpaint*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
