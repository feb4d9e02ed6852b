"""Who does the runs of a comparison, and how they are watched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.training.sweep import PlannedRun
    from halfmask.training.sweep_jobs import Crew, Outcome


def crew_for(out: Path, workers: int | None, ray: str | None, threads: int | None, gpus: float | None) -> Crew | None:
    """Who does the work; None for this process, one run after the other."""
    if ray is not None:
        from halfmask.training.sweep_ray import RayCrew

        return RayCrew(ray, out, workers, threads, gpus)
    if gpus is not None:
        raise HalfmaskError("--gpus is what a run asks Ray for: add --ray, or leave it out (with --workers, GPUs are shared out)")
    if workers is None or workers == 1:
        return None
    from halfmask.training.sweep_workers import LocalWorkers

    return LocalWorkers(workers, threads)


def carry_out_runs(planned: Sequence[PlannedRun], crew: Crew | None) -> list[Outcome]:
    """Do what is left of every run, and show how they come on."""
    from halfmask.cli.boards import Bars, board_for
    from halfmask.cli.console import TerminalProgress
    from halfmask.training.sweep_jobs import Here, carry_out

    if crew is None:
        with TerminalProgress() as progress:
            return carry_out(planned, Here(), Bars(progress))
    with board_for(len(planned)) as board:
        return carry_out(planned, crew, board)


def absent(planned: Sequence[PlannedRun], outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The runs that are not in the table, and why."""
    from halfmask.training.sweep_jobs import Ending

    pairs = zip(planned, outcomes, strict=True)
    return {run.combination.label: f"{one.ending.value}: {one.words}" for run, one in pairs if one.ending is not Ending.DONE}
