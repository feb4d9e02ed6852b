"""Finding the pictures a recipe names, and putting their parts where the methods expect them.

A dataset on disk is divided by subject, counted from 1 in the order of their ids (`101-300`): whoever is in one part is in no other. Of
each private person the last pictures are kept out of training, to be named by an attacker who knows the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from halfmask.data.crops import ON_BAD
from halfmask.data.datasets import find_folder
from halfmask.data.figures_pictures import figures_pictures
from halfmask.data.keyed import record_id
from halfmask.data.picture_bounds import bounds_in, refuse_more
from halfmask.data.picture_folders import PICTURE_FORMATS, action_name, read_picture_folder
from halfmask.data.picture_poses import EMBEDDED, pose_network
from halfmask.data.picture_reading import FIT, read_pictures
from halfmask.data.pictures import STEP, Picture, PictureRecords, PictureSet, by_number, check_size
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.data.sharding import Shard, placed
from halfmask.data.splits import divide_names
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.settings import setting

Report = Callable[[str, int, int], None]

_PARTS = ("private", "public", "test", "tuning", "basis")
_RANGES = "subjects, such as 1-100,121-140"
# So many public pictures of `figures`, after those that are learnt from, judge what was pre-trained.
_JUDGED = 320
_SIDE = f"a multiple of {STEP}, at least {STEP}"
# Who is kept out of training to be named: no part of any dataset.
_NAMED = "to be named"


def _fits(side: object) -> bool:
    return isinstance(side, int) and side >= STEP and side % STEP == 0


@dataclass(frozen=True)
class PictureSplitsConfig:
    """Which subjects are in each part, counted from 1; nothing at all for the dataset's usual division."""

    private: str | None = setting(None, "The people to protect.", expected=_RANGES)
    public: str | None = setting(None, "Public people to learn from.", expected=_RANGES)
    test: str | None = setting(None, "The people the model is judged on.", expected=_RANGES)
    tuning: str | None = setting(None, "Public people whose loss is watched. Nothing is trained on them.", expected=_RANGES)
    basis: str | None = setting(
        None, "S_pub, public people for the subspace alone: somebody a model was trained on gives no honest gradient.", expected=_RANGES
    )


@dataclass(frozen=True)
class PictureDataConfig:
    """Which pictures to use, and how large they are."""

    name: str = setting(
        "figures",
        "Pictures of the embedded world `figures`, a dataset folder, or a name below `$HALFMASK_DATA`.",
        fits=bool,
        expected="'figures', a dataset folder, or a name below $HALFMASK_DATA",
    )
    private: int = setting(2000, "How many private pictures of `figures`.", at_least=0)
    public: int = setting(800, "How many public pictures of `figures`.", at_least=0)
    public_skip: int = setting(
        0,
        "How many public pictures of `figures` to pass over: those that the released checkpoint was trained on.",
        at_least=0,
    )
    test: int = setting(640, "How many test pictures of `figures`.", at_least=0)
    seed: int = setting(0, "Draws the people of `figures`.", at_least=0)
    per_subject: int = setting(16, "How many pictures of `figures` show each person.", at_least=1)
    pictures_per_subject: int | None = setting(
        None,
        "The most pictures that one private person has; a dataset with more of one is refused. The certificate of a promise to one image "
        "then tells what ε is worth to a person. Of `figures`, `data.per_subject` does.",
        at_least=1,
    )
    actions: list[str] = setting(
        [], "The actions to keep, in this order; all if none is named. People of `figures` do those that are named equally often."
    )
    height: int = setting(64, "Height of the pictures in pixels.", fits=_fits, expected=_SIDE)
    width: int = setting(48, "Width of the pictures in pixels.", fits=_fits, expected=_SIDE)
    format: str | None = setting(None, "The folder's format; found out if not given.", one_of=PICTURE_FORMATS, called="format of pictures")
    splits: PictureSplitsConfig = field(default_factory=PictureSplitsConfig)
    named_share: float = setting(
        1 / 3,
        "Of each private person on disk, the last so large a share of the pictures (of each action) is kept out of training, for the "
        "identity attack.",
        at_least=0,
        below=1,
    )
    poses: str | None = setting(
        None,
        "Who says where joints are: `embedded` for the network inside the package, the folder of a run of the task `pose`, or a weight "
        "file; nothing for the dataset's own joints, or `embedded` where it has none.",
    )
    pose_score: float = setting(0.0, "A joint that the network is less sure of counts as not known.", at_least=0, below=1)
    fit: str = setting(
        "whole",
        "How a picture on disk is brought to the size: `whole` in its proportions, `squeeze`, or cut round the `person`'s own joints.",
        one_of=FIT,
        called="way to fit pictures (data.fit)",
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
        "`refuse` an image file that is missing or damaged, or `skip` it.",
        one_of=ON_BAD,
        called="way to treat bad images (data.on_bad)",
    )
    workers: int = setting(0, "Threads that open pictures; 0 for one per core.", at_least=0)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def most_in(self, unit: str) -> dict[str, int]:
        """By coarser units, how many of this one each has at most."""
        return bounds_in(unit, self.per_subject if self.name == "figures" else None, self.pictures_per_subject)


@dataclass(frozen=True)
class IdentityPictures:
    """Pictures of private people for an identity attack.

    Attributes:
        known: those that the attacker has, with names.
        to_name: others of the same people.
        too_few: people with so few pictures that none is left to be named.
    """

    known: PictureRecords
    to_name: PictureRecords
    too_few: int


def load_pictures(config: PictureDataConfig, report: Report | None = None, shard: Shard | None = None) -> Datasets:
    """Read (or draw) all parts; of the private one a process's share, where there are several."""
    if config.name == "figures" and config.private < 1:
        raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
    parts, left_out = _load_parts(config, _PARTS, report, shard)
    private = _needed(config, parts, "private", "the dataset is empty, there is nobody to learn from")
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


def load_picture_test(config: PictureDataConfig, report: Report | None = None) -> PictureRecords:
    """The people a model is judged on, alone: judging a model opens no private picture."""
    if config.name == "figures" and config.test < 1:
        raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
    parts, _ = _load_parts(config, ("test",), report)
    return _needed(config, parts, "test", "there is nobody to judge the model on")


def load_public_pictures(config: PictureDataConfig, report: Report | None = None) -> tuple[PictureRecords, PictureRecords | None]:
    """The public people of a dataset, and those set apart for tuning; no picture of anybody else is opened.

    Of `figures`, `data.public` public pictures, and some of people who follow them to judge by.
    """
    if config.name == "figures":
        check_size(config.size)
        if config.public < 1:
            raise HalfmaskError("data.public is 0: there is nobody to pre-train on")
        # Whoever is judged by is somebody new: all pictures of the last one who is learnt from are passed over.
        after = -(-(config.public_skip + config.public) // config.per_subject) * config.per_subject
        counts = ((config.public, config.public_skip), (_JUDGED, after))
        learnt, judged = (_drawn(config, "public", count, skip, report) for count, skip in counts)
        return learnt, judged
    parts, _ = _load_parts(config, ("public", "tuning"), report)
    return _needed(config, parts, "public", "there is nobody to pre-train on"), parts.get("tuning")


def identity_pictures(config: PictureDataConfig, report: Report | None = None) -> IdentityPictures:
    """The pictures of private people that an attacker knows, and others of the same people, to be named once they were sanitised.

    This reads private people without noise, and no budget pays for it: what comes of it is for the data holder, and goes out with no run.
    The pictures to be named are no test part for that reason. On disk they were kept out of training; of `figures`, where nobody is
    harmed, they are private pictures like the others.
    """
    if config.name == "figures":
        private = _drawn(config, "private", config.private, 0, report)
        subjects = private.unit_ids("subject")
        # Drawn people come one after the other, and their pictures in order.
        _, starts, counts = np.unique(subjects, return_index=True, return_counts=True)
        held = np.concatenate([np.zeros(0, np.int64), *(_last(start, count, config) for start, count in zip(starts, counts, strict=True))])
        _check_named(len(held), config)
        others = np.setdiff1d(np.arange(len(private)), held)
        return IdentityPictures(private.take(others), private.take(held), int(sum(_held(count, config) == 0 for count in counts)))
    parts, _ = _load_parts(config, ("private", _NAMED), report)
    known = _needed(config, parts, "private", "there is nobody to be named")
    _check_named(len(parts.get(_NAMED, ())), config)
    to_name = parts[_NAMED]
    someone = np.isin(known.unit_ids("subject"), to_name.unit_ids("subject"))
    return IdentityPictures(known, to_name, len(np.unique(known.unit_ids("subject")[~someone])))


def divide_pictures(pictures: PictureSet, config: PictureDataConfig) -> dict[str, list[Picture]]:
    """The parts that are there, under our names for them, and who is kept out to be named. Somebody whom two parts claim is refused."""
    named = {one.name: getattr(config.splits, one.name) for one in fields(config.splits)}
    if not any(named.values()):
        named |= pictures.usual
    people = divide_names({"all": pictures.subjects}, named, "subjects")
    part_of = {subject: part for part, chosen in people.items() for _, subject in chosen}
    parts: dict[str, list[Picture]] = {}
    # Of everything that somebody does, the last pictures: else whole actions would be kept out.
    together: dict[tuple[str, str], list[Picture]] = {}
    for picture in pictures.pictures:
        if picture.subject in part_of:
            together.setdefault((picture.subject, picture.action), []).append(picture)
    for (subject, _), theirs in sorted(together.items(), key=lambda item: by_number(item[0][0])):
        part = part_of[subject]
        held = _held(len(theirs), config) if part == "private" else 0
        parts.setdefault(part, []).extend(theirs[: len(theirs) - held])
        if held:
            parts.setdefault(_NAMED, []).extend(theirs[len(theirs) - held :])
    return parts


def of_actions(pictures: PictureSet, actions: Sequence[str]) -> PictureSet:
    """Only the pictures of some actions, which count in the order given."""
    if not actions:
        return pictures
    wanted = tuple(action_name(action) for action in actions)
    for action in wanted:
        if action not in pictures.actions:
            raise unknown_name("action (data.actions)", action, pictures.actions)
    return replace(pictures, pictures=tuple(one for one in pictures.pictures if one.action in wanted), actions=wanted)


def _load_parts(
    config: PictureDataConfig, only: tuple[str, ...], report: Report | None, shard: Shard | None = None
) -> tuple[dict[str, PictureRecords], dict[str, dict[str, int]]]:
    """Read the parts asked for, and count what was left out of each."""
    check_size(config.size)
    if config.name == "figures":
        counts = {"private": (config.private, 0), "public": (config.public, config.public_skip), "test": (config.test, 0)}
        wanted = {part: how for part, how in counts.items() if how[0] and part in only}
        if "private" in wanted:
            # Drawn people come one after the other.
            refuse_more((number // config.per_subject for number in range(config.private)), config.pictures_per_subject)
        shares = {"private": shard}
        return {part: _drawn(config, part, count, skip, report, shares.get(part)) for part, (count, skip) in wanted.items()}, {}
    pictures = _on_disk(config)
    own = config.poses is None and any(picture.joints is not None for picture in pictures.pictures)
    poses = None if own else pose_network(config.poses or EMBEDDED)
    parts: dict[str, PictureRecords] = {}
    left_out = {"files": dict(pictures.left_out)} if pictures.left_out else {}
    for part, some in divide_pictures(pictures, config).items():
        if part not in only:
            continue
        if part == "private":
            refuse_more((picture.subject for picture in some), config.pictures_per_subject)
        mine = None
        if part == "private" and shard is not None:
            mine = shard.mine([picture.name for picture in some], [picture.subject for picture in some])
            some = [some[place] for place in mine]
        parts[part], gone = read_pictures(
            some,
            pictures.actions,
            config.size,
            pictures.format,
            poses,
            config.fit,
            config.pose_score,
            config.workers,
            config.on_bad,
            _telling(report, part),
        )
        if mine is not None:
            names = [record_id(pictures.format, picture.name) for picture in some]
            parts[part] = placed(parts[part], names, parts[part].ids, mine)
        if gone:
            left_out[part] = gone
    return parts, left_out


def _on_disk(config: PictureDataConfig) -> PictureSet:
    return of_actions(read_picture_folder(find_folder(config.name), config.format), config.actions)


def _drawn(
    config: PictureDataConfig, population: str, count: int, skip: int, report: Report | None, shard: Shard | None = None
) -> PictureRecords:
    telling = (lambda done, total: report(f"drawing {population} people", done, total)) if report else None
    return figures_pictures(population, count, config.seed, skip, config.size, config.per_subject, config.actions, telling, shard)


def _held(count: int, config: PictureDataConfig) -> int:
    """How many of somebody's pictures are to be named; one at least is known."""
    # A third of three is one, also in binary.
    return min(count - 1, int(count * config.named_share + 1e-9))


def _last(start: int, count: int, config: PictureDataConfig) -> np.ndarray:
    return np.arange(start + count - _held(count, config), start + count)


def _check_named(count: int, config: PictureDataConfig) -> None:
    if not count:
        raise HalfmaskError(
            f"no private person of '{config.name}' has a picture to be named: expected some with three pictures or more, and "
            f"data.named_share above 0 (it is {config.named_share:g})"
        )


def _needed(config: PictureDataConfig, parts: dict[str, PictureRecords], part: str, otherwise: str) -> PictureRecords:
    if part not in parts:
        people = len(_on_disk(config).subjects) if config.name != "figures" else 0
        raise HalfmaskError(
            f"'{config.name}' has nobody in its part '{part}': {otherwise}. It has {people:,} subjects: say who is who with data.splits, "
            "such as data.splits.private=1-100"
        )
    return parts[part]


def _telling(report: Report | None, part: str) -> Report | None:
    return (lambda stage, done, total: report(f"{stage} of {part} people", done, total)) if report else None
