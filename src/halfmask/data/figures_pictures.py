"""People of the embedded world as pictures: everybody alone, many times, and doing something.

The pictures of pose figures show up to three people, and each of them about eight times. Here a picture is one person's, as the promise
about subjects needs, and there are enough of each person to learn who they are: an attack that cannot succeed measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from halfmask.data.figures import ACTIONS, JOINT_NAMES, World
from halfmask.data.figures.scene import Figure
from halfmask.data.figures_records import drawing_digest
from halfmask.data.keyed import record_id
from halfmask.data.pictures import PictureRecords, check_size, picture_records
from halfmask.data.prints import named_prints
from halfmask.data.sharding import Shard
from halfmask.data.store import Draft, cached_by_row
from halfmask.errors import unknown_name

Progress = Callable[[int, int], None]

EXACT = "exact: the people of the embedded world are drawn, and their joints with them"
# Streams of random numbers that nothing else in the embedded world uses: pictures, close-ups and clips use those below.
_STREAMS = 48
# Pictures are drawn at about this height and made smaller: grain and softness of the lens are those of a camera, in its pixels.
_DRAWN = 256
# Part of every key: pictures drawn by code that did it differently are not found again.
_VERSION = 1


class Album(World):
    """Pictures of one population, each of one person, ``per_subject`` in a row of everybody.

    ``actions`` are those that are done, all as often; if none is named, what the population does.
    """

    def __init__(
        self,
        population: str,
        seed: int = 0,
        size: tuple[int, int] = (256, 192),
        per_subject: int = 16,
        actions: Sequence[str] = (),
    ) -> None:
        super().__init__(population, seed, size)
        self.per_subject = per_subject
        for action in actions:
            if action not in ACTIONS:
                raise unknown_name("action of 'figures' (data.actions)", action, ACTIONS)
        if actions:
            self.population = replace(self.population, actions=dict.fromkeys(actions, 1.0))

    def _rng(self, purpose: int, *key: int) -> np.random.Generator:
        return super()._rng(_STREAMS + purpose, *key)

    def _layout(self, block: int) -> Any:
        """Who and where, for a block of pictures: somebody alone in each."""
        drawn = super()._layout(block)
        numbers = block * len(drawn.counts) + np.arange(len(drawn.counts))
        return replace(drawn, counts=np.ones_like(drawn.counts), subjects=(numbers // self.per_subject)[:, None])


def figures_pictures(
    population: str,
    count: int,
    seed: int = 0,
    skip: int = 0,
    size: tuple[int, int] = (64, 48),
    per_subject: int = 16,
    actions: Sequence[str] = (),
    progress: Progress | None = None,
    shard: Shard | None = None,
) -> PictureRecords:
    """The pictures number `skip` … `skip + count − 1` of a population, drawn once and kept; or a process's share of them."""
    check_size(size)
    known = tuple(actions) or ACTIONS
    album = f"{population}/{seed}/{per_subject}/{','.join(actions)}"
    key = f"figures-pictures/{album}/{skip}/{count}/{size[0]}x{size[1]}/{drawing_digest()}/{_VERSION}"
    times = max(1, round(_DRAWN / size[0]))
    numbers, places = np.arange(skip, skip + count), None
    if shard is not None:
        places = shard.mine([str(number) for number in numbers], [str(number // per_subject) for number in numbers])
        numbers, count, key = numbers[places], len(places), f"{key}/{shard!r}"

    def write(draft: Draft) -> None:
        world = Album(population, seed, (times * size[0], times * size[1]), per_subject, actions)
        fields = draft.fields(
            {
                "images": (np.uint8, (3, *size)),
                "joints": (np.float32, (len(JOINT_NAMES), 3)),
                "head_boxes": (np.float32, (4,)),
                "actions": (np.int64, ()),
                "image_ids": (np.int64, ()),
                "subjects": (np.int64, ()),
            },
            count,
        )
        for row in range(count):
            figure = world.figure(int(numbers[row]))
            fields["images"][row] = cv2.resize(figure.image, (size[1], size[0]), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
            fields["joints"][row] = _joints(figure, times)
            fields["head_boxes"][row] = (figure.head_box + 0.5) / times - 0.5
            fields["actions"][row] = known.index(ACTIONS[figure.action])
            fields["image_ids"][row] = figure.image_id
            fields["subjects"][row] = figure.subject
            if progress and (row % 50 == 49 or row + 1 == count):
                progress(row + 1, count)

    arrays = cached_by_row("records", key, write)
    image_ids, subjects = np.array(arrays["image_ids"]), np.array(arrays["subjects"])
    records = picture_records(
        images=arrays["images"],
        joints=arrays["joints"],
        actions_done=arrays["actions"],
        image_ids=image_ids,
        subjects=subjects,
        key=key,
        actions=known,
        poses=EXACT,
        head_boxes=arrays["head_boxes"],
        # By name: a drawn picture is the same at every size.
        prints=named_prints(
            [f"figures-pictures/{album}/{image}" for image in image_ids],
            # Whoever is drawn looks the same however often, and whatever they do.
            [f"figures-pictures/{population}/{seed}/{subject}" for subject in subjects],
        ),
        ids=np.array([record_id("figures-pictures", album, image) for image in image_ids.tolist()], np.uint64),
    )
    return records if places is None else replace(records, places=places)


def _joints(figure: Figure, times: int) -> np.ndarray:
    """Joints in pixels of the smaller picture, with centres of pixels at whole numbers in both; zeros for those outside."""
    known = figure.visibility > 0
    placed = (figure.joints + 0.5) / times - 0.5
    return np.where(known[:, None], np.column_stack([placed, np.ones(len(known))]), 0.0)
