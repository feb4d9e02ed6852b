"""What the commands say, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bars,
)

from halfmask.training.progress import Progress

_TRAINING = "training"
# How often a log file, where bars mean nothing, hears about progress.
_LINES_OF_TRAINING, _LINES_OF_A_STAGE = 10, 2


def say(text: str, style: str | None = None) -> None:
    """A line of a command's result."""
    Console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def note(text: str, style: str | None = None) -> None:
    """A line about what is going on."""
    Console(stderr=True).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """A line the user should not miss."""
    note(f"warning: {text}", "yellow")


def fail(text: str) -> None:
    """The one line of a failure, in red where there is colour."""
    note(f"error: {' '.join(text.split())}", "bold red")


def say_json(body: Any) -> None:
    """A result for programs. Plain print: Rich would wrap it to the terminal."""
    print(json.dumps(body, indent=2, ensure_ascii=False))


class TerminalProgress(Progress):
    """Bars for preparation and training; in a log file, a few plain lines instead.

    Nothing here is private: the loss shown is the one on public people.
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lines_shown: dict[str, int] = {}
        self._epsilon: float | None = None

    def __enter__(self) -> TerminalProgress:
        if self.console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def next_run(self) -> None:
        """Forget the bars of the run before, where one command makes several."""
        for task in self._tasks.values():
            if self._bars is not None:
                self._bars.remove_task(task)
        self._tasks, self._lines_shown, self._epsilon = {}, {}, None

    def message(self, text: str) -> None:  # noqa: D102
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:  # noqa: D102
        self.console.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    def stage(self, name: str, done: int, total: int) -> None:  # noqa: D102
        self._advance(name, done, total, "")

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:  # noqa: D102
        # ε is dear to compute and comes every few steps only; the last one known is shown until the next.
        self._epsilon = epsilon if epsilon is not None else self._epsilon
        detail = []
        if public_loss is not None:
            detail.append(f"public loss {public_loss:.3f}")
        if self._epsilon is not None:
            detail.append(f"ε {self._epsilon:.3f}")
        if self._bars is not None and _TRAINING not in self._tasks:
            for task in self._tasks.values():
                self._bars.update(task, visible=False)
        self._advance(_TRAINING, step, total, "  ".join(detail))

    def _advance(self, name: str, done: int, total: int, detail: str) -> None:
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=total, detail=detail)
            self._bars.update(self._tasks[name], completed=done, total=total, detail=detail)
            return
        parts = _LINES_OF_TRAINING if name == _TRAINING else _LINES_OF_A_STAGE
        part = parts * done // max(total, 1)
        if part > self._lines_shown.get(name, 0):
            self._lines_shown[name] = part
            self.message(f"{name}: {done} of {total}" + (f"  {detail}" if detail else ""))
