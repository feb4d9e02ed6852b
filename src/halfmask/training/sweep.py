"""Many runs for one table: which there are, which are done, and what came out.

A sweep can be stopped and started again. A run that ended is kept, one that was interrupted goes on from its
checkpoint, and anything else is begun anew; what an abandoned run had spent stays in the ledger.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.privacy.account import account_of
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.spends import total_epsilon
from halfmask.training.config import RunConfig, build_config
from halfmask.training.progress import Progress
from halfmask.training.running import run_training

SWEPT = ("method", "epsilon", "clip_norm", "seed")


class RunState(Enum):
    """What is left to do for one run."""

    DONE = "done"
    CONTINUE = "continue"
    NEW = "new"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Combination:
    """One cell of the grid. ε and clip norm are None for methods that add no noise."""

    method: str
    epsilon: float | None
    clip_norm: float | None
    seed: int

    @property
    def slug(self) -> str:
        """The name of the run's folder."""
        parts = [self.method]
        if self.epsilon is not None and self.clip_norm is not None:
            parts += [f"eps{_shortest(self.epsilon)}", f"clip{_shortest(self.clip_norm)}"]
        return "-".join([*parts, f"seed{self.seed}"])

    @property
    def label(self) -> str:
        """What the run is called in a line of progress."""
        parts = [self.method]
        if self.epsilon is not None and self.clip_norm is not None:
            parts += [f"ε={_shortest(self.epsilon)}", f"C={_shortest(self.clip_norm)}"]
        return " ".join([*parts, f"seed {self.seed}"])


@dataclass(frozen=True)
class PlannedRun:
    """A combination with the settings and the folder of its run."""

    combination: Combination
    config: RunConfig
    folder: Path


def expand(methods: Sequence[str], epsilons: Sequence[float], clip_norms: Sequence[float], seeds: Sequence[int]) -> list[Combination]:
    """Every run of the grid, one seed after the other so that a stopped sweep has whole tables of some seeds.

    Methods without noise know neither ε nor clip norm, so they run once per seed.
    """
    for name, values in (
        ("methods", methods),
        ("epsilons", epsilons),
        ("clip norms", clip_norms),
        ("seeds", seeds),
    ):
        if not values:
            raise HalfmaskError(f"there are no {name} to compare: expected at least one")
        twice = next((value for value in values if list(values).count(value) > 1), None)
        if twice is not None:
            raise HalfmaskError(f"{twice} is given twice among the {name}: expected each once")
    grid: list[Combination] = []
    for seed in seeds:
        for method in methods:
            if method_named(method).private != "noised":
                grid.append(Combination(method, None, None, seed))
                continue
            grid += [Combination(method, epsilon, clip_norm, seed) for epsilon in epsilons for clip_norm in clip_norms]
    return grid


def plan_sweep(recipe: Mapping[str, Any], grid: Sequence[Combination], assignments: list[str], out: Path) -> list[PlannedRun]:
    """Settle the settings of every run, so that a mistake shows before the first of them starts."""
    for assignment in assignments:
        name = assignment.partition("=")[0].strip()
        if name in SWEPT:
            raise HalfmaskError(f"--set {name}=… would override what is compared: use the option of that name")
    planned = []
    for combination in grid:
        flags = {name: getattr(combination, name) for name in SWEPT}
        config = build_config(recipe, flags, assignments)
        planned.append(PlannedRun(combination, config, out / "runs" / combination.slug))
    return planned


def run_state(run: PlannedRun) -> RunState:
    """Look at a run's folder and say what is left to do.

    A run that ended under other settings is refused: to overwrite it would throw away what it paid for.
    """
    folder = run.folder
    if not folder.exists() or not any(folder.iterdir()):
        return RunState.NEW
    settings = folder / "config.yaml"
    if not settings.is_file():
        raise HalfmaskError(f"{folder} holds something that is not a run: choose another --out")
    same = settings.read_text() == run.config.to_yaml()
    if is_done(folder):
        if same:
            return RunState.DONE
        raise HalfmaskError(f"{folder} holds a finished run with other settings: choose another --out")
    if same and (folder / "checkpoint" / "state.pt").is_file():
        return RunState.CONTINUE
    return RunState.ABANDONED


def is_done(folder: Path) -> bool:
    """Whether a run was taken to its planned end.

    An interrupted run also has metrics and a certificate, for the steps it took; the log tells them apart.
    """
    if not all((folder / name).is_file() for name in ("metrics.json", "certificate.json", "log.jsonl")):
        return False
    lines = (folder / "log.jsonl").read_text().splitlines()
    try:
        last = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return False
    return last.get("event") == "end" and last.get("interrupted") is False


def clear(run: PlannedRun) -> None:
    """Remove the folder of an abandoned run, and of no other."""
    if run_state(run) is RunState.ABANDONED:
        shutil.rmtree(run.folder)


def do_run(run: PlannedRun, title: str, progress: Progress) -> None:
    """Do what is left of one run."""
    state = run_state(run)
    if state is RunState.DONE:
        progress.message(f"{title} (done before)")
        return
    progress.message(title + (" (goes on)" if state is RunState.CONTINUE else ""))
    if state is RunState.ABANDONED:
        progress.warn(f"{run.folder} holds a run that cannot be continued; it is begun anew, and what it spent stays spent")
        clear(run)
    run_training(run.config, run.folder, progress, resume=state is RunState.CONTINUE)


def collect(planned: Sequence[PlannedRun], out: Path) -> list[dict[str, Any]]:
    """One row per finished run: what was asked for, what was certified, and every metric."""
    rows = []
    for run in planned:
        if not is_done(run.folder):
            continue
        certificate = read_certificate(run.folder)
        metrics = json.loads((run.folder / "metrics.json").read_text())
        rows.append(
            {name: getattr(run.combination, name) for name in SWEPT}
            | metrics["metrics"]
            | {
                "certified_epsilon": certificate["epsilon"][certificate["adjacency"]],
                "delta": certificate["delta"],
                "adjacency": certificate["adjacency"],
                "noise_multiplier": certificate["noise_multiplier"],
                "sampling_rate": certificate["sampling_rate"],
                "steps": certificate["steps"],
                "noise_source": certificate["noise_source"],
                "optimiser": optimiser_line(run.config),
                "dataset": metrics["dataset"],
                "split": metrics["split"],
                "run": run.folder.relative_to(out).as_posix(),
            }
        )
    return rows


def measured(planned: Sequence[PlannedRun]) -> list[str]:
    """The metrics of the finished runs, in the order in which their task tells them."""
    files = (run.folder / "metrics.json" for run in planned if is_done(run.folder))
    return list(dict.fromkeys(name for path in files for name in json.loads(path.read_text())["metrics"]))


def read_certificate(folder: Path) -> dict[str, Any]:
    """A run's certificate."""
    body: dict[str, Any] = json.loads((folder / "certificate.json").read_text())
    return body


def optimiser_line(config: RunConfig) -> str:
    """The optimiser in words: a comparison without it cannot be judged."""
    chosen = config.optimiser
    parts = [chosen.name, f"learning rate {chosen.learning_rate:g}"]
    if chosen.name == "sgd":
        parts.append(f"momentum {chosen.momentum:g}")
    if chosen.weight_decay:
        parts.append(f"weight decay {chosen.weight_decay:g}")
    return ", ".join([*parts, f"{chosen.schedule} schedule"])


def cost_together(planned: Sequence[PlannedRun]) -> tuple[float, float]:
    """ε of the finished runs of a sweep together, but for those without noise, and of everything ever spent on their people.

    Both are what the ledgers say: with visible batches and looks outside the mechanism, and, for the second, with related datasets.
    """
    certificates = [read_certificate(run.folder) for run in planned if is_done(run.folder)]
    delta, together, ever = planned[0].config.delta, 0.0, 0.0
    for dataset in dict.fromkeys(certificate["dataset_fingerprint"] for certificate in certificates):
        ledger = Ledger(dataset)
        adjacency = Adjacency.parse(planned[0].config.adjacency)
        runs = {
            one["run"] for one in certificates if one["dataset_fingerprint"] == dataset and method_named(one["method"]).private == "noised"
        }
        own = [spend for spend in ledger.spends() if spend.run in runs]
        together = max(together, total_epsilon(own, delta, adjacency))
        account = account_of(ledger)
        ever = max(ever, total_epsilon(ledger.spends(), delta, adjacency) if account is None else account.total(delta, adjacency))
    return together, ever


def remark(planned: Sequence[PlannedRun]) -> str:
    """What a reader of the table must know about the sum of its parts."""
    together, ever = cost_together(planned)
    delta = planned[0].config.delta
    text = "Each certificate is for its run alone. "
    if together:
        text += f"The noised runs of this table together cost ε = {_shown(together)} (δ = {delta:g}). "
    text += f"Everything ever run on this dataset, by its ledger, costs ε = {_shown(ever)}"
    if math.isinf(ever):
        text += ", because some of it has no bound ('halfmask ledger show' says what)"
    return text + ". Choosing the best row looks at all of them, so its price is the total and not its own ε."


def _shown(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "∞"


def _shortest(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
