"""What is left of what people do, and of who they are, in pictures that hide them: every way to hide them measured alike.

The people are the private ones of the runs that are compared, since it is them that a generator might have learnt by heart. So this reads
private people without noise, and no budget pays for it: what it finds about real people is for the data holder. Pictures that are shown,
and those that generated ones are held against, are of test people, or of public ones where a dataset has no others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from halfmask.audit.looks import Looks, look_at
from halfmask.audit.membership import NOT_FOR_RELEASE
from halfmask.audit.recognition import Division, Recognition, action_utility, identity_attack
from halfmask.data.picture_sets import PictureDataConfig, identity_pictures, load_picture_test, load_public_pictures
from halfmask.data.pictures import NO_ACTION, PictureRecords
from halfmask.data.records import PRIVATE
from halfmask.data.skeleton import Skeleton
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.metrics.generated import frechet_distance, pose_kept, precision_and_recall
from halfmask.metrics.pckh import JOINT_NAMES
from halfmask.models.judge import Judge, Sight, shipped_judge

if TYPE_CHECKING:
    from halfmask.audit.tradeoff_ways import Way

# Part of every point's key: what was measured otherwise is measured again.
_VERSION = 3
CANNOT_SEE = (
    "better attackers: larger networks, more pictures of each person, video, or knowledge of people that no picture here shows",
    "what a hidden picture gives away besides who it is; and what the poses give away, which are taken to be public",
    "how useful pictures are for anything but telling these actions apart",
)
_PEOPLE_LEAST = 4
Report = Callable[[str, int, int], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class People:
    """Pictures of people to be hidden, and others of people like them.

    Attributes:
        images: bytes N×3×H×W.
        joints: N×J×3 in their pixels.
        subjects: N, who is shown.
        actions: N, what they do; `NO_ACTION` where it does not count.
        action_names: those that count; fewer than two where a dataset knows none.
        division: the pictures that an attacker may know, and those to be named.
        like: bytes M×3×H×W of people like them, none of them among them.
        like_joints: their poses.
        like_part: which part of the dataset those are.
        format: of the dataset's folder; `figures` where there is none.
        key: names all of this.
    """

    images: np.ndarray
    joints: np.ndarray
    subjects: np.ndarray
    actions: np.ndarray
    action_names: tuple[str, ...]
    division: Division
    like: np.ndarray
    like_joints: np.ndarray
    like_part: str
    skeleton: Skeleton
    format: str
    key: str
    head_boxes: np.ndarray | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a picture."""
        return int(self.images.shape[2]), int(self.images.shape[3])

    @property
    def do_something(self) -> bool:
        """Whether it is known what they do."""
        return len(self.action_names) > 1


def people_of(config: PictureDataConfig, count: int | None = None, actions: Sequence[str] = (), report: Report | None = None) -> People:
    """The private people of a dataset, and people like them.

    Args:
        count: so many people at most, the first; all if not given. The fewer, the likelier is a lucky guess.
        actions: those that count for utility; all if none is named.
    """
    found = identity_pictures(config, report)
    like, part = _like(config, report)
    known, asked = found.known, found.to_name
    chosen = np.unique(asked.unit_ids("subject"))[:count]
    if len(chosen) < _PEOPLE_LEAST:
        raise HalfmaskError(f"{len(chosen)} people to be named: expected at least {_PEOPLE_LEAST}, of whom each has three pictures or more")
    parts = [(records, np.flatnonzero(np.isin(records.unit_ids("subject"), chosen))) for records in (known, asked)]
    split = len(parts[0][1])
    total = split + len(parts[1][1])
    targets = [records.targets.rows(rows) for records, rows in parts]
    truths = [records.truth.rows(rows) for records, rows in parts]
    done, names = _that_count(np.concatenate([one["action"] for one in targets]), known.actions, actions)
    pictures, poses = np.zeros((0, 3, *config.size), np.uint8), np.zeros((0, len(known.skeleton), 3))
    if like is not None:
        everyone = np.arange(len(like))
        pictures, poses = np.asarray(like.part(PRIVATE).rows(everyone)["image"]), like.targets.rows(everyone)["joints"].astype(float)
    return People(
        images=np.concatenate([np.asarray(records.part(PRIVATE).rows(rows)["image"]) for records, rows in parts]),
        joints=np.concatenate([one["joints"] for one in targets]).astype(float),
        subjects=np.concatenate([records.unit_ids("subject")[rows] for records, rows in parts]),
        actions=done,
        action_names=names,
        division=Division(np.arange(split), np.arange(split, total), len(chosen), found.too_few),
        like=pictures,
        like_joints=poses,
        like_part=part,
        skeleton=known.skeleton,
        # Records from a folder are named by its format first.
        format=known.key.split("/")[1] if config.name != "figures" else "figures",
        key="/".join([known.key, asked.key, "" if like is None else like.key, str(len(chosen)), ",".join(names)]),
        head_boxes=np.concatenate([one["head_boxes"] for one in truths]) if all("head_boxes" in one for one in truths) else None,
    )


def _like(config: PictureDataConfig, report: Report | None) -> tuple[PictureRecords | None, str]:
    """Test people; or public ones, where nobody is set apart for tests; or nobody, where everyone is private."""
    for part, load in (("test", lambda: load_picture_test(config, report)), ("public", lambda: load_public_pictures(config, report)[0])):
        try:
            return load(), part
        except HalfmaskError as refused:
            # A part that is not there is no fault here; a picture that cannot be read is.
            if "nobody" not in str(refused):
                raise
    return None, "none"


def _that_count(done: np.ndarray, known: tuple[str, ...], wanted: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    for name in wanted:
        if name not in known:
            raise unknown_name("action", name, known)
    numbers = [known.index(name) for name in wanted] if wanted else list(range(len(known)))
    counted = np.where(np.isin(done, numbers), done, NO_ACTION)
    return counted, tuple(known[number] for number in numbers if (counted == number).any())


@dataclass(frozen=True)
class _Seen:
    looks: Looks
    sight: Sight


class Measuring:
    """Measures one way after the other; what is common to all, how raw pictures look, is found once, and only if it is needed."""

    def __init__(self, people: People, seed: int = 0, folds: int = 4, judge: Judge | None = None):
        self.people, self.seed, self.folds = people, seed, folds
        self.judge = judge or shipped_judge()
        self._raw: _Seen | None = None
        self._like: np.ndarray | None = None

    def key(self, way: Way) -> str:
        """Names a point: found again, it is not measured again."""
        words = (way.key, self.people.key, self.judge.name, f"{self.folds} folds, seed {self.seed}", str(_VERSION))
        return hashlib.sha256(" | ".join(words).encode()).hexdigest()[:24]

    def point(self, way: Way) -> dict[str, Any]:
        """Everything about one way at one strength, for the audit's file."""
        started = time.perf_counter()
        people = self.people
        raw = self._raw = self._raw or self._look(people.images)
        hidden = raw if way.kind == "raw" else self._look(way.hide(people.images, people.joints, self.seed))
        attacks = {"raw": self._attack(raw, hidden), "adapted": self._attack(hidden, hidden)}
        useful = carried = None
        if people.do_something:
            useful = self._useful(hidden, hidden)
            carried = useful if hidden is raw else self._useful(hidden, raw)
        return way.facts() | {
            "key": self.key(way),
            "action": None if useful is None else useful.to_json(),
            "action_on_raw": None if carried is None else carried.to_json(),
            "identity": {name: attack.to_json() for name, attack in attacks.items()},
            "quality": self._quality(hidden.sight),
            "seconds": round(time.perf_counter() - started, 1),
        }

    def _look(self, pictures: np.ndarray) -> _Seen:
        sight = self.judge.look(pictures)
        return _Seen(look_at(pictures, self.people.joints, self.people.skeleton, sight=sight), sight)

    def _useful(self, learnt: _Seen, asked: _Seen) -> Recognition:
        people = self.people
        folds = min(self.folds, people.division.people)
        return action_utility(learnt.looks, people.actions, people.subjects, folds, self.seed, asked.looks)

    def _attack(self, known: _Seen, hidden: _Seen) -> Recognition:
        people = self.people
        return identity_attack(known.looks, hidden.looks, people.subjects, self.seed, division=people.division)

    def _quality(self, sight: Sight) -> dict[str, float]:
        found = {}
        if len(self.people.like):
            if self._like is None:
                self._like = self.judge.look(self.people.like).features
            precise, complete = precision_and_recall(sight.features, self._like)
            found = {
                "frechet_distance": frechet_distance(sight.features, self._like),
                "generated_precision": 100 * precise,
                "generated_recall": 100 * complete,
            }
        if self.people.skeleton.names == JOINT_NAMES:
            found["pose_kept"] = pose_kept(sight, self.people.joints, self.people.head_boxes)
        return {name: round(float(value), 4) for name, value in found.items()}


def audit_tradeoff(
    measuring: Measuring,
    ways: Sequence[Way],
    dataset: str,
    known: Mapping[str, dict[str, Any]] | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda body: None,
    tell: Tell = lambda text: None,
) -> dict[str, Any]:
    """Measure every way that is not known yet; the content of the audit's file.

    Args:
        known: points by their keys, measured before.
        keep: told everything found so far after each point, so that nothing is lost when the rest is stopped.
    """
    points: list[dict[str, Any]] = []
    for number, way in enumerate(ways, 1):
        title = f"{number}/{len(ways)}: {way.family} {way.strength}".rstrip() + ("" if way.seed is None else f" seed {way.seed}")
        before = (known or {}).get(measuring.key(way))
        if before is not None:
            points.append(before | way.facts())
            tell(f"{title} (measured before)")
            continue
        points.append(measuring.point(way))
        tell(f"{title}: {_told(points[-1])}")
        keep(_body(measuring, points, dataset))
    return _body(measuring, points, dataset)


def _body(measuring: Measuring, points: list[dict[str, Any]], dataset: str) -> dict[str, Any]:
    people = measuring.people
    chance = {"identity": 1 / people.division.people}
    if people.do_something:
        chance["utility"] = next(point["action"]["chance"] for point in points)
    return {
        "audit": "tradeoff",
        "dataset": dataset,
        "format": people.format,
        "people": people.division.people,
        "pictures": len(people.images),
        "to_name": len(people.division.test),
        "left_out": people.division.left_out,
        "like": {"part": people.like_part, "pictures": len(people.like)},
        "size": list(people.size),
        "actions": list(people.action_names),
        "folds": measuring.folds,
        "chance": chance,
        "judge": measuring.judge.name,
        "seed": measuring.seed,
        "points": points,
        "confidence": "of runs their mean over seeds ± one standard deviation; of all else 95 % Clopper–Pearson intervals over pictures",
        "cannot_see": list(CANNOT_SEE),
        "not_for_release": None if dataset == "figures" else NOT_FOR_RELEASE,
    }


def _told(point: dict[str, Any]) -> str:
    """A point in a line of progress."""
    words = []
    if point["action"] is not None:
        words.append(f"actions {point['action']['accuracy']['value']:.1%} (on raw {point['action_on_raw']['accuracy']['value']:.1%})")
    words.append("identity " + ", ".join(f"{name} {found['accuracy']['value']:.1%}" for name, found in point["identity"].items()))
    if "frechet_distance" in point["quality"]:
        words.append(f"distance {point['quality']['frechet_distance']:.2f}")
    return f"{'; '.join(words)} ({point['seconds']:.0f} s)"
