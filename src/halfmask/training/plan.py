"""A run as it would be: everything that can be known of it before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.adjacency import Adjacency
from halfmask.training.config import RunConfig, recipe_names
from halfmask.training.progress import Progress
from halfmask.training.prospects import DOUBTFUL, HOPELESS, suggested_batch
from halfmask.training.setup import Setup, prepare
from halfmask.training.spending import check_admission


@dataclass(frozen=True)
class RunPlan:
    """What `halfmask plan` shows.

    Attributes:
        problems: why the run would be refused.
        facts: names and values, in the order they are shown; empty where the data itself is refused.
        remarks: what was said of the data on the way.
    """

    problems: tuple[str, ...]
    facts: dict[str, Any]
    remarks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"problems": list(self.problems), "remarks": list(self.remarks)} | self.facts

    def lines(self) -> Iterator[tuple[str, str | None]]:
        """Text and style, for people."""
        for name, value in self.facts.items():
            if value is not None:
                shown = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
                yield f"{name.replace('_', ' ')}: {shown}", None
        for remark in self.remarks:
            yield remark, "yellow"
        for problem in self.problems:
            yield f"this run would be refused: {problem}", "bold red"
        if not self.problems:
            yield "nothing stands in its way; nothing was spent", None


class _Listener(Progress):
    """Keeps what preparation says, and shows how far it is."""

    def __init__(self, shown: Progress):
        self.shown, self.heard = shown, list[str]()

    def message(self, text: str) -> None:
        self.heard.append(text)

    def warn(self, text: str) -> None:
        self.heard.append(text)

    def stage(self, name: str, done: int, total: int) -> None:
        self.shown.stage(name, done, total)


def plan_run(config: RunConfig, progress: Progress) -> RunPlan:
    """Look at the data, the noise and the account; train nothing, spend nothing, write nothing but caches."""
    listener = _Listener(progress)
    try:
        setup = prepare(config, listener, planning=True)
    except HalfmaskError as error:
        return RunPlan((str(error),), {}, tuple(listener.heard))
    problems, facts = [], _facts(setup)
    if setup.method.private == "noised":
        prospect = setup.prospect
        facts |= {"signal_at_best": prospect.signal, "signal_in_a_step": prospect.step_signal, "coordinates": prospect.coordinates}
        facts["suggested_batch"] = suggested_batch(len(setup.units), config.epochs, config.batch)
        if prospect.signal < HOPELESS and not config.even_so:
            problems.append(f"{prospect.words()}; {prospect.advice()}")
        elif prospect.signal < DOUBTFUL:
            listener.warn(f"this is hardly enough: {prospect.words()}; {prospect.advice()}")
        facts["suggested_coordinates"] = prospect.affordable if prospect.signal < DOUBTFUL else None
    facts["suggested_recipe"] = _recipe(setup)
    try:
        admission = check_admission(setup)
        if admission is not None:
            facts |= {"budget_left_after": admission.left, "judged_by": admission.judge}
    except HalfmaskError as error:
        problems.append(str(error))
    return RunPlan(tuple(problems), facts, tuple(listener.heard))


def _recipe(setup: Setup) -> str | None:
    """One of the task's own, if it has any."""
    if setup.config.task == "pose":
        return "pose/best" if len(setup.units) >= 1000 and setup.basis is not None else "pose/figures"
    plain = f"{setup.config.task}/figures"
    return plain if plain in recipe_names() else None


def _facts(setup: Setup) -> dict[str, Any]:
    config, account = setup.config, setup.account
    return {
        "dataset": setup.data.name,
        "dataset_fingerprint": account.ledger.dataset,
        "method": setup.method.name,
        "unit": config.unit,
        "units": len(setup.units),
        "private_records": len(setup.private),
        "left_out_because_they_recur_in_another_part": setup.data.recurring,
        "public_records": sum(len(part) for part in (setup.basis, setup.raw_public, setup.watched) if part is not None),
        "test_records": 0 if setup.data.test is None else len(setup.data.test),
        "expected_batch": config.batch,
        "steps": setup.steps,
        "sampling_rate": setup.sampling_rate,
        "epsilon": config.epsilon if setup.method.private == "noised" else None,
        "delta": config.delta,
        "noise_multiplier": setup.noise_multiplier,
        "related_datasets": len(account.related_names),
        "spent_before": account.total(config.delta, Adjacency.parse(config.adjacency)),
    }
