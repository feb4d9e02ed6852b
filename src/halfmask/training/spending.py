"""What a run tells the ledger before it spends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Records
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.privacy.account import RAW, VIEWS, Admission, Publication
from halfmask.privacy.sampling import PoissonSampler
from halfmask.privacy.spends import Spend
from halfmask.tasks.base import Task
from halfmask.training.checkpoint import Standing
from halfmask.training.private import PrivateHalf
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup


def spend_of(setup: Setup, run: str, first: int, steps: int, clip_norm: float, noise_source: str, reads: Sequence[str] = ()) -> Spend:
    """The intent to take some steps.

    Args:
        reads: looks at private data that the mechanism does not cover: a run that has any has no bound.
    """
    config = setup.config
    return Spend(
        run=run,
        method=setup.method.name,
        adjacency=config.adjacency,
        unit=config.unit,
        units=len(setup.units),
        first_step=first,
        last_step=first + steps - 1,
        sampling_rate=setup.sampling_rate,
        noise_multiplier=setup.noise_multiplier,
        clip_norm=clip_norm,
        expected_batch=setup.sampling_rate * len(setup.units),
        noise_source=noise_source if setup.method.private == "noised" else "none",
        visible_batches=setup.visible_batches,
        group_sizes=group_sizes(setup.private, config.unit),
        unprotected="; ".join(reads),
    )


def planned_reads(setup: Setup) -> list[str]:
    """Reads of private data that the mechanism does not cover, as far as a run's settings tell of them."""
    config = setup.config
    reads = list(config.declared_reads)
    if setup.method.private == "exact":
        reads.append("every training step read private records without clipping or noise")
    if setup.method.private == "noised" and config.insecure_seed is not None:
        reads.append("coins and noise came from a seed that is written down: whoever knows it can subtract the noise (insecure_seed)")
    if config.unsafe_diagnostics and setup.method.private != "unread":
        reads.append("private losses and gradient norms were written down (unsafe_diagnostics)")
    return reads


def open_reads(setup: Setup, half: PrivateHalf) -> list[str]:
    """Reads of private data that the mechanism does not cover: each of them voids the promise."""
    reads = planned_reads(setup)
    for part, expected in ((half.mechanism, Mechanism), (half.poisson, PoissonSampler), (half.engine, ClippingEngine)):
        if type(part) is not expected:
            reads.append(f"the steps were taken with {type(part).__name__} in place of {expected.__name__}, whose promise is not known")
    if half.mechanism.expected_batch != half.poisson.expected_batch:
        reads.append("the divisor of the private sum was not the expected batch size")
    return reads


class Payments:
    """What a run pays, ahead of what it takes."""

    def __init__(self, setup: Setup, standing: Standing, progress: Progress):
        self.setup, self.standing, self.progress = setup, standing, progress

    @property
    def _reads_private(self) -> bool:
        return self.setup.method.private != "unread"

    def begin(self, half: PrivateHalf) -> None:
        """Have the whole plan admitted before the first step, not refused when the budget runs out in the middle."""
        self.setup.group.from_root(lambda: self._begin(half))

    def _begin(self, half: PrivateHalf) -> None:
        setup, run = self.setup, self.standing.run
        if self.standing.paid and setup.account.ledger.reserved(run) >= setup.steps:
            return
        pays = self._reads_private and not setup.config.rehearsal
        begin_run(setup, self._spend(0, setup.steps, half) if pays else None, self.progress)
        declared = "; ".join(setup.config.declared_reads)
        if declared and not pays:
            # No step of such a run carries them into the ledger.
            setup.account.record_read(f"{run} (declared)", declared)

    def ahead(self, steps: int, half: PrivateHalf) -> None:
        """Write the cost of the next steps down before the first of them draws a batch: root does, and nobody tosses a coin before."""
        if not self._reads_private:
            return
        paid = self.standing.paid + steps

        def pay() -> None:
            if not self.setup.config.rehearsal:
                self.setup.account.pay(self._spend(self.standing.paid, steps, half))
            # Here, and not when all have heard of it: of those nobody may be left, and what is on record is certified.
            self.standing.paid = paid

        self.setup.group.from_root(pay)
        self.standing.paid = paid

    def _spend(self, first: int, steps: int, half: PrivateHalf) -> Spend:
        setup, mechanism = self.setup, half.mechanism
        return spend_of(setup, self.standing.run, first, steps, mechanism.clip_norm, mechanism.noise.source, open_reads(setup, half))


def check_admission(setup: Setup) -> Admission | None:
    """Refuse a run that no budget admits before its folder is made; `begin_run` asks again, under the lock.

    Returns:
        What would be left of budgets, and who judges so; None for a run that reads nothing private.
    """
    config = setup.config
    if setup.method.private == "unread" or config.rehearsal:
        return None
    budget = None if config.budget is None else (config.budget, config.delta)
    plan = spend_of(setup, "", 0, setup.steps, config.clip_norm, "none", planned_reads(setup))
    return setup.account.consider(plan, budget, config.accountant)


def begin_run(setup: Setup, plan: Spend | None, progress: Progress) -> None:
    """Have a run admitted and its plan reserved; say what that leaves of a budget.

    Args:
        plan: all steps of the run; None for one that reads nothing private.
    """
    config, account = setup.config, setup.account
    budget = None if config.budget is None or config.rehearsal else (config.budget, config.delta)
    admission = account.begin(plan, budget, config.accountant, publications_of(setup))
    if admission.left is not None:
        progress.message(f"of the dataset's budget ε = {admission.left:.4g} will be left after this run, judged by {admission.judge}")
    holds = min((epsilon for epsilon, _ in account.ledger.budgets()), default=None)
    if budget is not None and holds is not None and holds < budget[0]:
        progress.warn(
            f"the budget of ε = {holds:g} that was set before holds, not {budget[0]:g}: raise it with 'halfmask ledger raise-budget'"
        )


def staying(task: Task) -> str:
    """What a task takes to be public of every record under any method, for the ledger."""
    return f"of every record: {task.stays}"


def publications_of(setup: Setup) -> list[Publication]:
    """What a run takes to be public of its people: it is written down before it is used."""
    config, found = setup.config, []
    if setup.method.view:
        found.append(Publication(VIEWS, f"ψ of every record: {setup.view.describe()}; and the labels: {setup.task.labels}"))
    elif setup.task.stays:
        found.append(Publication(VIEWS, staying(setup.task)))
    # In a rehearsal it is views that span the subspace: nobody's image becomes public by it.
    if setup.method.projected and config.subspace.source == "private" and setup.basis is not None and not config.rehearsal:
        hashes = tuple(sorted({row.tobytes().hex() for row in fingerprints_of(setup.basis).exact}))
        found.append(Publication(RAW, f"{len(setup.basis)} whole records, given up to span a subspace", hashes))
    return found


def group_sizes(private: Records, unit: str) -> dict[str, int]:
    """For each other kind of unit in which every unit lies whole: the most units that one of those holds."""
    known = {name: private.unit_ids(name) for name in private.unit_names()}
    own, sizes = known.pop(unit), {}
    for name, ids in known.items():
        pairs = np.unique(np.stack([own, ids]), axis=1)
        if pairs.shape[1] == len(np.unique(own)):
            sizes[name] = int(np.unique(pairs[1], return_counts=True)[1].max())
    return sizes


def name_run(setup: Setup, run: str, folder: Path) -> None:
    """Have the ledger know a run by its dataset's name and its folder, if it reads anybody: `halfmask ledger show` tells them."""
    if setup.method.private != "unread" and not setup.config.rehearsal:
        setup.account.name_run(run, setup.data.name, str(folder.resolve()))
