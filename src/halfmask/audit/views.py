"""What a view gives away, measured: who it is, what the image was, and how much of the pose is left.

An attacker has labelled views of the same people from other days, and their poses, which are public wherever views are, and learns to
name them (`recognition`); another has pairs of images and views of other people and learns to undo the view. Both see pictures at a quarter
of the crop's resolution, which loses nothing of a strong view and some of a weak one: the numbers are a lower bound on what could be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from halfmask.audit.likeness import psnr, ssim
from halfmask.audit.looks import look_at
from halfmask.audit.membership import NOT_FOR_RELEASE
from halfmask.audit.networks import fit_restorer, restored
from halfmask.audit.recognition import fit as fit_recogniser
from halfmask.audit.separation import share
from halfmask.audit.shadow import train_shadow
from halfmask.data.figures_records import figures_records
from halfmask.data.pose_records import PoseRecords
from halfmask.data.records import VIEW
from halfmask.data.viewing import with_view
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import build_config
from halfmask.views import make_view

SMALL = (64, 48)
# As many pixels of a crop are one of these.
QUARTER = 4
CANNOT_SEE = (
    "better attackers: larger networks, more pictures of each person, higher resolution, video",
    "your people: `figures` are drawn, and what tells them apart (clothes, hair, build) is not what tells yours apart",
    "what the published labels give away without any view: the build of a body shows in its keypoints",
)
CANNOT_SEE_OF_YOURS = (
    CANNOT_SEE[0],
    "how much of the pose is left in a view: a rehearsal (--set rehearsal=true) tells that, and costs nothing",
    "whether the pictures to be named are of other days: where they are of the same film as those to learn from, anybody is found",
    CANNOT_SEE[2],
)
Options = dict[str, float | int]
# From nearly everything to nothing; the blur of 25×25, σ = 10 is the one customary for these methods.
LADDER: dict[str, tuple[Options, ...]] = {
    "blur": (
        {"kernel": 9, "sigma": 3.0},
        {"kernel": 25, "sigma": 10.0},
        {"kernel": 49, "sigma": 20.0},
        {"kernel": 97, "sigma": 40.0},
    ),
    "downsample": (
        {"cell": 8, "levels": 32},
        {"cell": 16, "levels": 16},
        {"cell": 32, "levels": 8},
        {"cell": 64, "levels": 4},
    ),
    "constant": ({},),
}


@dataclass(frozen=True)
class Effort:
    """How much work an attacker puts in."""

    crops: int = 1000
    subjects: int = 60
    restorer_steps: int = 200
    pose_people: int = 200
    pose_steps: int = 40


QUICK = Effort(crops=150, subjects=10, restorer_steps=20, pose_people=0, pose_steps=0)


def audit_views(
    names: Sequence[str] | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
    runs: int = 1,
    own: PoseRecords | None = None,
    dataset: str = "figures",
) -> dict[str, Any]:
    """Attack every strength of the named views (all by default); the content of the audit's file.

    Args:
        runs: how often to train each network, from `seed` and the seeds after it, on the same people.
        own: people to attack in the place of drawn ones, from `halfmask.audit.own_people`: what is found is about them, and is not for
            release.
        dataset: what they are called.
    """
    effort = effort or Effort()
    if own is not None:
        effort = replace(effort, pose_steps=0)
    seeds = range(seed, seed + runs)
    for name in names or ():
        make_view(name, {})
    chosen = [(name, options) for name in names or LADDER for options in LADDER.get(name, ({},))]
    tell("drawing people" if own is None else "choosing people")
    people = figures_records("private", effort.crops, seed) if own is None else own
    album = _Album.of(people, effort.subjects)
    rows = [_row("none (the image itself)", "", people.images, album, people, effort, seeds, tell)]
    for name, options in chosen:
        view = make_view(name, dict(options))
        shown = with_view(people, view).views
        assert shown is not None
        rows.append(_row(name, ", ".join(f"{k} {v:g}" for k, v in options.items()), shown, album, people, effort, seeds, tell))
        if effort.pose_steps:
            scores = [_pose(name, dict(options), effort, seed, one) for one in seeds]
            rows[-1]["pose"] = _mean([{"pckh@0.5": score} for score in scores], 2) | {"people": 100}
    return {
        "audit": "view",
        "dataset": dataset,
        "quick": effort == QUICK,
        "not_for_release": None if own is None else NOT_FOR_RELEASE,
        "subjects": int(album.who.max()) + 1,
        "pictures_to_learn_from": len(album.learn),
        "pictures_to_name": len(album.test),
        "chance": round(1 / (int(album.who.max()) + 1), 5),
        "seed": seed,
        "runs": runs,
        "rows": rows,
        "confidence": "95 % Clopper–Pearson intervals over the pictures to be named"
        + (f", at the mean of {runs} trainings of each network" if runs > 1 else "; one training of each network"),
        "cannot_see": list(CANNOT_SEE if own is None else CANNOT_SEE_OF_YOURS),
    }


@dataclass(frozen=True)
class _Album:
    """Pictures of the same people on different days: some to learn from, two of each person to be named."""

    learn: np.ndarray
    test: np.ndarray
    who: np.ndarray
    others: np.ndarray

    @classmethod
    def of(cls, people: PoseRecords, subjects: int) -> _Album:
        assert people.subjects is not None
        ids, counts = np.unique(people.subjects, return_counts=True)
        kept = ids[np.argsort(-counts, kind="stable")][:subjects]
        who = np.full(len(people), -1)
        learn, test = [], []
        for number, subject in enumerate(np.sort(kept)):
            mine = np.flatnonzero(people.subjects == subject)
            who[mine] = number
            test.append(mine[-2:])
            learn.append(mine[:-2])
        return cls(np.concatenate(learn), np.concatenate(test), who, np.flatnonzero(who < 0))


def _row(
    name: str,
    strength: str,
    shown: np.ndarray,
    album: _Album,
    people: PoseRecords,
    effort: Effort,
    seeds: range,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    tell(f"attacking {name} {strength}".rstrip())
    small = _small(shown)
    poses = np.concatenate([(people.joints + 0.5) / QUARTER - 0.5, people.labelled[..., None]], 2)
    known, asked = (look_at(small[rows], poses[rows]).knowing_poses() for rows in (album.learn, album.test))
    found = []
    for seed in seeds:
        recogniser = fit_recogniser(known, album.who[album.learn], None, seed)
        found.append(int((recogniser.names(asked) == album.who[album.test]).sum()))
    total = len(album.test)
    identity = share(float(np.mean(found)), total).to_json() | _spread([{"value": right / total} for right in found], 5)
    row: dict[str, Any] = {"view": name, "strength": strength, "identity": identity}
    if strength or name == "constant":
        row |= _undone(small, _small(people.images), album, effort, seeds)
    return row


def _undone(small: np.ndarray, truth: np.ndarray, album: _Album, effort: Effort, seeds: range) -> dict[str, Any]:
    """Learn to undo the view on some people, and judge on others; the view itself is what has to be beaten."""
    judged = album.others[:100] if len(album.others) else album.test

    def likeness(found: np.ndarray) -> dict[str, float]:
        pairs = [(a.transpose(1, 2, 0), truth[i].transpose(1, 2, 0)) for a, i in zip(found, judged, strict=True)]
        scores = [(min(99.0, psnr(a, b)), ssim(np.ascontiguousarray(a), np.ascontiguousarray(b))) for a, b in pairs]
        return {"psnr": float(np.mean([s[0] for s in scores])), "ssim": float(np.mean([s[1] for s in scores]))}

    networks = (fit_restorer(small[album.learn], truth[album.learn], effort.restorer_steps, seed) for seed in seeds)
    guesses = [likeness(restored(network, small[judged])) for network in networks]
    return {"view_itself": _mean([likeness(small[judged])], 4), "restored": _mean(guesses, 4)}


def _mean(found: list[dict[str, float]], digits: int) -> dict[str, Any]:
    """The mean of each number over repetitions, with their spread if there are several."""
    means: dict[str, Any] = {name: round(float(np.mean([one[name] for one in found])), digits) for name in found[0]}
    return means | _spread(found, digits)


def _spread(found: list[dict[str, float]], digits: int) -> dict[str, Any]:
    """The standard deviation of each number over repetitions, and the numbers; nothing where there is only one."""
    if len(found) < 2:
        return {}
    deviations = {name: round(float(np.std([one[name] for one in found], ddof=1)), digits) for name in found[0]}
    return {"spread": deviations, "each": [{name: round(value, digits) for name, value in one.items()} for one in found]}


def _pose(name: str, options: Options, effort: Effort, people: int, seed: int) -> float:
    """What of the pose is left: PCKh on views of test people, of the released model after a short training on views alone."""
    recipe = {
        "method": "public-only",
        "strategy": "top",
        "batch": 50,
        "epochs": effort.pose_steps * 50 / effort.pose_people,
        "seed": seed,
        "view": {"name": name, "options": options},
        "public": {"raw_share": 0.0},
        "optimiser": {"learning_rate": 0.03},
    }
    config = build_config(recipe, {})
    model = train_shadow(config, figures_records("private", effort.pose_people, people), None)
    judged = with_view(figures_records("test", 100, people), make_view(name, options))
    scores = PoseTask(config).score(model, judged, VIEW, flip_test=False)
    return float(scores.metrics["pckh@0.5"])


def _small(images: np.ndarray) -> np.ndarray:
    """A quarter of the resolution, by area."""
    return np.stack(
        [
            cv2.resize(np.ascontiguousarray(i.transpose(1, 2, 0)), SMALL[::-1], interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
            for i in images
        ]
    )
