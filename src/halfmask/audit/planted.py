"""People planted in the training set, each by a fair coin: who of them can be found in the released model?

A planted person is a real-looking record with another's targets, as their task says (`Task.mislabelled`): of poses, a crop with another
person's joints. Nobody learns that from anyone else, so whatever of it is in the model was learnt from the one record: about the most that
a record of this kind can leave behind. The recipe is trained anew on its people with half of the planted among them, with its noise and
without, and an attacker who knows everything but the coins scores each of them:

* **loss**: how far training brought the loss of the wrong joints down;
* **weights**: how far the weights moved down the record's own gradient. Clipped or not, each step with the record in it adds to that.
  (White-box: it needs the weights, which are released.)

The half of the planted that each score is surest of are named "in" or "out", and the right answers become a lower bound on ε
(`halfmask.audit.one_run`). Those who are out are so by the zero-out relation: their view and their labels stay where a method takes
them to be public, and only their private part is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from halfmask.audit.membership import NOT_FOR_RELEASE, losses, noise_seed, people_of
from halfmask.audit.one_run import guess, largest_provable
from halfmask.audit.separation import separation
from halfmask.audit.shadow import Shadow, trace_shadow
from halfmask.data.records import Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import method_named
from halfmask.gradients.subspace import gram_matrix
from halfmask.report.overlay import contact_sheet
from halfmask.tasks.base import Task
from halfmask.training.config import RunConfig
from halfmask.training.runs import TrainedRun

# Of all attacks on a model together: a private mechanism is called a liar with at most this probability.
P_VALUE = 0.05
ATTACKS = ("loss", "weights", "weights, noise allowed for")
FEWEST = 40
_SHOWN = 6
# The least ridge: gradients turn during training, which is a noise of its own. And the records and bytes of gradients held at once.
_RIDGE, _AT_ONCE, _MEMORY = 0.01, 8, 1 << 30

CANNOT_SEE = (
    "the model of the run itself: it was trained without the planted, so this is about its recipe, retrained",
    "more than these few guesses can prove: a bound far below the claim is what an honest mechanism gives, and a slightly leaky one too",
    "an attacker who also sees the weights between steps (the audit of the mechanism does), or who plants stranger records than these",
    "what the views or the labels give away, which feature methods take to be public: they are there for those who are out, too",
)


def audit_planted(
    run: TrainedRun,
    count: int,
    seed: int = 0,
    spend: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Plant people, train by the run's recipe, and look for them; the content of the audit's file, and a picture of some if nobody is real.

    Args:
        spend: whether training on real people may be paid for out of their budget. `figures` are nobody and cost nothing.
    """
    config, synthetic = run.config, run.config.data.name == "figures"
    noised = method_named(config.method).private == "noised"
    if count < FEWEST:
        raise HalfmaskError(f"{count} canaries: expected at least {FEWEST}, so that there are enough of them in and out to tell apart")
    if not synthetic:
        _check_real(config, spend, noised)
    members, strangers, public = people_of(config, tell)
    if len(strangers) < count:
        raise HalfmaskError(
            f"{count} canaries and {len(strangers)} test people to make them of: ask for at most {len(strangers)}, or add test people"
        )
    rng = np.random.default_rng(seed)
    planted = run.task.mislabelled(strangers, members, rng.permutation(len(strangers))[:count])
    present = rng.random(count) < 0.5
    everyone = members.joined(planted)
    out = len(members) + np.flatnonzero(~present)
    results = []
    if noised:
        tell(f"training {config.method} with {present.sum()} of {count} planted people")
        chosen = replace(config, insecure_seed=noise_seed(seed, 0) if synthetic else None)
        shadow = trace_shadow(chosen, everyone, public, absent=out, paid=not synthetic)
        results.append(_result(run.task, config.method, config.epsilon, shadow, planted, present, config.delta, seed))
    if synthetic:
        tell("training the same without privacy")
        shadow = trace_shadow(replace(config, method="non-private"), everyone.take(np.setdiff1d(np.arange(len(everyone)), out)), public)
        results.append(_result(run.task, "non-private", None, shadow, planted, present, config.delta, seed))
    made = _guesses(count)
    ceiling = largest_provable(count, made, config.delta, P_VALUE / len(ATTACKS))
    too_high = [f"an excess over the claim of {config.epsilon:g}: {made} guesses prove no more than {ceiling:.2f}"]
    body = {
        "audit": "planted",
        "run": run.folder.name,
        "dataset": config.data.name,
        "method": config.method,
        "epsilon_claimed": config.epsilon if noised else None,
        "delta": config.delta,
        "members": len(members),
        "planted": count,
        "planted_are": run.task.planted,
        "present": int(present.sum()),
        "guesses": made,
        "p_value": P_VALUE,
        "largest_provable": round(ceiling, 3),
        "seed": seed,
        "results": results,
        "passed": all(result["withstood"] for result in results),
        "confidence": f"a bound above the true ε has a probability of at most {P_VALUE:g}, over coins and noise, for all attacks on a "
        "model together; AUC with DeLong's 95 % interval over the planted; one training of each kind",
        "cannot_see": [*CANNOT_SEE, *(too_high if noised and config.epsilon > ceiling else [])],
        "not_for_release": None if synthetic else NOT_FOR_RELEASE,
    }
    return body, picture_of(run.task, planted, present) if synthetic else None


def scores(task: Task, shadow: Shadow, planted: Records) -> dict[str, np.ndarray]:
    """For each attack how strongly each of the planted seems to be in the model."""
    return {"loss": losses(task, shadow.initial, planted) - losses(task, shadow.model, planted)} | along_gradients(task, shadow, planted)


def along_gradients(task: Task, shadow: Shadow, planted: Records) -> dict[str, np.ndarray]:
    """How much of each record's own gradient, as it was at the beginning, is in the way that the weights went.

    People's gradients resemble each other, so that whoever is out is answered for by those who are in. The attacker knows the gradients of
    all planted and solves for the share of each at once, which takes the likeness out. They do so twice: as if there were no noise, which
    finds noise that is missing, and by a ridge regression for the noise that is declared.
    """
    engine = ClippingEngine(shadow.initial.eval())
    after = dict(shadow.model.named_parameters())
    with torch.no_grad():
        way = torch.cat([(before - after[name]).flatten() for name, before in engine.parameters.items()])
    everyone = planted.batch(np.arange(len(planted)))
    gram, found = torch.zeros(len(planted), len(planted), dtype=torch.float64), torch.zeros(len(planted), dtype=torch.float64)
    # Some columns of all gradients at a time, within the memory allowed.
    at_once = max(1, min(engine.size, _MEMORY // (4 * len(planted))))
    for start in range(0, engine.size, at_once):
        columns = slice(start, min(start + at_once, engine.size))
        gradients = engine.per_record_gradients(task.loss, everyone, _AT_ONCE, columns=columns)
        gram += gram_matrix(gradients)
        found += (gradients @ way[columns]).double()
    lengths = gram.diagonal().clamp(min=1e-30).sqrt()
    alike, one = gram / lengths[:, None] / lengths, torch.eye(len(planted), dtype=torch.float64)
    ridges = {"weights": _RIDGE} | ({"weights, noise allowed for": shadow.noise} if shadow.noise > _RIDGE else {})
    return {name: torch.linalg.solve(alike + ridge * one, found / lengths).numpy() for name, ridge in ridges.items()}


def picture_of(task: Task, planted: Records, present: np.ndarray) -> np.ndarray | None:
    """Some of the planted with the targets they were given, in and out; None for a task that draws nothing."""
    rows = []
    for state in (True, False):
        pictures = task.pictures(None, planted.take(np.flatnonzero(present == state)[:_SHOWN]))
        if pictures is None:
            return None
        rows.append(pictures)
    return contact_sheet(rows, ["in", "out"], [""] * min(len(rows[0]), len(rows[1])))


def _result(
    task: Task, method: str, claimed: float | None, shadow: Shadow, planted: Records, present: np.ndarray, delta: float, seed: int
) -> dict[str, Any]:
    attacks: dict[str, Any] = {}
    for name, score in scores(task, shadow, planted).items():
        found = separation(score[present], score[~present], seed)
        guesses = guess(score, present, _guesses(len(score)))
        bound = round(guesses.lower_bound(delta, P_VALUE / len(ATTACKS)), 3)
        attacks[name] = found | {"guesses": guesses.made, "right": guesses.right, "lower_bound": bound}
    bound = max(attack["lower_bound"] for attack in attacks.values())
    return {
        "model": method,
        "epsilon_claimed": claimed,
        "steps": shadow.steps,
        "attacks": attacks,
        "lower_bound": bound,
        "withstood": claimed is None or bound <= claimed,
    }


def _guesses(count: int) -> int:
    """Fixed before anything is seen: the quarter that a score is surest are in, and the quarter that it is surest are out."""
    return 2 * (count // 4)


def _check_real(config: RunConfig, spend: bool, noised: bool) -> None:
    """Training on real people again is a read of them, and reads cost."""
    if not noised:
        raise HalfmaskError(
            f"--canaries would train '{config.method}' once more on the people of '{config.data.name}', which no budget covers: "
            "audit a run on 'figures', or one of a private method"
        )
    if not spend:
        raise HalfmaskError(
            f"--canaries trains the recipe once more on the people of '{config.data.name}' and so spends another ε = {config.epsilon:g} of "
            "their budget: audit a run of the same recipe on 'figures' instead, or add --spend to pay for it out of their ledger"
        )
