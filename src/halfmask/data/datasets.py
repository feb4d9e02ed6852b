"""Finding the dataset a recipe names, and putting its parts where the methods expect them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from halfmask.data.crops import ON_BAD
from halfmask.data.figures_records import figures_records
from halfmask.data.formats import FORMATS, read_annotations
from halfmask.data.mapping import with_skeleton
from halfmask.data.people import count_reasons
from halfmask.data.pose_records import PoseRecords
from halfmask.data.prints import fingerprints_of
from halfmask.data.reading import read_people
from halfmask.data.records import Datasets
from halfmask.data.sharding import Shard
from halfmask.data.skeleton import SKELETONS, skeleton_named
from halfmask.data.splits import SplitsConfig, choose, divide
from halfmask.errors import HalfmaskError
from halfmask.settings import setting

Report = Callable[[str, int, int], None]
# So many public people of `figures` judge weights that were pre-trained on others.
_JUDGED = 400


@dataclass(frozen=True)
class DataConfig:
    """Which records to use."""

    name: str = setting(
        "figures",
        "The embedded world `figures`, a dataset folder, or a name below `$HALFMASK_DATA`.",
        fits=bool,
        expected="'figures', a dataset folder, or a name below $HALFMASK_DATA",
    )
    private: int = setting(3000, "How many private crops of `figures`.", at_least=0)
    public: int = setting(600, "How many public crops of `figures`.", at_least=0)
    public_skip: int = setting(
        0,
        "How many public crops of `figures` to pass over: those that the released checkpoint was trained on, whose gradients are not "
        "those of a stranger.",
        at_least=0,
    )
    test: int = setting(500, "How many test crops of `figures`.", at_least=0)
    seed: int = setting(0, "Draws the people of `figures`.", at_least=0)
    format: str | None = setting(None, "The folder's format; found out if not given.", one_of=FORMATS, called="dataset format")
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    public_name: str | None = setting(None, "Another dataset, whose people are the public ones.")
    annotations: list[str] = setting([], "The annotation files to read, where a folder holds several of one split.")
    boxes: str | None = setting(None, "A detection file; the test people are then its boxes.")
    skeleton: str | None = setting(
        None, "Have the joints as this dataset does, which a model trained on it needs.", one_of=SKELETONS, called="skeleton"
    )
    strangers: list[str] = setting(
        [],
        "Parts without subject ids of which the data holder declares, where subjects are protected, that nobody in them is. The "
        "certificate says so.",
        one_of=("public", "basis", "tuning", "test"),
        called="part (data.strangers)",
    )
    recurring: str = setting(
        "refuse",
        "What to do about private people who recur in another part: `refuse` the dataset, or `leave-out` those private records, with "
        "all of their units. They are public, or scored openly, as it is; the certificate says how many are not protected.",
        one_of=("refuse", "leave-out"),
        called="way to treat people who recur (data.recurring)",
    )
    on_bad: str = setting(
        "refuse",
        "`refuse` an image file that is missing or damaged, or `skip` the people on it.",
        one_of=ON_BAD,
        called="way to treat bad images (data.on_bad)",
    )
    workers: int = setting(0, "Threads that open images; 0 for one per core.", at_least=0)


def load_datasets(config: DataConfig, size: tuple[int, int], report: Report | None = None, shard: Shard | None = None) -> Datasets:
    """Read (or draw) all parts; of the private one a process's share, where there are several."""
    if config.name == "figures":
        counts = {
            "private": (config.private, 0),
            "public": (config.public, config.public_skip),
            "test": (config.test, 0),
        }
        if config.private < 1:
            raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
        parts = {
            population: figures_records(
                population,
                count,
                config.seed,
                skip,
                size,
                _telling(report, f"drawing {population} people"),
                shard if population == "private" else None,
            )
            for population, (count, skip) in counts.items()
            if count
        }
        left_out: dict[str, dict[str, int]] = {}
    else:
        parts, left_out = _load_parts(config, size, ("private", "public", "test", "tuning", "basis"), report, shard)
        if "private" not in parts:
            raise HalfmaskError(
                f"'{config.name}' has no record with split 'private': the dataset is empty, there is nobody to learn from. "
                f"{_splits_hint(config)}"
            )
    private = parts["private"]
    return Datasets(
        private,
        parts.get("public"),
        parts.get("test"),
        config.name,
        fingerprints_of(private),
        left_out,
        parts.get("basis"),
        parts.get("tuning"),
    )


def load_test(config: DataConfig, size: tuple[int, int], report: Report | None = None) -> PoseRecords:
    """The people a model is judged on, alone: judging a model opens no private image."""
    if config.name == "figures":
        if config.test < 1:
            raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
        return figures_records("test", config.test, config.seed, 0, size, _telling(report, "drawing test people"))
    parts, _ = _load_parts(config, size, ("test",), report)
    if "test" not in parts:
        raise HalfmaskError(
            f"'{config.name}' has no record with split 'test': there is nobody to judge the model on. {_splits_hint(config)}"
        )
    return parts["test"]


def load_public(config: DataConfig, size: tuple[int, int], report: Report | None = None) -> tuple[PoseRecords, PoseRecords | None]:
    """The public people of a dataset, and those set apart for tuning; no image of anybody else is opened.

    Of `figures`, the first `data.public` public people and some who follow them.
    """
    if config.name == "figures":
        telling = _telling(report, "drawing public people")
        counts = ((config.public, 0), (_JUDGED, config.public))
        public, judged = (figures_records("public", count, config.seed, skip, size, telling) for count, skip in counts)
        return public, judged
    parts, _ = _load_parts(config, size, ("public", "tuning"), report)
    if "public" not in parts:
        raise HalfmaskError(f"'{config.name}' has no record with split 'public': there is nobody to pre-train on. {_splits_hint(config)}")
    return parts["public"], parts.get("tuning")


def count_private(config: DataConfig, unit: str) -> int:
    """How many private units a folder's annotations tell of: no image is opened, so that nobody who cannot be read is missed."""
    annotated = read_annotations(find_folder(config.name), config.format, tuple(config.annotations))
    part = divide(annotated, config.splits).get("private")
    if part is None or not part.people:
        raise HalfmaskError(f"'{config.name}' has no record with split 'private': there is nobody to learn from. {_splits_hint(config)}")
    if unit == "crop":
        return len(part.people)
    ids = {person.image_id if unit == "image" else person.subject for person in part.people}
    if None in ids:
        raise HalfmaskError(f"the unit '{unit}' needs {unit} ids and this dataset has none: add them, or protect an 'image'")
    return len(ids)


def _load_parts(
    config: DataConfig, size: tuple[int, int], only: tuple[str, ...], report: Report | None, shard: Shard | None = None
) -> tuple[dict[str, PoseRecords], dict[str, dict[str, int]]]:
    """Read the parts asked for, and count who was left out of each."""
    named = tuple(config.annotations)
    annotated = read_annotations(find_folder(config.name), config.format, named)
    public_elsewhere = config.public_name is not None and "public" in only
    splits = replace(config.splits, public=None) if config.public_name is not None else config.splits
    chosen = {part: (annotated, people) for part, people in divide(annotated, splits).items() if part in only}
    if config.boxes is not None and "test" in chosen:
        # A detector's boxes are for judging alone: nothing can be learnt from a box without joints.
        detected = read_annotations(find_folder(config.name), config.format, named, config.boxes)
        chosen["test"] = (detected, divide(detected, splits)["test"])
    if public_elsewhere and config.public_name is not None:
        elsewhere = read_annotations(find_folder(config.public_name))
        chosen["public"] = (elsewhere, choose(elsewhere, "public", config.splits.public))
    target = skeleton_named(config.skeleton) if config.skeleton else annotated.skeleton
    parts, left_out = {}, {}
    for part, (source, people) in chosen.items():
        telling = _telling(report, f"opening {part} images")
        share = shard if part == "private" else None
        records, gone = read_people(source, people, size, config.workers, config.on_bad, telling, share)
        if source is not annotated and part == "public":
            # Two datasets number their images and subjects each from 0: the same number is not the same person. Fingerprints tell.
            records = records.changed(image_ids=-1 - records.image_ids, subjects=None)
        parts[part] = with_skeleton(records, target)
        if gone:
            left_out[part] = count_reasons(gone)
    return parts, left_out


def _splits_hint(config: DataConfig) -> str:
    folder = find_folder(config.name)
    own = {name: len(part.images) for name, part in read_annotations(folder, config.format, tuple(config.annotations)).parts.items()}
    sizes = ", ".join(f"{name} ({count:,} images)" for name, count in own.items())
    return f"It is divided into {sizes}: say who is who with data.splits, such as data.splits.private=1-100"


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
