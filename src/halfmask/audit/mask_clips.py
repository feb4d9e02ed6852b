"""Clips of noise with masks, sent through the real reading, view and trainer, for the audit of masks.

What is protected of a stored clip is worked out here once more, by another way than the readers', so that a reader who protects too little
is seen. Nothing private is read: films are noise, and masks are discs that move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfmask.data.clip_masks import OwnMasks
from halfmask.data.clip_records import clip_records
from halfmask.data.clips import ClipRecords, Film, Take
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.models.mvit import MViT
from halfmask.tasks.action import ActionTask
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

CLIPS = 6
CLASSES = tuple("abcdef")
# Clips are no larger than this here: patches are the same, and a large network is tried in minutes, not in hours.
_FRAMES, _SIDE = 8, 96
# Sides of what is stored, as shares of the network's: films that shrink and films that grow, none of them a square.
_STORED = ((1.47, 1.61), (0.72, 0.78), (1.9, 1.3))


@dataclass(frozen=True)
class _Read:
    """Gives a film; the stamp tells films apart that have one name."""

    film: Film
    stamp: str

    def __call__(self) -> Film:
        return self.film


def noise_films(frames: int, side: int, seed: int) -> list[Film]:
    """Films of noise, in whose middle a disc moves: the person, and what a mask of the data holder's protects."""
    rng, films = np.random.default_rng(seed), []
    for number in range(CLIPS):
        height, width = (round(share * side) + 1 for share in _STORED[number % len(_STORED)])
        count = frames + number % 3
        rows, columns = np.mgrid[:height, :width]
        middle = np.array([height, width]) / 2 + np.stack([np.arange(count) % 3 - 1, np.arange(count) % 2], 1)
        away = (rows[None] - middle[:, 0, None, None]) ** 2 + (columns[None] - middle[:, 1, None, None]) ** 2
        disc = away < (0.42 * min(height, width)) ** 2
        films.append(Film(rng.integers(0, 256, (count, height, width, 3), dtype=np.uint8), disc, disc))
    return films


def protected_of(film: Film, protect: str, margin: int) -> np.ndarray:
    """F×H×W: which stored pixels a recipe protects, by its words alone."""
    assert film.person is not None and film.protected is not None
    if protect == "mask":
        return _within(film.protected, margin)
    return _within(~film.person if protect == "background" else film.person, margin + film.blended)


def _within(mask: np.ndarray, pixels: int) -> np.ndarray:
    """Everything within so many pixels, shift by shift."""
    padded = np.pad(mask, ((0, 0), (pixels, pixels), (pixels, pixels)))
    height, width = mask.shape[1:]
    shifts = range(2 * pixels + 1)
    return np.any([padded[:, down : down + height, across : across + width] for down in shifts for across in shifts], axis=0)


def other_pixels(film: Film, where: np.ndarray) -> Film:
    """The film with every one of these pixels another one."""
    return replace(film, frames=np.where(where[..., None], film.frames + np.uint8(128), film.frames))


def quiet_config(config: RunConfig, seed: int) -> RunConfig:
    """The run's settings, as far as they decide what is public; the rest such that two trainings can be compared."""
    frames, side = config.model.clip_shape
    return replace(
        config,
        method="masked" if config.method.startswith("masked") else "feature",
        epsilon=1.0,
        delta=1e-6,
        adjacency="zero-out",
        batch=2,
        epochs=1.0,
        unit="clip",
        records_per_unit=1,
        seed=seed,
        insecure_seed=seed,
        device="cpu",
        even_so=True,
        model=replace(config.model, frames=min(frames, _FRAMES), side=min(side, _SIDE)),
        augment=replace(config.augment, times=0),
        public=replace(config.public, batch=CLIPS // 2, raw_share=0.0, weight=1.0, shared_batch=False),
        private=replace(config.private, calibrate=False, follow=0.0),
    )


class Bench:
    """A task and its network, to be tried on films of noise."""

    def __init__(self, config: RunConfig, model: MViT, home: Path, seed: int):
        self.config, self.home, self.seed = quiet_config(config, seed), home, seed
        self.task = ActionTask(self.config)
        self.model = _small(model, self.config)
        self.films = noise_films(*self.task.clip_shape, seed)
        data = self.config.data
        self.protected = [protected_of(film, data.protect, data.margin) for film in self.films]
        self._made = 0

    def records(self, films: Sequence[Film], name: str) -> ClipRecords:
        """The films as the action task reads them."""
        data = self.config.data
        takes = [Take(f"noise {n}", CLASSES[n % len(CLASSES)], _Read(film, f"{name}/{self.seed}")) for n, film in enumerate(films)]
        found, _ = clip_records(
            takes,
            CLASSES,
            *self.task.clip_shape,
            data.protect,
            name="noise",
            masks=OwnMasks("the audit"),
            margin=data.margin,
            short="repeat",
            fit=data.fit,
            workers=1,
            drawn=True,
        )
        return self.task.with_tokens(found)

    def trainer(self, records: ClipRecords, strategy: str, cached: bool = True) -> Trainer:
        """The real trainer on these records; without what was computed once, if asked."""
        config = replace(self.config, strategy=strategy)
        task = ActionTask(config)
        data = Datasets(records, None, None, "noise", fingerprints_of(records))
        setup = prepare(config, Progress(), data, self.model, task=task)
        if not cached:
            setup = replace(setup, private=replace(setup.private, features={}, copies=()))
        self._made += 1
        return Trainer(setup, RunFolder.create(self.home / f"masks-{self._made}", config), Progress())


def _small(model: MViT, config: RunConfig) -> MViT:
    """The network for the audit's clips and classes; an untrained head is filled, or no gradient would reach what is below it."""
    state: dict[str, Any] = {name: value.cpu().float() for name, value in model.state_dict().items() if not name.startswith("head.")}
    made = MViT(config.model.size, len(CLASSES), *config.model.clip_shape)
    made.load_state_dict(state, strict=False)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(config.seed)
        for weight in made.head.parameters():
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return made.eval()
