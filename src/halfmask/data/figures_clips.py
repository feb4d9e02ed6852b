"""Drawn clips as takes: exact masks, and known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfmask.data.clips import ClipSet, Film, Take
from halfmask.data.figures_records import drawing_digest
from halfmask.errors import HalfmaskError, unknown_name

if TYPE_CHECKING:
    from halfmask.data.figures.clips import Clips

LABELS = ("action", "action-and-place")
POPULATIONS = ("private", "public", "test")
_MASKS = "exact: the people of the embedded world are drawn, and so are their masks"
_AVATARS = "exact: where the drawn avatar covers a pixel wholly"


@dataclass(frozen=True)
class DrawnClip:
    """A clip that is drawn when it is called, and drawn anew when the code that draws it changes."""

    clips: Clips
    number: int
    code: str
    avatar: str | None = None

    def __call__(self) -> Film:
        """The film with its exact mask; with an avatar in the place of the person where one is asked for."""
        drawn = self.clips.clip(self.number)
        # A drawn outline is smooth: one pixel on either side may mix person and room.
        film = Film(drawn.frames, person=drawn.person, blended=1)
        if self.avatar is None:
            return film
        from halfmask.data.anonymise import anonymise

        return anonymise(film, drawn.joints, self.avatar)

    @property
    def stamp(self) -> str:
        """Changes with the drawing code and with how it is asked to draw."""
        return f"{self.code}/{self.avatar or ''}"


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

    Args:
        frames, size: they are drawn at the network's size, so that nothing is resampled.
        labels: what is to be told: the action, or, of public clips, the movement and the place it is done in.
        anonymised: replace people by avatars, one for each subject, before anything else.
    """
    from halfmask.data.figures.clips import CARE_ACTIONS, Clips

    if population not in POPULATIONS:
        raise unknown_name("population", population, POPULATIONS)
    if labels not in LABELS:
        raise unknown_name("kind of labels (data.labels)", labels, LABELS)
    if labels != "action" and population != "public":
        raise HalfmaskError(f"data.labels is {labels}: expected 'action' for {population} clips; only public ones are told by place")
    # Public people do more than anybody private; beside private clips only what those do has a name.
    only = CARE_ACTIONS if labels == "action" else None
    clips = Clips(population, seed=seed, size=(size, size), frames=frames, balance=balance, only=only)
    code = f"{drawing_digest()}/{frames}x{size}/{balance}"
    world = f"figures-clips/{population}/{seed}" + (f"/{balance:g}" if balance else "") + ("" if labels == "action" else f"/{labels}")
    takes = []
    for number in range(skip, skip + count):
        subject = f"figures/{population}/{seed}/{clips.subject_of(number)}"
        label = clips.action_of(number) if labels == "action" else _with_place(clips.action_of(number), clips.place_of(number))
        drawn = DrawnClip(clips, number, code, subject if anonymised else None)
        takes.append(Take(f"{world}/{number}", label, drawn, video=f"{world}/{clips.video_of(number)}", subject=subject))
    classes = CARE_ACTIONS if labels == "action" else tuple(_with_place(one, place) for one in clips.classes for place in clips.places)
    return ClipSet("figures", tuple(takes), classes, masks=_AVATARS if anonymised else _MASKS)


def _with_place(action: str, place: str) -> str:
    return f"{action} ({place})"
