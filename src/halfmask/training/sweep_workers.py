"""Runs of a sweep on processes of this machine, beside each other, with one home and its ledgers between them.

A worker does one run after the other and is replaced if it dies. It has a process group of its own: Ctrl-C in a terminal reaches the
command alone, which has its workers stop once, in good order. What libraries print goes to a file in private storage and is shown only
where a worker died; what runs tell comes through a pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

import torch

from halfmask.privacy.home import private_folder
from halfmask.privacy.locking import check_locks
from halfmask.training.sweep_jobs import Crew, Ending, Job, News, Outcome, Telling, attempt

_MOMENT = 0.2
_LAST_WORDS = 400


class LocalWorkers(Crew):
    """Processes of this machine.

    Args:
        count: how many runs at once.
        threads: of each; by default the cores are shared out.
    """

    def __init__(self, count: int, threads: int | None = None):
        self.count = count
        self.threads = threads or max(1, (os.cpu_count() or 1) // count)
        self._gpus = torch.cuda.device_count()
        self._workers: list[_Worker | None] = [None] * count

    def __enter__(self) -> LocalWorkers:
        check_locks(private_folder("ledgers"), even_own_disks=True)
        return self

    @property
    def free(self) -> bool:  # noqa: D102
        return any(worker is None or worker.job is None for worker in self._workers)

    @property
    def busy(self) -> bool:  # noqa: D102
        return any(worker is not None and worker.job is not None for worker in self._workers)

    def start(self, job: Job) -> None:  # noqa: D102
        place, worker = next((place, one) for place, one in enumerate(self._workers) if one is None or one.job is None)
        if worker is None:
            worker = self._workers[place] = _Worker(self.threads, str(place % self._gpus) if self._gpus > 1 else None)
        worker.start(job)

    def wait(self, hear: Callable[[News], None]) -> list[Outcome]:  # noqa: D102
        ended = []
        by_pipe = {worker.pipe: (place, worker) for place, worker in enumerate(self._workers) if worker is not None}
        for pipe in wait(list(by_pipe), _MOMENT):
            place, worker = by_pipe[pipe]  # type: ignore[index]
            try:
                told = worker.pipe.recv()
            except (EOFError, OSError):
                self._workers[place] = None
                if worker.job is not None:
                    ended.append(worker.died())
                worker.close()
                continue
            if isinstance(told, Outcome):
                worker.job = None
                ended.append(told)
            else:
                hear(told)
        return ended

    def stop(self) -> None:  # noqa: D102
        for worker in self._workers:
            if worker is not None and worker.job is not None:
                worker.interrupt()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.close()


class _Worker:
    """One process, and the job it is at."""

    def __init__(self, threads: int, gpu: str | None):
        self.job: Job | None = None
        self._stopping = False
        with tempfile.NamedTemporaryFile(prefix="worker-", dir=private_folder("logs"), delete=False) as file:
            self._said = Path(file.name)
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Until it has a process group of its own, a Ctrl-C that is meant for the command must not reach it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.process: BaseProcess = context.Process(target=_serve, args=(theirs, str(self._said), threads, gpu), daemon=True)
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()

    def start(self, job: Job) -> None:
        self.job = job
        # A worker that died while it had nothing to do is found out where its end is read.
        with contextlib.suppress(OSError):
            self.pipe.send(job)

    def interrupt(self) -> None:
        self._stopping = True
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def died(self) -> Outcome:
        assert self.job is not None
        if self._stopping:
            return Outcome(self.job.number, Ending.STOPPED)
        self.process.join(5)
        code = self.process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        said = self._said.read_text(errors="replace").strip()[-_LAST_WORDS:] if self._said.exists() else ""
        return Outcome(self.job.number, Ending.FAILED, f"its process ended {how}" + (f", and had said: {said}" if said else ""))

    def close(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.terminate()
        self._said.unlink(missing_ok=True)


def _serve(pipe: Connection, said: str, threads: int, gpu: str | None) -> None:
    """A worker's life: jobs come, and what is told of them goes, through the pipe, until it is closed."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    file = os.open(said, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, EOFError, OSError):
        while True:
            job = pipe.recv()
            try:
                outcome = attempt(job, Telling(job.number, lambda news: _tell(pipe, news)))
            except KeyboardInterrupt:
                outcome = Outcome(job.number, Ending.STOPPED)
            pipe.send(outcome)


def _tell(pipe: Connection, news: News) -> None:
    try:
        pipe.send(news)
    except OSError:
        # The command is gone: nobody waits for this run. It stops as it would by Ctrl-C, whole for the steps it took.
        raise KeyboardInterrupt from None
