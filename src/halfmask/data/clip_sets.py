"""Finding the clips a recipe names, and putting their parts where the methods expect them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path

from halfmask.data.clip_bounds import bounds_in, refuse_more
from halfmask.data.clip_folder import detect_clip_folder, read_clip_folder
from halfmask.data.clip_frames import FIT, SHORT
from halfmask.data.clip_masks import MASKS, MaskSource, mask_source
from halfmask.data.clip_motion import MOTION
from halfmask.data.clip_records import clip_records
from halfmask.data.clip_splits import SPLIT_BY, ClipSplitsConfig, divide_clips, missing_classes, sizes
from halfmask.data.clips import PROTECT, ClipRecords, ClipSet, Take
from halfmask.data.crops import ON_BAD
from halfmask.data.datasets import find_folder
from halfmask.data.figures_clips import LABELS, figures_clips
from halfmask.data.keyed import record_id
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.data.sharding import Shard, placed
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.settings import setting

Report = Callable[[str, int, int], None]

FOLDER = "clips"
_PARTS = ("private", "public", "test", "tuning", "basis")
_MISSING = ("refuse", "allow")
# So many public clips of `figures`, after those that are learnt from, judge weights that were pre-trained.
_JUDGED = 240
# An outline by motion is off by about so many pixels.
_MOTION_MARGIN = 1


def clip_formats() -> tuple[str, ...]:
    """The formats that a folder of clips may have."""
    from halfmask.data.video_sets import READERS

    return (FOLDER, *READERS)


@dataclass(frozen=True)
class ClipDataConfig:
    """Which clips to use, and what of them is protected."""

    name: str = setting(
        "figures",
        "Clips of the embedded world `figures`, a dataset folder, or a name below `$HALFMASK_DATA`.",
        fits=bool,
        expected="'figures', a dataset folder, or a name below $HALFMASK_DATA",
    )
    private: int = setting(1200, "How many private clips of `figures`.", at_least=0)
    public: int = setting(400, "How many public clips of `figures`.", at_least=0)
    public_skip: int = setting(
        0,
        "How many public clips of `figures` to pass over: those that the released checkpoint was trained on, whose gradients are not "
        "those of a stranger.",
        at_least=0,
    )
    test: int = setting(400, "How many test clips of `figures`.", at_least=0)
    seed: int = setting(0, "Draws the people and rooms of `figures`.", at_least=0)
    balance: float = setting(
        0.0,
        "How uneven the private clips of `figures` are: by what share each action is rarer than the one before it; 0 for all alike. The "
        "test asks for all alike.",
        at_least=0,
        below=1,
    )
    anonymised: bool = setting(False, "Replace the people of `figures` by avatars before anything else. Tests stay as they are.")
    labels: str = setting(
        "action",
        "What public clips of `figures` are told apart by in pre-training: the action, or the movement and its place.",
        one_of=LABELS,
        called="kind of labels (data.labels)",
    )
    format: str | None = setting(None, "The folder's format; found out if not given.", one_of=clip_formats, called="format of clips")
    official_split: int = setting(1, "Which of several official divisions of a dataset (UCF101, HMDB51: 1 to 3).", at_least=1)
    splits: ClipSplitsConfig = field(default_factory=ClipSplitsConfig)
    split_by: str | None = setting(
        None,
        "What is divided, and so is on one side whole; the first of these that every clip tells, if not given.",
        one_of=SPLIT_BY,
        called="way to divide clips (data.split_by)",
    )
    test_share: float = setting(
        0.0,
        "The last of each class's subjects, groups or videos, so large a share of them, are the test; 0 for the dataset's own splits.",
        at_least=0,
        below=1,
    )
    clips_per_video: int | None = setting(
        None,
        "The most clips that one private video has; a dataset with more of one is refused. The certificate of a promise to one clip then "
        "tells what ε is worth to a video.",
        at_least=1,
    )
    clips_per_subject: int | None = setting(None, "The same of one private subject, where every clip says whom it shows.", at_least=1)
    classes: list[str] = setting([], "The classes to keep, in this order; all if none is named.")
    missing_classes: str = setting(
        "refuse",
        "What to do where the test has a class that no private clip shows: `refuse` the division, or `allow` it.",
        one_of=_MISSING,
        called="way to treat missing classes (data.missing_classes)",
    )
    protect: str = setting(
        "background",
        "What of a clip is protected: the `background`, the `person`, or what a `mask` of the data holder's says.",
        one_of=PROTECT,
        called="part to protect (data.protect)",
    )
    masks: str = setting(
        "own",
        "Where masks come from: the dataset's `own`, `files`, `boxes`, `motion` before a still camera (an estimate), or `none`.",
        one_of=MASKS,
        called="source of masks (data.masks)",
    )
    masks_path: str | None = setting(None, "The folder of mask `files`, or the CSV or JSON file of `boxes`; below the dataset if relative.")
    mask_margin: int | None = setting(
        None,
        "Stored pixels by which the protected part is grown beyond the mask; 1 for masks by motion and 0 for others if not given.",
        at_least=0,
    )
    blended: int = setting(1, "Pixels on either side of the outline in mask `files` that mix person and background.", at_least=0)
    motion: str = setting(
        "median",
        "How motion is found: against the `median` frame, or OpenCV's `mog2` or `knn`; with `hull` all inside the outline around what "
        "moves counts as the person, the background there too.",
        one_of=MOTION,
        called="way to find what moves (data.motion)",
    )
    short: str = setting(
        "refuse",
        "`refuse` a video of fewer frames than the model takes, `repeat` frames of it evenly, or `skip` it.",
        one_of=SHORT,
        called="way to treat short videos (data.short)",
    )
    fit: str = setting(
        "crop",
        "What of a frame is shown: the central square (`crop`), all of it (`squeeze`), or a square around the `person` that follows "
        "whoever walks, by the masks.",
        one_of=FIT,
        called="way to fit frames (data.fit)",
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
        "`refuse` a video that is missing or damaged, or `skip` it.",
        one_of=ON_BAD,
        called="way to treat bad videos (data.on_bad)",
    )
    workers: int = setting(0, "Threads that open videos; 0 for one per core.", at_least=0)

    @property
    def margin(self) -> int:
        """By how much the protected part is grown."""
        return self.mask_margin if self.mask_margin is not None else _MOTION_MARGIN if self.masks == "motion" else 0

    @property
    def clips_per(self) -> dict[str, int | None]:
        """How many clips a video, and a subject, has at most; None where nothing is said."""
        return {"video": self.clips_per_video, "subject": self.clips_per_subject}

    def most_in(self, unit: str) -> dict[str, int]:
        """By coarser units, how many of this one each has at most."""
        return bounds_in(unit, self.name == "figures", self.clips_per)


def load_clips(
    config: ClipDataConfig, frames: int, size: int | tuple[int, int], report: Report | None = None, shard: Shard | None = None
) -> Datasets:
    """Read (or draw) all parts; of the private one a process's share, where there are several."""
    if config.name == "figures" and config.private < 1:
        raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
    if config.labels != "action":
        raise HalfmaskError(
            f"data.labels is {config.labels}: those are classes for pre-training; expected 'action' where private clips are"
        )
    parts, left_out = _load_parts(config, frames, _side(size), _PARTS, report, shard)
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


def load_clip_test(config: ClipDataConfig, frames: int, size: int | tuple[int, int], report: Report | None = None) -> ClipRecords:
    """The clips a model is judged on, alone: judging a model opens no private video."""
    if config.name == "figures" and config.test < 1:
        raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
    parts, _ = _load_parts(config, frames, _side(size), ("test",), report)
    return _needed(config, parts, "test", "there is nobody to judge the model on")


def load_public_clips(
    config: ClipDataConfig, frames: int, size: int | tuple[int, int], report: Report | None = None
) -> tuple[ClipRecords, ClipRecords | None]:
    """The public clips of a dataset, and those set apart for tuning; no other video is opened.

    Of `figures`, `data.public` public clips, and some who follow them to judge by.
    """
    if config.name == "figures":
        if config.public < 1:
            raise HalfmaskError("data.public is 0: there is nobody to pre-train on")
        both = _figures(replace(config, public=config.public + _JUDGED), frames, _side(size), ("public",))["public"]
        cuts = (slice(config.public), slice(config.public, None))
        learnt, judged = (_records(config, replace(both, takes=both.takes[cut]), frames, _side(size), "public", report)[0] for cut in cuts)
        return learnt, judged
    parts, _ = _load_parts(config, frames, _side(size), ("public", "tuning"), report)
    return _needed(config, parts, "public", "there is nobody to pre-train on"), parts.get("tuning")


def detect_clip_format(folder: Path) -> str:
    """The format of a folder of clips, by what is in it."""
    if detect_clip_folder(folder):
        return FOLDER
    from halfmask.data.video_sets import detect_video_format

    found = detect_video_format(folder)
    if found is None:
        raise HalfmaskError(
            f"{folder} is in no known format of clips: expected clips.csv (our own), or one of {', '.join(clip_formats()[1:])} with "
            "its own file names"
        )
    return found


def read_clips(folder: Path, format: str | None = None, official_split: int = 1) -> ClipSet:
    """What a folder of clips says, in whichever format; no video is opened.

    Args:
        format: one of `clip_formats()`; found out if not given.
        official_split: which of a dataset's official divisions.
    """
    format = format or detect_clip_format(folder)
    if format == FOLDER:
        return read_clip_folder(folder)
    from halfmask.data.video_sets import READERS

    if format not in READERS:
        raise unknown_name("format of clips", format, clip_formats())
    read: Callable[..., ClipSet] = READERS[format][1]
    several = "split" in signature(read).parameters
    return read(folder, split=official_split) if several else read(folder)


def of_classes(clips: ClipSet, classes: list[str]) -> ClipSet:
    """Only the clips of some classes, which count in the order given."""
    if not classes:
        return clips
    for label in classes:
        if label not in clips.classes:
            raise unknown_name(f"class of '{clips.name}' (data.classes)", label, clips.classes)
    return replace(clips, takes=tuple(take for take in clips.takes if take.label in set(classes)), classes=tuple(classes))


def masks_of(config: ClipDataConfig, own: str, folder: Path | None) -> MaskSource:
    """The source of masks that a recipe names."""
    path = None if config.masks_path is None else Path(config.masks_path).expanduser()
    if path is not None and folder is not None and not path.exists() and (folder / path).exists():
        path = folder / path
    return mask_source(config.masks, config.protect, path, own, config.blended, config.motion)


def _load_parts(
    config: ClipDataConfig, frames: int, size: int, only: tuple[str, ...], report: Report | None, shard: Shard | None = None
) -> tuple[dict[str, ClipRecords], dict[str, dict[str, int]]]:
    """Read the parts asked for, and count what was left out of each."""
    chosen = _figures(config, frames, size, only) if config.name == "figures" else _on_disk(config, only)
    parts, left_out = {}, {}
    if "private" in chosen:
        refuse_more(chosen["private"].takes, config.clips_per, chosen["private"].name)
    for part, clips in chosen.items():
        mine = None
        if part == "private" and shard is not None:
            # Clips of one video stay together: it may be what is protected.
            mine = shard.mine([take.video or take.name for take in clips.takes], [take.subject for take in clips.takes])
            clips = replace(clips, takes=tuple(clips.takes[place] for place in mine))
        parts[part], gone = _records(config, clips, frames, size, part, report)
        if mine is not None:
            names = [record_id(clips.name, take.name) for take in clips.takes]
            parts[part] = placed(parts[part], names, parts[part].ids, mine)
        if gone:
            left_out[part] = gone
    return parts, left_out


def _records(
    config: ClipDataConfig, clips: ClipSet, frames: int, size: int, part: str, report: Report | None
) -> tuple[ClipRecords, dict[str, int]]:
    drawn = config.name == "figures"
    return clip_records(
        clips.takes,
        clips.classes,
        frames,
        size,
        config.protect,
        name=clips.name,
        masks=masks_of(config, clips.masks, None if drawn else find_folder(config.name)),
        margin=config.margin,
        short=config.short,
        fit=config.fit,
        report=_telling(report, part),
        workers=config.workers,
        on_bad=config.on_bad,
        drawn=drawn,
    )


def _on_disk(config: ClipDataConfig, only: tuple[str, ...]) -> dict[str, ClipSet]:
    clips = of_classes(read_clips(find_folder(config.name), config.format, config.official_split), config.classes)
    parts = divide_clips(clips, config.splits, config.split_by, config.test_share)
    _check_classes(config, parts, "divide the clips otherwise (data.splits)")
    return {part: replace(clips, takes=tuple(takes)) for part, takes in parts.items() if part in only}


def _check_classes(config: ClipDataConfig, parts: Mapping[str, Sequence[Take]], mend: str) -> None:
    missing = missing_classes(parts) if "private" in parts else []
    if missing and config.missing_classes == "refuse":
        raise HalfmaskError(
            f"no private clip shows {', '.join(missing)}, which the test asks for: {mend}, keep only some classes (data.classes), or go on "
            "all the same with data.missing_classes=allow"
        )


def _figures(config: ClipDataConfig, frames: int, size: int, only: tuple[str, ...]) -> dict[str, ClipSet]:
    counts = {"private": (config.private, 0), "public": (config.public, config.public_skip), "test": (config.test, 0)}
    found = {}
    for part, (count, skip) in counts.items():
        if count and part in only:
            clips = figures_clips(
                part,
                count,
                frames,
                size,
                config.seed,
                skip,
                # The test asks for each action as often as for any other; unbalanced is what there is to learn from.
                0.0 if part == "test" else config.balance,
                config.labels if part == "public" else "action",
                # Whoever is judged on is real: an avatar is what people are replaced by where the model is trained.
                config.anonymised and part != "test",
            )
            found[part] = of_classes(clips, config.classes) if config.labels == "action" or part != "public" else clips
    _check_classes(config, {part: clips.takes for part, clips in found.items()}, "draw more clips (data.private)")
    return found


def _needed(config: ClipDataConfig, parts: Mapping[str, ClipRecords], part: str, otherwise: str) -> ClipRecords:
    if part not in parts:
        hint = ""
        if config.name != "figures":
            clips = read_clips(find_folder(config.name), config.format, config.official_split)
            hint = f" It is divided into {sizes(clips, config.split_by)}: say who is who with data.splits, such as data.splits.{part}=1-100"
        raise HalfmaskError(f"'{config.name}' has nobody in its part '{part}': {otherwise}.{hint}")
    return parts[part]


def _side(size: int | tuple[int, int]) -> int:
    if isinstance(size, int):
        return size
    if len(set(size)) != 1:
        raise HalfmaskError(f"clips are square, and {'×'.join(map(str, size))} was asked for: give model.input_size one number twice")
    return int(size[0])


def _telling(report: Report | None, part: str) -> Report | None:
    return (lambda stage, done, total: report(f"{stage} of {part}", done, total)) if report else None
