from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError, OverBudget
from halfmask.privacy.guest import Unreachable
from halfmask.training import sweep_jobs
from halfmask.training.progress import Progress
from halfmask.training.sweep import PlannedRun, expand, plan_sweep
from halfmask.training.sweep_jobs import Board, Crew, Ending, Here, Job, News, Outcome, Telling, attempt, carry_out, exit_code


def planned(out: Path, seeds: int = 3) -> list[PlannedRun]:
    return plan_sweep({"epochs": 1}, expand(["dpsgd"], [1.0], [0.1], range(seeds)), [], out)


class Notes(Board):
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def started(self, job: Job) -> None:
        self.told.append((f"started {job.attempt}", job.number))

    def hear(self, news: News) -> None:
        self.told.append((news.call, news.number))

    def again(self, job: Job, outcome: Outcome) -> None:
        self.told.append(("again", job.number))

    def ended(self, job: Job, outcome: Outcome) -> None:
        self.told.append((outcome.ending.value, job.number))


@pytest.fixture
def doing(monkeypatch) -> Callable[[Callable[[int, Progress], None]], None]:
    """What becomes of a run, by its seed, in the place of training."""

    def put(do: Callable[[int, Progress], None]) -> None:
        monkeypatch.setattr("halfmask.training.sweep.do_run", lambda run, title, progress: do(run.combination.seed, progress))

    return put


@pytest.mark.parametrize(
    "error, ending, words",
    [
        (OverBudget("no budget left"), Ending.REFUSED, "no budget left"),
        (Unreachable("nobody answers"), Ending.FAILED, "nobody answers"),
        (HalfmaskError("bad data"), Ending.WRONG, "bad data"),
        (OSError(28, "No space left on device", "model.safetensors"), Ending.WRONG, "no space is left"),
        (ZeroDivisionError("division"), Ending.FAILED, "ZeroDivisionError: division"),
    ],
    ids=str,
)
def test_what_goes_wrong_is_told(tmp_path, doing, error, ending, words) -> None:
    def fail(seed: int, progress: Progress) -> None:
        raise error

    doing(fail)
    outcome = attempt(Job(1, 1, planned(tmp_path)[0]), Progress())
    assert outcome.ending is ending and words in outcome.words
    assert bool(outcome.trace) == (type(error) is ZeroDivisionError), "a trace is of faults of ours alone"


def test_a_failed_run_is_tried_once_more_and_stops_nobody(tmp_path, doing) -> None:
    tries: list[int] = []

    def do(seed: int, progress: Progress) -> None:
        tries.append(seed)
        progress.step(1, 2, None, None)
        if seed == 0 and tries.count(0) == 1:
            raise RuntimeError("a machine that died")
        if seed == 1:
            raise RuntimeError("one that dies each time")
        if seed == 2:
            raise OverBudget("no budget left")

    doing(do)
    board = Notes()
    outcomes = carry_out(planned(tmp_path, 4), Here(), board)
    assert [one.ending for one in outcomes] == [Ending.DONE, Ending.FAILED, Ending.REFUSED, Ending.DONE]
    assert tries == [0, 1, 2, 3, 0, 1], "behind the others, and what is refused is not tried again"
    assert board.told.count(("again", 1)) == board.told.count(("again", 2)) == 1 and ("started 2", 1) in board.told
    assert [entry for entry in board.told if entry[0] == "refused"] == [("refused", 3)] and ("step", 4) in board.told


@pytest.mark.parametrize(
    "endings, code",
    [((Ending.DONE,), 0), ((Ending.DONE, Ending.REFUSED), 2), ((Ending.WRONG,), 2), ((Ending.REFUSED, Ending.FAILED), 1)],
)
def test_exit_codes(endings, code) -> None:
    assert exit_code([Outcome(number, one) for number, one in enumerate(endings)]) == code


class Fake(Crew):
    """Two at a time; each ends in the second moment after it began."""

    def __init__(self) -> None:
        self.at_work: list[tuple[Job, int]] = []
        self.stopped, self.left = False, False

    def __exit__(self, *_: object) -> None:
        self.left = True

    @property
    def warnings(self) -> list[str]:
        return ["mind the step"]

    @property
    def free(self) -> bool:
        return len(self.at_work) < 2

    @property
    def busy(self) -> bool:
        return bool(self.at_work)

    def start(self, job: Job) -> None:
        assert self.free
        self.at_work.append((job, 0))

    def wait(self, hear: Callable[[News], None]) -> list[Outcome]:
        for job, moment in self.at_work:
            hear(News(job.number, "step", (moment, 2, None, None)))
        over = [job for job, moment in self.at_work if moment == 1]
        self.at_work = [(job, moment + 1) for job, moment in self.at_work if moment < 1]
        return [Outcome(job.number, Ending.STOPPED if self.stopped else Ending.DONE) for job in over]

    def stop(self) -> None:
        self.stopped = True


def test_ctrl_c_waits_for_the_runs_at_work_and_begins_no_other(tmp_path) -> None:
    class Impatient(Notes):
        def warn(self, text: str) -> None:
            self.told.append((text, 0))

        def ended(self, job: Job, outcome: Outcome) -> None:
            super().ended(job, outcome)
            if job.number == 2 and outcome.ending is Ending.DONE:
                raise KeyboardInterrupt

    crew, board = Fake(), Impatient()
    with pytest.raises(KeyboardInterrupt):
        carry_out(planned(tmp_path, 6), crew, board)
    assert crew.stopped and crew.left and not crew.busy
    assert board.told[0] == ("mind the step", 0)
    assert [number for call, number in board.told if call.startswith("started")] == [1, 2]
    assert [one.ending for one in carry_out(planned(tmp_path, 5), Fake(), Board())] == [Ending.DONE] * 5


def test_ctrl_c_in_this_process_leaves_at_once(tmp_path, doing) -> None:
    def do(seed: int, progress: Progress) -> None:
        raise KeyboardInterrupt

    doing(do)
    with pytest.raises(KeyboardInterrupt):
        carry_out(planned(tmp_path), Here(), Board())


def test_reports_come_no_faster_than_anybody_reads(monkeypatch) -> None:
    now, heard = [0.0], list[News]()
    monkeypatch.setattr(sweep_jobs.time, "monotonic", lambda: now[0])
    telling = Telling(7, heard.append)
    for step in range(100):
        telling.step(step, 100, None, None)
        now[0] += 0.01
    telling.step(100, 100, 1.5, 0.7)
    telling.message("said")
    telling.warn("warned")
    telling.stage("drawing", 3, 3)
    assert 4 <= sum(news.call == "step" for news in heard) <= 6
    assert heard[-4:] == [
        News(7, "step", (100, 100, 1.5, 0.7)),
        News(7, "message", ("said",)),
        News(7, "warn", ("warned",)),
        News(7, "stage", ("drawing", 3, 3)),
    ]
