"""One recogniser for what people do and for who they are, and the two questions that it answers of pictures that hide people.

*Utility*: learnt on hidden pictures of some people, is what others do still recognised in hidden pictures of them? *Identity*: somebody has
pictures of known people, as they were (`raw`) or hidden in the same way (`adapted`, who knows the defence), and is to name the people in
other pictures, which are hidden. Both poses and hiding are public where this is asked, so who names people may know the poses; what people
do must be seen in the picture, since a pose alone says it.

The recogniser has two parts, because the questions differ. What is done shows in shapes, of which there are many pictures each: a kernel
machine over `edges` and `shape`. Who it is shows in colours, of a few pictures each: a linear discriminant over `parts`, which learns from
all people together what changes between pictures of the same one (light, view). What either says is mixed as some held-out pictures of
those it learns from tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax

from halfmask.audit.looks import Looks
from halfmask.audit.separation import Measured, share
from halfmask.errors import HalfmaskError

# The kernel machine: how much it may bend, and how it weighs edges against the network's view.
_RIDGE, _EDGES = 0.1, 0.5
# The discriminant: how much of the spread within people is taken to be the same in every direction.
_SHRINK = 0.5
_SHARPNESS = {"shape": (5.0, 10.0, 20.0), "colour": (0.1, 0.25, 0.5, 1.0)}
_MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
_HELD_OUT = 4
_LEAST_SPREAD = 0.005


class Recogniser:
    """Names the label of a picture; made by `fit`."""

    def __init__(self, shape: _Kernel, colour: _Discriminant, sharpness: tuple[float, float], mix: float):
        self._shape, self._colour, self._sharpness = shape, colour, sharpness
        self.mix = mix
        self.labels = shape.labels

    def log_probabilities(self, looks: Looks) -> np.ndarray:
        """N×K, in the order of `labels`."""
        return _mixed(self._shape.scores(looks), self._colour.scores(looks), self._sharpness, self.mix)

    def names(self, looks: Looks) -> np.ndarray:
        """The likeliest label of each picture."""
        return self.labels[self.log_probabilities(looks).argmax(1)]


def fit(looks: Looks, labels: np.ndarray, groups: np.ndarray | None = None, seed: int = 0) -> Recogniser:
    """Learn labels of pictures.

    Args:
        groups: pictures of one group are held out together when the mix is chosen; without, every fourth of a label is.
        seed: which are held out.
    """
    labels = np.asarray(labels)
    if len(looks) != len(labels) or len(np.unique(labels)) < 2:
        raise HalfmaskError(f"{len(looks)} pictures with {len(np.unique(labels))} labels: expected a label each, and at least two kinds")
    held = _held_out(labels if groups is None else np.asarray(groups), groups is not None, seed)
    # A label that is seen in no other picture cannot be named.
    held &= np.isin(labels, labels[~held])
    sharpness, mix = (10.0, 0.25), 0.5
    if held.any() and len(np.unique(labels[~held])) > 1:
        sharpness, mix = _chosen_mix(looks, labels, held)
    return Recogniser(_Kernel(looks, labels), _Discriminant(looks, labels), sharpness, mix)


@dataclass(frozen=True)
class Recognition:
    """How often pictures were named right.

    Attributes:
        accuracy: from 0 to 1, with its Clopper–Pearson interval over pictures. Pictures of one person are alike, so that the interval is
            rather too narrow than too wide.
        chance: what saying the commonest label always would give.
        classes: how many labels there are to choose from.
        people: how many have a part in it.
        learnt_from, tested_on: pictures; where there are folds, learnt from in all folds together.
        left_out: people with too few pictures.
    """

    accuracy: Measured
    chance: float
    classes: int
    people: int
    learnt_from: int
    tested_on: int
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        """Rounded, for a file."""
        return vars(self) | {"accuracy": self.accuracy.to_json(), "chance": round(self.chance, 5)}


def action_utility(
    looks: Looks, actions: np.ndarray, subjects: np.ndarray, folds: int = 4, seed: int = 0, tested: Looks | None = None
) -> Recognition:
    """How well actions are recognised in hidden pictures of people of whom nothing was seen: `folds` times, whole people left out.

    Args:
        actions: one number each; pictures with a number below 0 do not say what is done and are passed over.
        tested: the same pictures in another form, in which actions are to be recognised: with raw ones, what a recogniser that was
            trained on hidden pictures is worth where people are not hidden.
    """
    tested = looks if tested is None else tested
    if len(tested) != len(looks):
        raise HalfmaskError(f"{len(looks)} pictures to learn from and {len(tested)} in another form: expected as many")
    actions, subjects = np.asarray(actions), np.asarray(subjects)
    known = np.flatnonzero(actions >= 0)
    people = np.unique(subjects[known])
    if len(people) < folds or folds < 2:
        raise HalfmaskError(f"{len(people)} people for {folds} folds: expected at least two folds and as many people, set fewer folds")
    fold_of = dict(zip(np.random.default_rng(seed).permutation(people).tolist(), np.arange(len(people)) % folds, strict=True))
    fold = np.array([fold_of[one] for one in subjects[known].tolist()])
    right = learnt = 0
    for number in range(folds):
        learn, test = known[fold != number], known[fold == number]
        recogniser = fit(looks.take(learn), actions[learn], subjects[learn], seed)
        right += int((recogniser.names(tested.take(test)) == actions[test]).sum())
        learnt += len(learn)
    _, counts = np.unique(actions[known], return_counts=True)
    return Recognition(share(right, len(known)), counts.max() / len(known), len(counts), len(people), learnt, len(known))


@dataclass(frozen=True)
class Division:
    """Of each person's pictures, in their order, those that an attacker learns from and those to be named."""

    learn: np.ndarray
    test: np.ndarray
    people: int
    left_out: int


def divide(subjects: np.ndarray, least: int = 3) -> Division:
    """The last third of each person's pictures is to be named; people with fewer than `least` pictures are left out."""
    learn, test, left_out = [], [], 0
    for subject in np.unique(subjects):
        mine = np.flatnonzero(subjects == subject)
        if len(mine) < max(2, least):
            left_out += 1
            continue
        asked = max(1, len(mine) // 3)
        learn.append(mine[:-asked])
        test.append(mine[-asked:])
    if len(learn) < 2:
        raise HalfmaskError(
            f"{len(learn)} people with {least} pictures or more ({left_out} with fewer): expected at least two to tell apart"
        )
    return Division(np.concatenate(learn), np.concatenate(test), len(learn), left_out)


def identity_attack(
    known: Looks, hidden: Looks, subjects: np.ndarray, seed: int = 0, least: int = 3, division: Division | None = None
) -> Recognition:
    """How many hidden pictures an attacker names who has learnt from other pictures of the same people.

    Args:
        known: what the attacker has of everybody, of which the first two thirds are looked at: raw pictures for the attacker `raw`, hidden
            ones for the one who has `adapted`. Where poses were given, they are known.
        hidden: the same pictures, hidden, of which the last third is looked at.
        division: which pictures are learnt from and which named, where a dataset says so, in the place of those shares.
    """
    if len(known) != len(hidden) or len(known) != len(subjects):
        raise HalfmaskError(f"{len(known)} pictures known, {len(hidden)} hidden and {len(subjects)} subjects: expected as many of each")
    subjects = np.asarray(subjects)
    division = division or divide(subjects, least)
    recogniser = fit(known.knowing_poses().take(division.learn), subjects[division.learn], None, seed)
    right = recogniser.names(hidden.knowing_poses().take(division.test)) == subjects[division.test]
    _, counts = np.unique(subjects[division.test], return_counts=True)
    return Recognition(
        share(int(right.sum()), len(right)),
        counts.max() / len(right),
        division.people,
        division.people,
        len(division.learn),
        len(division.test),
        division.left_out,
    )


class _Kernel:
    """Ridge regression to the labels with a Gaussian kernel over edges and shape, each brought to its own scale."""

    def __init__(self, looks: Looks, labels: np.ndarray):
        self.labels, place = np.unique(labels, return_inverse=True)
        self._blocks = [_Block(block) for block in (looks.edges, looks.shape)]
        kernel = self._kernel(looks)
        wanted = np.eye(len(self.labels))[place]
        self._weights = np.linalg.solve(kernel + _RIDGE * np.eye(len(kernel)), wanted)

    def _kernel(self, looks: Looks) -> np.ndarray:
        edges, shape = (block.kernel(found) for block, found in zip(self._blocks, (looks.edges, looks.shape), strict=True))
        return _EDGES * edges + (1 - _EDGES) * shape

    def scores(self, looks: Looks) -> np.ndarray:
        return self._kernel(looks) @ self._weights


class _Block:
    def __init__(self, block: np.ndarray):
        self._mean, self._spread = block.mean(0, dtype=float), np.maximum(block.std(0, dtype=float), _LEAST_SPREAD)
        self._known = self._scaled(block)
        distances = _squared(self._known, self._known)
        self._scale = max(float(np.median(distances)), 1e-6)

    def _scaled(self, block: np.ndarray) -> np.ndarray:
        return (block - self._mean) / self._spread

    def kernel(self, block: np.ndarray) -> np.ndarray:
        return np.exp(-_squared(self._scaled(block), self._known) / self._scale)


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs."""
    return np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0.0)


class _Discriminant:
    """Linear discriminants over colours of parts: one spread around everybody's own mean."""

    def __init__(self, looks: Looks, labels: np.ndarray):
        names, place = np.unique(labels, return_inverse=True)
        colours = looks.parts.astype(float)
        # Next to a hundredth of a stop nothing is a difference: what is rounded off must not be blown up to one.
        self._mean, self._spread = colours.mean(0), np.maximum(colours.std(0), _LEAST_SPREAD)
        scaled = (colours - self._mean) / self._spread
        means = np.stack([scaled[place == number].mean(0) for number in range(len(names))])
        within = scaled - means[place]
        spread = within.T @ within / max(1, len(scaled) - len(names))
        # Where there is no spread to learn from (a picture each, or one colour for all), all directions count alike.
        flat = float(np.trace(spread)) / len(spread) or 1.0
        self._weights = np.linalg.solve(spread + _SHRINK * flat * np.eye(len(spread)), means.T)
        self._offsets = -0.5 * (means.T * self._weights).sum(0)

    def scores(self, looks: Looks) -> np.ndarray:
        return (looks.parts - self._mean) / self._spread @ self._weights + self._offsets


def _mixed(shape: np.ndarray, colour: np.ndarray, sharpness: tuple[float, float], mix: float) -> np.ndarray:
    logs = mix * log_softmax(sharpness[0] * shape, axis=1) + (1 - mix) * log_softmax(sharpness[1] * colour, axis=1)
    return np.asarray(log_softmax(logs, axis=1))


def _held_out(groups: np.ndarray, whole: bool, seed: int) -> np.ndarray:
    """Which pictures are held out: every fourth group as a whole, or every fourth picture of each group that has two or more."""
    rng = np.random.default_rng(seed)
    names, place = np.unique(groups, return_inverse=True)
    if whole:
        return np.asarray(rng.permutation(len(names))[place] % _HELD_OUT == 0)
    held = np.zeros(len(groups), bool)
    for number in range(len(names)):
        mine = rng.permutation(np.flatnonzero(place == number))
        held[mine[: max(1, len(mine) // _HELD_OUT)]] = len(mine) > 1
    return held


def _chosen_mix(looks: Looks, labels: np.ndarray, held: np.ndarray) -> tuple[tuple[float, float], float]:
    """How sharply to read either part and how to mix them, by the probability of the right labels of pictures held out."""
    rest, asked = looks.take(np.flatnonzero(~held)), looks.take(np.flatnonzero(held))
    shape, colour = _Kernel(rest, labels[~held]), _Discriminant(rest, labels[~held])
    right = np.searchsorted(shape.labels, labels[held])
    of_shape, of_colour = shape.scores(asked), colour.scores(asked)

    def loss(sharpness: tuple[float, float], mix: float) -> float:
        return -float(_mixed(of_shape, of_colour, sharpness, mix)[np.arange(len(right)), right].mean())

    choices = [((a, b), mix) for a in _SHARPNESS["shape"] for b in _SHARPNESS["colour"] for mix in _MIXES]
    return min(choices, key=lambda choice: loss(*choice))
