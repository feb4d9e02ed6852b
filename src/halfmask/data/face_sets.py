"""Finding the faces a recipe names, and putting their parts where the methods expect them.

A dataset with subjects is divided by subject, counted from 1 in the order of their ids (`61-230`): whoever is in one part is in no other.
One without is divided by photograph, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from halfmask.data.aflw import detect_aflw, read_aflw
from halfmask.data.aflw_json import detect_aflw_json, read_aflw_json
from halfmask.data.crops import ON_BAD
from halfmask.data.datasets import find_folder
from halfmask.data.face_files import Drawn, FaceSet
from halfmask.data.faces import FaceRecords, Photograph
from halfmask.data.figures_records import drawing_digest
from halfmask.data.keyed import record_id
from halfmask.data.landmark_files import detect_landmark_files, read_landmark_files
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.data.region_records import region_records
from halfmask.data.sharding import Shard, placed
from halfmask.data.splits import divide_names
from halfmask.data.ytf68 import detect_ytf68, read_ytf68
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.settings import setting

Report = Callable[[str, int, int], None]

_RANGES = "subjects, or photographs where nobody says who is on them, such as 1-60,71-90 or train:1-100"
_PARTS = ("private", "public", "test", "tuning", "basis")
_READERS: dict[str, tuple[Callable[[Path], bool], Callable[[Path], FaceSet]]] = {
    "ytf68": (detect_ytf68, read_ytf68),
    "aflw": (detect_aflw, read_aflw),
    "aflw-json": (detect_aflw_json, read_aflw_json),
    "landmark-files": (detect_landmark_files, read_landmark_files),
}
FACE_FORMATS = tuple(_READERS)


@dataclass(frozen=True)
class FaceSplitsConfig:
    """Who is in each part, counted from 1; nothing for the dataset's own splits (train is private, val or test is the test)."""

    private: str | None = setting(None, "The people to protect.", expected=_RANGES)
    public: str | None = setting(None, "Public people to learn from.", expected=_RANGES)
    test: str | None = setting(None, "The people the model is judged on.", expected=_RANGES)
    tuning: str | None = setting(None, "Public people whose loss is watched. Nothing is trained on them.", expected=_RANGES)
    basis: str | None = setting(
        None, "S_pub, public people for the subspace alone: somebody a model was trained on gives no honest gradient.", expected=_RANGES
    )


@dataclass(frozen=True)
class FaceDataConfig:
    """Which photographs to use, and how many regions of each."""

    name: str = setting(
        "figures",
        "Close-ups of the embedded world `figures`, a dataset folder, or a name below `$HALFMASK_DATA`.",
        fits=bool,
        expected="'figures', a dataset folder, or a name below $HALFMASK_DATA",
    )
    private: int = setting(1200, "How many private photographs of `figures`.", at_least=0)
    public: int = setting(400, "How many public photographs of `figures`.", at_least=0)
    public_skip: int = setting(
        0,
        "How many public photographs of `figures` to pass over: those that the released checkpoint was trained on, whose gradients are "
        "not those of a stranger.",
        at_least=0,
    )
    test: int = setting(300, "How many test photographs of `figures`.", at_least=0)
    seed: int = setting(0, "Draws the people of `figures`, and chooses the regions of every dataset.", at_least=0)
    format: str | None = setting(None, "The folder's format; found out if not given.", one_of=FACE_FORMATS, called="format of faces")
    splits: FaceSplitsConfig = field(default_factory=FaceSplitsConfig)
    positives: int = setting(3, "How many regions of a photograph are kept that show a face, at most.", at_least=0)
    negatives: int = setting(3, "How many regions of a photograph are kept that show none, at most.", at_least=0)
    attribute: bool = setting(False, "Learn the dataset's own binary attribute; off unless asked for.")
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
    workers: int = setting(0, "Threads that open photographs; 0 for one per core.", at_least=0)


def load_faces(config: FaceDataConfig, size: int | tuple[int, int], report: Report | None = None, shard: Shard | None = None) -> Datasets:
    """Read (or draw) all parts; of the private one a process's share, where there are several."""
    if config.name == "figures" and config.private < 1:
        raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
    parts, left_out = _load_parts(config, _side(size), _PARTS, report, shard)
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


def load_face_test(config: FaceDataConfig, size: int | tuple[int, int], report: Report | None = None) -> FaceRecords:
    """The people a model is judged on, alone: judging a model opens no private photograph."""
    if config.name == "figures" and config.test < 1:
        raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
    parts, _ = _load_parts(config, _side(size), ("test",), report)
    return _needed(config, parts, "test", "there is nobody to judge the model on")


def load_public_faces(
    config: FaceDataConfig, size: int | tuple[int, int], report: Report | None = None
) -> tuple[FaceRecords, FaceRecords | None]:
    """The public people of a dataset, and those set apart for tuning; no photograph of anybody else is opened."""
    if config.name == "figures" and config.public < 1:
        raise HalfmaskError("data.public is 0: there is nobody to pre-train on")
    parts, _ = _load_parts(config, _side(size), ("public", "tuning"), report)
    return _needed(config, parts, "public", "there is nobody to pre-train on"), parts.get("tuning")


def detect_face_format(folder: Path) -> str:
    """The format of a folder of faces, by what is in it."""
    found = next((format for format, (detect, _) in _READERS.items() if detect(folder)), None)
    if found is None:
        raise HalfmaskError(
            f"{folder} is in no known format of faces: expected labels.csv (68 landmarks), aflw.sqlite (AFLW), JSON of faces with 19 "
            "keypoints, or a .pts file beside each photograph"
        )
    return found


def read_faces(folder: Path, format: str | None = None) -> FaceSet:
    """What a folder of faces says, in whichever format; no photograph is opened.

    Args:
        format: one of `FACE_FORMATS`; found out if not given.
    """
    if format is not None and format not in _READERS:
        raise unknown_name("format of faces", format, FACE_FORMATS)
    return _READERS[format or detect_face_format(folder)][1](folder)


def divide_faces(faces: FaceSet, splits: FaceSplitsConfig) -> dict[str, list[Photograph]]:
    """The parts that are there, under our names for them. Somebody whom two of them claim is refused."""
    owners = {split: _owners(photographs, _by_subject(faces)) for split, photographs in faces.parts.items()}
    own = {split: tuple(sorted(set(names), key=_counted)) for split, names in owners.items()}
    named = {one.name: getattr(splits, one.name) for one in fields(splits)}
    chosen = divide_names(own, named, "subjects" if _by_subject(faces) else "photographs")
    return {
        part: [
            photograph
            for split, photographs in faces.parts.items()
            for photograph, owner in zip(photographs, owners[split], strict=True)
            if (split, owner) in names
        ]
        for part, names in chosen.items()
    }


def _by_subject(faces: FaceSet) -> bool:
    """Whether every photograph shows somebody who is known."""
    return all(one.faces and one.faces[0].subject is not None for photographs in faces.parts.values() for one in photographs)


def _owners(photographs: list[Photograph], by_subject: bool) -> list[str]:
    return [one.faces[0].subject or "" if by_subject else one.name for one in photographs]


def _counted(name: str) -> tuple[int, str]:
    """Numbers by their size and before names: subject 9 comes before subject 10."""
    return (int(name) if name.isdecimal() else 10**18, name)


def _load_parts(
    config: FaceDataConfig, size: int, only: tuple[str, ...], report: Report | None, shard: Shard | None = None
) -> tuple[dict[str, FaceRecords], dict[str, dict[str, int]]]:
    """Read the parts asked for, and count what was left out of each."""
    drawn = config.name == "figures"
    faces, chosen = _figures(config, only) if drawn else _on_disk(config, only)
    if config.attribute and not faces.attribute:
        raise HalfmaskError(f"data.attribute is true, and '{config.name}' ({faces.format}) has no attribute to learn: set it to false")
    parts, left_out = {}, {}
    for part, photographs in chosen.items():
        mine = None
        if part == "private" and shard is not None:
            mine = shard.mine([one.name for one in photographs], [one.faces[0].subject if one.faces else one.name for one in photographs])
            photographs = [photographs[place] for place in mine]
        parts[part], gone = region_records(
            photographs,
            faces.layout,
            faces.attribute if config.attribute else "",
            size,
            config.seed,
            config.positives,
            config.negatives,
            name=faces.format,
            report=_telling(report, part),
            workers=config.workers,
            on_bad=config.on_bad,
            drawn=drawn,
        )
        if mine is not None:
            names = [record_id(faces.format, "image", one.name) >> 1 for one in photographs]
            parts[part] = placed(parts[part], names, parts[part].unit_ids("image"), mine)
        if gone:
            left_out[part] = gone
    return parts, left_out


def _on_disk(config: FaceDataConfig, only: tuple[str, ...]) -> tuple[FaceSet, dict[str, list[Photograph]]]:
    faces = read_faces(find_folder(config.name), config.format)
    return faces, {part: photographs for part, photographs in divide_faces(faces, config.splits).items() if part in only}


def _figures(config: FaceDataConfig, only: tuple[str, ...]) -> tuple[FaceSet, dict[str, list[Photograph]]]:
    """Drawn close-ups: told what code draws them, so that a changed world is drawn anew."""
    from halfmask.data.figures.closeups import ATTRIBUTE, FACE_LAYOUT, closeups

    counts = {"private": (config.private, 0), "public": (config.public, config.public_skip), "test": (config.test, 0)}
    code = drawing_digest()
    chosen = {
        part: [replace(one, read=Drawn(one.read, code)) for one in closeups(part, count, config.seed, skip)]
        for part, (count, skip) in counts.items()
        if count and part in only
    }
    return FaceSet("figures", Path(), FACE_LAYOUT, chosen, ATTRIBUTE), chosen


def _needed(config: FaceDataConfig, parts: dict[str, FaceRecords], part: str, otherwise: str) -> FaceRecords:
    if part not in parts:
        raise HalfmaskError(f"'{config.name}' has nobody in its part '{part}': {otherwise}. {_splits_hint(config)}")
    return parts[part]


def _splits_hint(config: FaceDataConfig) -> str:
    faces = read_faces(find_folder(config.name), config.format)
    by_subject = _by_subject(faces)
    noun = "subjects" if by_subject else "photographs"
    sizes = ", ".join(f"{name} ({len(set(_owners(part, by_subject))):,} {noun})" for name, part in faces.parts.items())
    return f"It is divided into {sizes}: say who is who with data.splits, such as data.splits.private=1-100"


def _side(size: int | tuple[int, int]) -> int:
    if isinstance(size, int):
        return size
    if len(set(size)) != 1:
        raise HalfmaskError(
            f"regions of faces are square, and {'×'.join(map(str, size))} was asked for: give model.input_size one number twice"
        )
    return int(size[0])


def _telling(report: Report | None, part: str) -> Report | None:
    return (lambda stage, done, total: report(f"{stage} of {part} photographs", done, total)) if report else None
