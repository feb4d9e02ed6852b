"""Who is private, who is public and who is there to be judged on: dividing a dataset by image.

A split is written as the images it has, counted from 1 in the order of their names: `1001-5500`, or `1-800,901-1000`. Where a dataset
has splits of its own, they are named: `train`, `val:1-100`, `train:101-200`. Dividing by image keeps people who stand together on
one side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from halfmask.data.people import Annotations, Part
from halfmask.errors import HalfmaskError
from halfmask.settings import setting

_IMAGES = "images, such as 1-800,901-1000 or train:1-100"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
# The official split that serves where none is named, the first that the dataset has.
_OFFICIAL = {"private": ("private", "train"), "public": ("public",), "test": ("val", "test"), "tuning": (), "basis": ()}


@dataclass(frozen=True)
class SplitsConfig:
    """Which images each part has; nothing for the dataset's own splits (train is private, val is the test)."""

    private: str | None = setting(None, "The people to protect.", expected=_IMAGES)
    public: str | None = setting(None, "Public people to learn from.", expected=_IMAGES)
    test: str | None = setting(None, "The people the model is judged on.", expected=_IMAGES)
    tuning: str | None = setting(
        None,
        "Public people whose loss is watched: pre-training judges itself on them, training shows it, and the subspace's dimension is "
        "chosen on their gradients. Nothing is trained on them.",
        expected=_IMAGES,
    )
    basis: str | None = setting(
        None,
        "S_pub, public people for the subspace alone: somebody a model was trained on gives no honest gradient.",
        expected=_IMAGES,
    )


Chosen = set[tuple[str, str]]


def divide(annotations: Annotations, splits: SplitsConfig) -> dict[str, Part]:
    """The parts that are there, under our names for them. An image that two of them claim is refused.

    An official split that serves because nothing was said gives up the images that were named for other parts: naming
    `public: train:1-100` leaves the rest of `train` private.
    """
    own = {name: part.images for name, part in annotations.parts.items()}
    named = {field.name: getattr(splits, field.name) for field in fields(splits)}
    return {part: _merge(annotations, part, images) for part, images in divide_names(own, named).items()}


def divide_names(own: Mapping[str, Sequence[str]], named: Mapping[str, str | None], noun: str = "images") -> dict[str, Chosen]:
    """Which of a dataset's images (or subjects, if it is divided by those) each part has, with the official split of each.

    Args:
        own: all of them, by official split, in the order that ranges count in.
        named: what was said of each part.
        noun: what they are.
    """
    chosen = {part: _parse(own, part, text, noun) for part, text in named.items() if text is not None}
    parts = list(chosen)
    for i, one in enumerate(parts):
        for other in parts[i + 1 :]:
            shared = chosen[one] & chosen[other]
            if shared:
                raise HalfmaskError(
                    f"data.splits gives {len(shared)} {noun} to both '{one}' and '{other}': nobody can be in two parts. "
                    "Change one of the ranges"
                )
    taken: Chosen = set().union(*chosen.values())
    for part, candidates in _OFFICIAL.items():
        official = next((name for name in candidates if name in own), None)
        if part not in chosen and official is not None:
            chosen[part] = {(official, one) for one in own[official]} - taken
    return {part: names for part, names in chosen.items() if names}


def choose(annotations: Annotations, part: str, text: str | None) -> Part:
    """The people of a dataset that is there for one part alone: those named, or those whom it calls public, or all to train on."""
    if text is None:
        text = next((name for name in ("public", "train", "all") if name in annotations.parts), None)
    if text is None:
        raise HalfmaskError(
            f"{annotations.folder} has the splits {', '.join(annotations.parts)} and none that is public: say who is with "
            f"data.splits.{part}"
        )
    return _merge(annotations, part, _parse({name: one.images for name, one in annotations.parts.items()}, part, text))


def _merge(annotations: Annotations, name: str, images: Chosen) -> Part:
    """One part of the chosen images of all of the dataset's own splits."""
    merged = Part(name, (), (), (), None)
    for own, part in annotations.parts.items():
        inside = {image for split, image in images if split == own}
        if not inside:
            continue
        truth = None if part.truth is None else {image: part.truth[image] for image in part.images if image in inside}
        merged = Part(
            name,
            merged.images + tuple(image for image in part.images if image in inside),
            merged.people + tuple(person for person in part.people if person.image in inside),
            merged.left_out + tuple(one for one in part.left_out if one.image in inside),
            truth if truth is None else (merged.truth or {}) | truth,
            merged.image_numbers | part.image_numbers,
        )
    return merged


def _parse(own: Mapping[str, Sequence[str]], setting: str, text: str, noun: str = "images") -> Chosen:
    """The images that a split's text means, with the official split of each."""
    chosen: Chosen = set()
    current: str | None = None
    for piece in (piece.strip() for piece in str(text).split(",")):
        name, colon, numbers = piece.rpartition(":")
        if not colon and piece in own:
            chosen |= {(piece, one) for one in own[piece]}
            continue
        # After `train:1-10`, a bare range goes on in `train`.
        current = name or current or (next(iter(own)) if len(own) == 1 else None)
        match = _RANGE.fullmatch(numbers)
        if current is None or current not in own or match is None:
            raise HalfmaskError(
                f"data.splits.{setting} is '{text}': expected {noun} such as "
                + (f"'1-100' of {len(own[current])}" if current is not None and current in own else "'train:1-100'")
                + f", or one of the dataset's own splits: {', '.join(own)}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= len(own[current]):
            raise HalfmaskError(
                f"data.splits.{setting} asks for the {noun} {first} to {last} of '{current}', which has {len(own[current])}: "
                "expected a first and a last between 1 and that"
            )
        chosen |= {(current, one) for one in own[current][first - 1 : last]}
    return chosen
