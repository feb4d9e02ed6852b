"""The runs of a sweep as work to be handed out: one attempt at a run, what is heard of it, and how it ended.

Who does the work is a `Crew`: this process (`Here`), processes beside it (`sweep_workers`), or a Ray cluster (`sweep_ray`). All of
them do `attempt`, and `carry_out` treats them alike: a run that dies is tried once more and goes on from its checkpoint, a run that is
refused is reported, and neither stops the others.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from halfmask.errors import HalfmaskError, OverBudget
from halfmask.privacy.guest import Unreachable
from halfmask.training import sweep
from halfmask.training.progress import Progress
from halfmask.training.sweep import PlannedRun
from halfmask.writing import is_about_writing, not_written

# How often a run is tried where it fails for no reason of its own.
_ATTEMPTS = 2
# Seconds between two reports of one run that say how far it is.
_PACE = 0.25


class Ending(Enum):
    """How an attempt at a run ended. `REFUSED` and `WRONG` would end so again."""

    DONE = "done"
    REFUSED = "refused"
    WRONG = "wrong"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Job:
    """A run of a sweep, its place among the others, and the how many-th attempt this is."""

    number: int
    of: int
    run: PlannedRun
    attempt: int = 1

    @property
    def title(self) -> str:
        """What it is called in a line."""
        return f"run {self.number}/{self.of}: {self.run.combination.label}"


@dataclass(frozen=True)
class News:
    """Something that a run tells of itself: a call of `Progress`, by name. All of it is public."""

    number: int
    call: str
    told: tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended, why, and for a fault of ours where in the code."""

    number: int
    ending: Ending
    words: str = ""
    trace: str = ""


class Telling(Progress):
    """Sends what a run says to whoever listens; how far it is, not more often than anybody can read."""

    def __init__(self, number: int, send: Callable[[News], None]):
        self.number, self.send = number, send
        self._last = -_PACE

    def message(self, text: str) -> None:  # noqa: D102
        self.send(News(self.number, "message", (text,)))

    def warn(self, text: str) -> None:  # noqa: D102
        self.send(News(self.number, "warn", (text,)))

    def stage(self, name: str, done: int, total: int) -> None:  # noqa: D102
        self._now_and_then(News(self.number, "stage", (name, done, total)), done >= total)

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:  # noqa: D102
        self._now_and_then(News(self.number, "step", (step, total, public_loss, epsilon)), step >= total)

    def _now_and_then(self, news: News, last: bool) -> None:
        now = time.monotonic()
        if last or now - self._last >= _PACE:
            self._last = now
            self.send(news)


class Board:
    """Hears what becomes of the runs; says nothing. The command replaces it by a table, or by lines."""

    def warn(self, text: str) -> None:
        """About the sweep as a whole."""

    def started(self, job: Job) -> None:
        """An attempt begins, or waits for a place to begin."""

    def hear(self, news: News) -> None:
        """A run at work tells something."""

    def again(self, job: Job, outcome: Outcome) -> None:
        """An attempt failed, and another will be made."""

    def ended(self, job: Job, outcome: Outcome) -> None:
        """The run is over, one way or another."""


class Crew(ABC):
    """Whoever does the work."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    @property
    def warnings(self) -> list[str]:
        """What the user should know before the first run, once the crew is there."""
        return []

    @property
    @abstractmethod
    def free(self) -> bool:
        """Whether another job can be taken on."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any job has not ended."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Take a job on."""

    @abstractmethod
    def wait(self, hear: Callable[[News], None]) -> list[Outcome]:
        """Work, or look on, for a moment; the jobs that ended in it."""

    def stop(self) -> None:  # noqa: B027
        """Have the runs at work stop as Ctrl-C would: whole, for the steps they took."""


def attempt(job: Job, progress: Progress) -> Outcome:
    """Do what is left of a run. Whatever goes wrong with it is told, not raised, but for Ctrl-C."""
    try:
        sweep.do_run(job.run, job.title, progress)
    except OverBudget as error:
        return Outcome(job.number, Ending.REFUSED, str(error))
    except Unreachable as error:
        return Outcome(job.number, Ending.FAILED, str(error))
    except HalfmaskError as error:
        return Outcome(job.number, Ending.WRONG, str(error))
    except Exception as error:
        if isinstance(error, OSError) and is_about_writing(error):
            return Outcome(job.number, Ending.WRONG, not_written(str(error.filename or "a file"), error))
        return Outcome(job.number, Ending.FAILED, f"{type(error).__name__}: {error}", traceback.format_exc())
    return Outcome(job.number, Ending.DONE)


def carry_out(planned: Sequence[PlannedRun], crew: Crew, board: Board) -> list[Outcome]:
    """Do all runs; returns how each ended, in their order. Ctrl-C lets those at work stop in good order first."""
    jobs = {number: Job(number, len(planned), run) for number, run in enumerate(planned, 1)}
    waiting, outcomes = deque(jobs.values()), dict[int, Outcome]()
    with crew:
        for line in crew.warnings:
            board.warn(line)
        try:
            while waiting or crew.busy:
                while waiting and crew.free:
                    job = waiting.popleft()
                    board.started(job)
                    crew.start(job)
                for outcome in crew.wait(board.hear):
                    job = jobs[outcome.number]
                    if outcome.ending is Ending.FAILED and job.attempt < _ATTEMPTS:
                        board.again(job, outcome)
                        # Behind the others: whatever was in its way may be gone by then.
                        jobs[job.number] = replace(job, attempt=job.attempt + 1)
                        waiting.append(jobs[job.number])
                        continue
                    outcomes[job.number] = outcome
                    board.ended(job, outcome)
        except KeyboardInterrupt:
            crew.stop()
            while crew.busy:
                for outcome in crew.wait(board.hear):
                    board.ended(jobs[outcome.number], outcome)
            raise
    return [outcomes[number] for number in jobs]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """The exit code of a sweep: 0 if all runs are done, 1 if one failed for a fault of ours, 2 if the user can mend what is left."""
    endings = {outcome.ending for outcome in outcomes}
    return 1 if Ending.FAILED in endings else 2 if endings - {Ending.DONE} else 0


class Here(Crew):
    """This process: one run after the other."""

    def __init__(self) -> None:
        self._job: Job | None = None

    @property
    def free(self) -> bool:  # noqa: D102
        return self._job is None

    @property
    def busy(self) -> bool:  # noqa: D102
        return self._job is not None

    def start(self, job: Job) -> None:  # noqa: D102
        self._job = job

    def wait(self, hear: Callable[[News], None]) -> list[Outcome]:  # noqa: D102
        job, self._job = self._job, None
        return [] if job is None else [attempt(job, _Direct(job.number, hear))]


class _Direct(Telling):
    """Nobody is between: everything is heard."""

    def _now_and_then(self, news: News, last: bool) -> None:
        self.send(news)


def marker(out: Path) -> Path:
    """A file by which a worker knows that it sees the folder of the sweep, and not one of its own by that name."""
    return out / "runs" / ".sweep"
