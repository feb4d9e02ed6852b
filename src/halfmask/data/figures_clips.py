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
    balance: str = "even",
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
    clips = Clips(population, seed=seed, size=size, frames=frames, balance=balance)
    code = f"{drawing_digest()}/{frames}x{size}/{balance}"
    world = f"figures-clips/{population}/{seed}" + ("" if balance == "even" else f"/{balance}")
    takes = []
    for number in range(skip, skip + count):
        subject = f"figures/{population}/{seed}/{clips.subject(number)}"
        label = clips.label(number) if labels == "action" else clips.label_and_place(number)
        drawn = DrawnClip(clips, number, code, subject if anonymised else None)
        takes.append(Take(f"{world}/{number}", label, drawn, video=f"{world}/{clips.video(number)}", subject=subject))
    classes = tuple(CARE_ACTIONS) if labels == "action" else tuple(clips.labels_and_places())
    return ClipSet("figures", tuple(takes), classes, masks=_AVATARS if anonymised else _MASKS)
