"""How a sweep is shown while its runs train: bars for one run after the other, a live table for many at once, lines in a log file.

What is shown is what runs tell, and all of that is public: steps, ε so far, the loss on public people.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from halfmask.cli.console import TerminalProgress
from halfmask.training.sweep_jobs import Board, Ending, Job, News, Outcome

_LINES_OF_TRAINING = 4
# Lines of a terminal that the table leaves to other things.
_MARGIN = 8
_STYLES = {"done": "green", "refused": "yellow", "wrong": "red", "failed": "bold red", "stopped": "yellow"}


class Bars(Board):
    """Of the run at work, as `halfmask train` shows it."""

    def __init__(self, progress: TerminalProgress):
        self.progress = progress

    def warn(self, text: str) -> None:  # noqa: D102
        self.progress.warn(text)

    def started(self, job: Job) -> None:  # noqa: D102
        self.progress.next_run()

    def hear(self, news: News) -> None:  # noqa: D102
        getattr(self.progress, news.call)(*news.told)

    def again(self, job: Job, outcome: Outcome) -> None:  # noqa: D102
        self.progress.warn(again_line(job, outcome))

    def ended(self, job: Job, outcome: Outcome) -> None:  # noqa: D102
        tell_ending(self.progress, job, outcome)


@dataclass
class _Row:
    """What is known of a run."""

    job: Job
    state: str = "next"
    step: int = 0
    steps: int = 0
    loss: float | None = None
    epsilon: float | None = None

    def hear(self, news: News) -> None:
        if news.call == "stage":
            name, done, total = news.told
            self.state = f"{name}, {done} of {total}"
        elif news.call == "step":
            self.step, self.steps, self.loss, epsilon = news.told
            # Computed now and then; the last one known is shown until the next.
            self.epsilon = self.epsilon if epsilon is None else epsilon
            self.state = "trains"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        steps = f"{self.step:,} of {self.steps:,}" if self.steps else ""
        epsilon = "" if self.epsilon is None else f"{self.epsilon:.3f}" if self.epsilon < float("inf") else "∞"
        return self.state, steps, epsilon, "" if self.loss is None else f"{self.loss:.3f}"


class Lines(Board):
    """A few lines of each run, for a log file."""

    names_runs = True

    def __init__(self, jobs: int) -> None:
        self.console = Console(stderr=True)
        self.rows: dict[int, _Row] = {}
        self.total = jobs
        self._said: set[str] = set()
        self._parts: dict[int, int] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def message(self, text: str, style: str | None = None) -> None:
        """A line of its own."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line that the user should not miss."""
        self.message(f"warning: {text}", "yellow")

    def started(self, job: Job) -> None:  # noqa: D102
        self.rows[job.number] = _Row(job)

    def hear(self, news: News) -> None:  # noqa: D102
        row = self.rows[news.number]
        row.hear(news)
        if news.call in ("message", "warn"):
            self._pass_on(row.job, news)
        elif news.call == "step":
            self.stepped(row)

    def stepped(self, row: _Row) -> None:
        """A run has taken steps."""
        part = _LINES_OF_TRAINING * row.step // max(row.steps, 1)
        if part > self._parts.get(row.job.number, 0):
            self._parts[row.job.number] = part
            _, steps, epsilon, loss = row.cells
            told = [f"step {steps}", *([f"public loss {loss}"] if loss else []), *([f"ε {epsilon}"] if epsilon else [])]
            self.message(f"{row.job.title}: {'  '.join(told)}")

    def finished(self, job: Job) -> None:
        """A run came to its end."""
        self.message(f"{job.title}: done ({self._count('done')} of {self.total})")

    def again(self, job: Job, outcome: Outcome) -> None:  # noqa: D102
        self.warn(again_line(job, outcome))

    def ended(self, job: Job, outcome: Outcome) -> None:  # noqa: D102
        self.rows.setdefault(job.number, _Row(job)).state = outcome.ending.value
        tell_ending(self, job, outcome)
        if outcome.ending is Ending.DONE:
            self.finished(job)

    def _pass_on(self, job: Job, news: News) -> None:
        """What several runs say in the same words is said once."""
        text = news.told[0]
        if text in self._said:
            return
        self._said.add(text)
        if text == job.title and not self.names_runs:
            return
        line = text if text.startswith(job.title) else f"{job.title}: {text}"
        self.warn(line) if news.call == "warn" else self.message(line)

    def _count(self, state: str) -> int:
        return sum(row.state == state for row in self.rows.values())


class LiveTable(Lines):
    """Every run in a row of its own, kept up to date."""

    names_runs = False

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._live = Live(console=self.console, get_renderable=self.drawn, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def stepped(self, row: _Row) -> None:
        """Shown in its row."""

    def finished(self, job: Job) -> None:
        """Shown in its row."""

    def drawn(self) -> Group:
        """The table: all rows if they fit, else those of runs at work, and the counts."""
        rows = [row for _, row in sorted(self.rows.items())]
        at_work = [row for row in rows if row.state not in _STYLES]
        room = max(3, self.console.size.height - _MARGIN)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, side in (("run", "left"), ("", "left"), ("step", "right"), ("ε so far", "right"), ("public loss", "right")):
            table.add_column(name, justify=side, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        for row in (rows if len(rows) <= room else at_work)[:room]:
            state, *numbers = row.cells
            table.add_row(row.job.run.combination.label, Text(state, _STYLES.get(row.state, "")), *numbers)
        counts = [f"{self._count('done')} of {self.total} runs done", f"{len(at_work)} at work"]
        counts += [f"{self._count(one)} {one}" for one in ("refused", "wrong", "failed", "stopped") if self._count(one)]
        return Group(table, Text(", ".join(counts), "dim"))


def board_for(jobs: int) -> Lines:
    """A table where somebody looks, and lines where nobody does."""
    return LiveTable(jobs) if Console(stderr=True).is_terminal else Lines(jobs)


def again_line(job: Job, outcome: Outcome) -> str:
    """A run that will be tried once more."""
    return f"{job.title} failed ({outcome.words}): it is tried once more, and what it spent stays spent"


def tell_ending(said: Lines | TerminalProgress, job: Job, outcome: Outcome) -> None:
    """A line about a run that did not come to its end."""
    if outcome.ending in (Ending.REFUSED, Ending.WRONG):
        said.warn(f"{job.title} was refused: {outcome.words}")
    elif outcome.ending is Ending.FAILED:
        said.warn(f"{job.title} failed: {outcome.words}")
        if outcome.trace:
            said.message(outcome.trace)
