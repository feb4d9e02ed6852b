"""Who was in the training set? Attacks on a released model.

Members are the private records a run protected; strangers are the test people, drawn from the same distribution. Two attackers:

* **loss**: a member's loss is lower. Needs nothing but the model.
* **likelihood**: how much lower than it should be. Shadow models, trained by the same recipe on random halves of members and strangers,
  tell what each person's loss is like with and without them (after Carlini et al., 2022, with one variance for all).

Both are run on the public initial weights, too, which saw nobody: what separates there is not memory but chance or a difference of the
groups, and an attack on the model means something only against it. Methods with a view learn from the views and the labels of their
members, which they take to be public; a model that learnt from those alone is attacked beside them, and tells how much of what is found
is theirs.

The audit reads private people without noise. What it finds is for the data holder; it does not go out with the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from halfmask.audit.separation import at_chance, separation
from halfmask.audit.shadow import train_shadow
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.tasks.base import Task, task_named
from halfmask.training.config import RunConfig
from halfmask.training.parts import set_basis_apart
from halfmask.training.runs import TrainedRun

NOT_FOR_RELEASE = (
    "made by reading private people without noise: for the data holder alone. Publishing it, or choosing a model by it, is a read that "
    "no ε covers"
)
CANNOT_SEE = (
    "a stronger attacker: an attack that fails proves nothing, only the certificate's ε does",
    "people whose leak is rare: a rate over all members says little about the most exposed one",
    "what the views or the labels give away, which feature methods take to be public",
)
# The first noise seed of shadow models, far from any that a run has: an attacker does not know the noise of the run.
_NOISE_SEEDS = 1 << 40
Tell = Callable[[str], None]
People = tuple[Records, Records, Records | None]


@torch.no_grad()
def losses(task: Task, model: nn.Module, records: Records, device: torch.device | str = "cpu") -> np.ndarray:
    """The loss of each record under a released model."""
    parts = []
    for start in range(0, len(records), 64):
        batch = records.batch(np.arange(start, min(start + 64, len(records))), PRIVATE, device)
        parts.append(task.loss(model, batch).cpu().numpy())
    return np.concatenate(parts)


def audit_model(
    run: TrainedRun,
    against: TrainedRun | None = None,
    shadows: int = 4,
    seed: int = 0,
    tell: Tell = lambda text: None,
) -> dict[str, Any]:
    """Attack a run, and beside it a run without privacy; the content of the audit's file.

    Args:
        against: a non-private run of the same recipe; trained on the spot if not given and the run has a promise to compare.
        shadows: how many shadow models to train for each; 0 leaves the likelihood attack out.
    """
    config = run.config
    if shadows and shadows < 2:
        raise HalfmaskError(f"{shadows} shadow model: expected 0, or at least 2 so that people are in some and out of others")
    members, strangers, public = people_of(config, tell)
    targets: list[tuple[str, RunConfig, nn.Module]] = [(f"this run: {config.method}", config, run.model)]
    if against is not None:
        _check_comparable(config, against.config)
        targets.append((f"{against.config.method}, {against.folder.name}", against.config, against.model))
    elif config.method != "non-private":
        plain = replace(config, method="non-private")
        tell("training the same recipe without privacy, to compare")
        targets.append(("non-private, trained for this audit", plain, train_shadow(plain, members, public)))
    if method_named(config.method).view and method_named(config.method).private == "noised":
        only = replace(config, method="public-only")
        tell("training the same recipe on views and labels alone, to compare")
        targets.append(("public-only, trained for this audit", only, train_shadow(only, members, public)))
    # What a network begins with that no checkpoint gives is drawn by the run's seed, as it was then.
    torch.manual_seed(config.seed)
    start = run.task.build(Datasets(members, public, strangers, config.data.name, fingerprints_of(members))).to(run.device).eval()
    results = [_row("initial weights (saw nobody)", _loss_attack(run.task, start, members, strangers, run.device, seed), None)]
    for name, recipe, model in targets:
        tell(f"attacking {name}")
        by_loss = _loss_attack(run.task, model.to(run.device), members, strangers, run.device, seed)
        by_likelihood = None
        if shadows:
            by_likelihood = _likelihood_attack(recipe, model, (members, strangers, public), shadows, seed, tell)
        results.append(_row(name, by_loss, by_likelihood))
    return {
        "audit": "model",
        "run": run.folder.name,
        "dataset": config.data.name,
        "method": config.method,
        "epsilon_claimed": None if method_named(config.method).private != "noised" else config.epsilon,
        "delta": config.delta,
        "shadows": shadows,
        "seed": seed,
        "results": results,
        "at_chance": results[1]["at_chance"],
        "views_alone": next((r["attacks"]["loss"]["auc"] for r in results if r["model"].startswith("public-only")), None),
        "confidence": "95 % intervals: DeLong for AUC, bootstrap over people for rates; one model of each kind, so not over trainings",
        "cannot_see": list(CANNOT_SEE),
        "not_for_release": None if config.data.name == "figures" else NOT_FOR_RELEASE,
    }


def people_of(config: RunConfig, tell: Tell = lambda text: None) -> People:
    """The members a run protected, strangers of the same distribution, and the public."""
    tell("reading the people")
    data = task_named(config.task)(config).load()
    if data.test is None:
        raise HalfmaskError("the dataset has no test people: membership needs strangers to compare with; add records with split 'test'")
    members, _ = set_basis_apart(config, method_named(config.method), data)
    return members, data.test, data.public


def _row(name: str, by_loss: dict[str, Any], by_likelihood: dict[str, Any] | None) -> dict[str, Any]:
    attacks = {"loss": by_loss} | ({"likelihood": by_likelihood} if by_likelihood else {})
    return {"model": name, "attacks": attacks, "at_chance": all(at_chance(attack) for attack in attacks.values())}


def _loss_attack(task: Task, model: nn.Module, members: Records, strangers: Records, device: torch.device, seed: int) -> dict[str, Any]:
    return separation(-losses(task, model, members, device), -losses(task, model, strangers, device), seed)


def _likelihood_attack(config: RunConfig, model: nn.Module, people: People, shadows: int, seed: int, tell: Tell) -> dict[str, Any]:
    """Halves are drawn so that everyone is in half of the shadows; a person's losses in and out are each taken as Gaussian."""
    members, strangers, public = people
    count = min(len(members), len(strangers))
    pool = members.take(np.arange(count)).joined(strangers.take(np.arange(count)))
    rng = np.random.default_rng(seed)
    # In complementary pairs, so that each person is in exactly half of an even number of shadows.
    inside = np.zeros((shadows, 2 * count), bool)
    for shadow in range(0, shadows, 2):
        inside[shadow, rng.permutation(2 * count)[:count]] = True
        if shadow + 1 < shadows:
            inside[shadow + 1] = ~inside[shadow]
    found, task = np.empty((shadows, 2 * count)), task_named(config.task)(config)
    for shadow in range(shadows):
        tell(f"shadow model {shadow + 1} of {shadows} ({config.method})")
        chosen = replace(config, seed=config.seed + 1 + shadow, insecure_seed=noise_seed(seed, 1 + shadow))
        found[shadow] = _signal(losses(task, train_shadow(chosen, pool.take(np.flatnonzero(inside[shadow])), public), pool))
    target = _signal(losses(task, model.cpu(), pool))
    present = np.array([found[inside[:, i], i].mean() if inside[:, i].any() else found[:, i].mean() for i in range(2 * count)])
    absent = np.array([found[~inside[:, i], i].mean() if (~inside[:, i]).any() else found[:, i].mean() for i in range(2 * count)])
    # Few shadows say little about one person's spread: one for all who are in, one for all who are out.
    spread_in = max(1e-6, float(np.sqrt(np.mean((found - present)[inside] ** 2))))
    spread_out = max(1e-6, float(np.sqrt(np.mean((found - absent)[~inside] ** 2))))
    score = 0.5 * ((target - absent) / spread_out) ** 2 - 0.5 * ((target - present) / spread_in) ** 2
    return separation(score[:count], score[count:], seed)


def _signal(loss: np.ndarray) -> np.ndarray:
    """Losses are skewed; their logarithm is closer to Gaussian."""
    return -np.log(np.maximum(loss, 1e-9))


def noise_seed(seed: int, number: int) -> int:
    """Noise and coins of a model that an audit trains: repeatable, and other than those of the run and of every other model."""
    return _NOISE_SEEDS + 1000 * seed + number


def _check_comparable(config: RunConfig, other: RunConfig) -> None:
    if other.method != "non-private":
        raise HalfmaskError(f"--against is a run of method '{other.method}': expected a non-private one, to show what noise prevents")
    if other.task != config.task:
        raise HalfmaskError(f"--against is a run of the task '{other.task}', and the one audited of '{config.task}': train the same recipe")
    # The size of an image is the model's setting, where records are images that are cut to it.
    if (other.data, getattr(other.model, "input_size", None)) != (config.data, getattr(config.model, "input_size", None)):
        raise HalfmaskError("--against was trained on other data or other image sizes: train it with the same recipe")
