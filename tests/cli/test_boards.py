from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from halfmask.cli import boards
from halfmask.cli.boards import Lines, LiveTable, board_for
from halfmask.training.sweep import expand, plan_sweep
from halfmask.training.sweep_jobs import Board, Ending, Job, News, Outcome


def jobs(count: int) -> list[Job]:
    runs = plan_sweep({}, expand(["dpsgd"], [1.0], [0.1], range(count)), [], Path("out"))
    return [Job(number, count, run) for number, run in enumerate(runs, 1)]


def play(board: Board, some: list[Job]) -> None:
    """A sweep of five: one done, one refused, one at its second attempt, one that draws, one that trains."""
    done, refused, again, *_ = some
    for job in some:
        board.started(job)
    board.hear(News(1, "message", (done.title,)))
    for job in (done, refused):
        board.hear(News(job.number, "warn", ("said by all",)))
    for step in range(1, 9):
        board.hear(News(1, "step", (step, 8, 1.25, 0.5 if step == 8 else None)))
    board.ended(done, Outcome(1, Ending.DONE))
    board.ended(refused, Outcome(2, Ending.REFUSED, "no budget left"))
    board.again(again, Outcome(3, Ending.FAILED, "its process ended by signal 9"))
    board.hear(News(4, "stage", ("drawing private people", 10, 40)))
    board.hear(News(5, "step", (1, 8, None, float("inf"))))


def screen(board: Lines, monkeypatch: pytest.MonkeyPatch, height: int = 40) -> Console:
    console = Console(file=io.StringIO(), width=100, height=height, force_terminal=False)
    monkeypatch.setattr(board, "console", console)
    return console


def test_lines_for_a_log_file(monkeypatch) -> None:
    board = Lines(5)
    console = screen(board, monkeypatch)
    play(board, jobs(5))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("said by all") == 1 and text.count("step ") == 4
    assert "run 1/5: dpsgd ε=1 C=0.1 seed 0: step 8 of 8  public loss 1.250  ε 0.500" in text
    assert "run 1/5: dpsgd ε=1 C=0.1 seed 0: done (1 of 5)" in text
    assert "warning: run 2/5: dpsgd ε=1 C=0.1 seed 1 was refused: no budget left" in text
    assert "failed (its process ended by signal 9): it is tried once more" in text


@pytest.mark.parametrize("height", [40, 12])
def test_a_table_that_is_kept_up_to_date(monkeypatch, height) -> None:
    board = LiveTable(5)
    console = screen(board, monkeypatch, height)
    play(board, jobs(5))
    console.print(board.drawn())
    table = console.file.getvalue().partition("ε so far")[2].splitlines()[1:]  # type: ignore[attr-defined]
    lines = [" ".join(line.split()) for line in table]
    expected = [
        "dpsgd ε=1 C=0.1 seed 0 done 8 of 8 0.500 1.250",
        "dpsgd ε=1 C=0.1 seed 1 refused",
        "dpsgd ε=1 C=0.1 seed 2 next",
        "dpsgd ε=1 C=0.1 seed 3 drawing private people, 10 of 40",
        "dpsgd ε=1 C=0.1 seed 4 trains 1 of 8 ∞",
    ]
    assert lines[:-1] == (expected if height == 40 else expected[2:])
    assert lines[-1] == "1 of 5 runs done, 3 at work, 1 refused"


def test_a_fault_of_ours_is_shown_with_its_trace(monkeypatch) -> None:
    board = Lines(1)
    console = screen(board, monkeypatch)
    (job,) = jobs(1)
    board.started(job)
    board.ended(job, Outcome(1, Ending.FAILED, "ZeroDivisionError: division", "Traceback: here it was"))
    assert "here it was" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_table_only_where_somebody_looks(monkeypatch) -> None:
    assert type(board_for(3)) is Lines
    monkeypatch.setattr(boards, "Console", lambda **k: Console(force_terminal=True))
    assert type(board_for(3)) is LiveTable
