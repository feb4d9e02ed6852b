"""Finding the dataset a recipe names, and putting its parts where the methods expect them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from halfmask.data.figures_records import figures_records
from halfmask.data.folder import folder_records
from halfmask.data.records import PoseRecords
from halfmask.data.store import cached
from halfmask.errors import HalfmaskError
from halfmask.privacy.fingerprints import Fingerprints, fingerprint_images
from halfmask.views import View

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class DataConfig:
    """Which records to use.

    Attributes:
        name: `figures`, a folder, or a name below `$HALFMASK_DATA`.
        private, public, test: how many crops of each population of `figures`.
        public_skip: how many public crops to pass over: those that the released checkpoint was trained on, whose gradients are
            not those of a stranger.
    """

    name: str = "figures"
    private: int = 3000
    public: int = 600
    public_skip: int = 0
    test: int = 500
    seed: int = 0


@dataclass(frozen=True)
class Datasets:
    """The three parts of a dataset: people to protect, people who are public, and the people a model is judged on."""

    private: PoseRecords
    public: PoseRecords | None
    test: PoseRecords | None
    name: str
    fingerprints: Fingerprints


def load_datasets(config: DataConfig, size: tuple[int, int], report: Report | None = None) -> Datasets:
    """Read (or draw) all parts."""
    if config.name == "figures":
        counts = {
            "private": (config.private, 0),
            "public": (config.public, config.public_skip),
            "test": (config.test, 0),
        }
        if config.private < 1:
            raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
        parts = {
            population: figures_records(population, count, config.seed, skip, size, _telling(report, f"drawing {population} people"))
            for population, (count, skip) in counts.items()
            if count
        }
    else:
        parts = folder_records(find_folder(config.name), size)
        if "private" not in parts:
            raise HalfmaskError(f"'{config.name}' has no record with split 'private': the dataset is empty, there is nobody to learn from")
    private = parts["private"]
    return Datasets(private, parts.get("public"), parts.get("test"), config.name, fingerprints_of(private))


def load_test(config: DataConfig, size: tuple[int, int], report: Report | None = None) -> PoseRecords:
    """The people a model is judged on, alone: judging a model opens no private image."""
    if config.name == "figures":
        if config.test < 1:
            raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
        return figures_records("test", config.test, config.seed, 0, size, _telling(report, "drawing test people"))
    parts = folder_records(find_folder(config.name), size, ("test",))
    if "test" not in parts:
        raise HalfmaskError(f"'{config.name}' has no record with split 'test': there is nobody to judge the model on")
    return parts["test"]


def _telling(report: Report | None, stage: str) -> Callable[[int, int], None] | None:
    return (lambda done, total: report(stage, done, total)) if report else None


def find_folder(name: str) -> Path:
    """A path as it stands, or a name below `$HALFMASK_DATA`."""
    path = Path(name).expanduser()
    root = os.environ.get("HALFMASK_DATA")
    if not path.is_dir() and root and (Path(root) / name).is_dir():
        return Path(root) / name
    if not path.is_dir():
        places = f"{path}" + (f" or {Path(root) / name}" if root else "")
        raise HalfmaskError(f"no dataset at {places}: give a folder, a name below $HALFMASK_DATA, or 'figures'")
    return path


def fingerprints_of(records: PoseRecords) -> Fingerprints:
    """Keyed hashes of the records, computed once and kept in private storage."""

    def build() -> dict[str, np.ndarray]:
        prints = fingerprint_images(records.images)
        return {
            name: np.frombuffer(b"".join(sorted(hashes)), np.uint8).reshape(-1, 16)
            for name, hashes in (("exact", prints.exact), ("sketches", prints.sketches))
        }

    arrays = cached("fingerprints", records.key, build)
    return Fingerprints(*(frozenset(row.tobytes() for row in arrays[name]) for name in ("exact", "sketches")))


def with_view(records: PoseRecords, view: View) -> PoseRecords:
    """The records with ψ of each: computed once, on the un-augmented crop, and stored."""

    def build() -> dict[str, np.ndarray]:
        views = np.empty(records.images.shape, np.uint8)
        for i in range(len(records)):
            views[i] = view(records.images[i].transpose(1, 2, 0)).transpose(2, 0, 1)
        return {"views": views}

    return replace(records, views=cached("views", f"{records.key}/{view!r}", build)["views"], view_key=repr(view))
