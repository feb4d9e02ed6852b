"""Does a released network know who was in its training set? An attack by naming people from its features.

Every network that looks at faces tells people apart somewhat, also people whom it never saw; that is no memory. Memory would show as a
difference of differences: members named better than strangers by the trained network, beyond what its public start does. People are named
by the nearest neighbour: of each person some photographs are known, and the others are to be named, among as many people of either group,
so that chance is the same for both.

The audit reads private people without noise. What it finds is for the data holder; it does not go out with the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from halfmask.audit.membership import NOT_FOR_RELEASE, people_of
from halfmask.audit.separation import Measured
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.tasks.base import Task
from halfmask.training.runs import TrainedRun

CANNOT_SEE = (
    "a stronger attacker: one who trains a recogniser on the features names more people, of both groups",
    "what of a person is remembered without telling them from others",
    "people with a single photograph: there is nothing to know them by",
)
# Of each person's photographs every third is to be named.
_EVERY = 3
_DRAWS = 2000
Tell = Callable[[str], None]


def audit_identity(run: TrainedRun, seed: int = 0, tell: Tell = lambda text: None) -> dict[str, Any]:
    """Name members and strangers by the features of a run's network and of its public start; the content of the audit's file."""
    config = run.config
    members, strangers, public = people_of(config, tell)
    for records, who in ((members, "private"), (strangers, "test")):
        if "subject" not in records.unit_names():
            raise HalfmaskError(f"the {who} part of this dataset does not say who is who: naming people needs subject ids")
    # What a network begins with that no checkpoint gives is drawn by the run's seed, as it was then.
    torch.manual_seed(config.seed)
    start = run.task.build(Datasets(members, public, strangers, config.data.name, fingerprints_of(members))).to(run.device).eval()
    rng = np.random.default_rng(seed)
    photographs = {"members": _photographs(run.task, members), "strangers": _photographs(run.task, strangers)}
    people = min(len(np.unique(found[1])) for found in photographs.values())
    if people < 5:
        raise HalfmaskError(f"{people} people with several photographs in the smaller group: expected at least 5, to tell them apart")
    chosen = {
        group: (rows, subjects, np.sort(rng.permutation(np.unique(subjects))[:people])) for group, (rows, subjects) in photographs.items()
    }
    results = []
    for name, network in (("initial weights (saw nobody)", start), (f"this run: {config.method}", run.model)):
        tell(f"naming people by the features of {name}")
        rates = {}
        for group, records in (("members", members), ("strangers", strangers)):
            rates[group] = _named(run.task, network, records, *chosen[group], run.device)
        results.append((name, rates))
    return {
        "audit": "identity",
        "run": run.folder.name,
        "dataset": config.data.name,
        "method": config.method,
        "epsilon_claimed": None if method_named(config.method).private != "noised" else config.epsilon,
        "delta": config.delta,
        "people": people,
        "chance": 1 / people,
        "seed": seed,
        "results": [{"model": name} | {group: _interval(rates[group], seed).to_json() for group in rates} for name, rates in results],
        "memory": _memory([rates for _, rates in results], seed).to_json(),
        "confidence": "95 % intervals by bootstrap over people; one training",
        "cannot_see": list(CANNOT_SEE),
        "not_for_release": None if config.data.name == "figures" else NOT_FOR_RELEASE,
    }


def _photographs(task: Task, records: Records) -> tuple[list[np.ndarray], np.ndarray]:
    """The records of each photograph that show somebody, and who it is; people with fewer photographs than can be divided are left out."""
    shown = np.flatnonzero(task.shows_somebody(records))
    images, subjects = records.unit_ids("image")[shown], records.unit_ids("subject")[shown]
    names, place = np.unique(images, return_inverse=True)
    rows = [shown[place == number] for number in range(len(names))]
    owners = np.array([subjects[np.flatnonzero(place == number)[0]] for number in range(len(names))])
    enough = np.isin(owners, [one for one in np.unique(owners) if (owners == one).sum() >= _EVERY])
    return [row for row, kept in zip(rows, enough, strict=True) if kept], owners[enough]


@torch.no_grad()
def _named(
    task: Task,
    network: nn.Module,
    records: Records,
    rows: list[np.ndarray],
    subjects: np.ndarray,
    people: np.ndarray,
    device: torch.device,
) -> np.ndarray:
    """Of each person, the share of photographs to be named that were named right."""
    kept = [place for place, subject in enumerate(subjects) if subject in set(people.tolist())]
    seen = [task.features(network, records.batch(rows[place], PRIVATE, device)).float().mean(0).cpu().numpy() for place in kept]
    vectors, owners = np.stack(seen), subjects[kept]
    vectors = (vectors - vectors.mean(0)) / (vectors.std(0) + 1e-6)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
    turn = np.empty(len(owners), int)
    for person in people:
        mine = np.flatnonzero(owners == person)
        turn[mine] = np.arange(len(mine))
    asked = turn % _EVERY == _EVERY - 1
    nearest = owners[~asked][np.argmax(vectors[asked] @ vectors[~asked].T, axis=1)]
    right = nearest == owners[asked]
    return np.array([right[owners[asked] == person].mean() for person in people])


def _interval(rates: np.ndarray, seed: int) -> Measured:
    rng = np.random.default_rng(seed)
    draws = [rng.choice(rates, len(rates)).mean() for _ in range(_DRAWS)]
    return Measured(float(rates.mean()), *(float(edge) for edge in np.quantile(draws, (0.025, 0.975))))


def _memory(results: list[dict[str, np.ndarray]], seed: int) -> Measured:
    """How much better members are named than strangers, beyond what the public start does; people are drawn as whole people."""
    gained = {group: results[1][group] - results[0][group] for group in ("members", "strangers")}
    rng = np.random.default_rng(seed)
    draws = [
        rng.choice(gained["members"], len(gained["members"])).mean() - rng.choice(gained["strangers"], len(gained["strangers"])).mean()
        for _ in range(_DRAWS)
    ]
    value = gained["members"].mean() - gained["strangers"].mean()
    return Measured(float(value), *(float(edge) for edge in np.quantile(draws, (0.025, 0.975))))
