"""A rank that is killed, over and over: `python -m benchmarks.rank_kills [--kills 20] [--seed 0]`.

As `benchmarks.kills`, with the same looks at ledger, checkpoints, logs, weights and certificates after every kill, on runs of two or three
processes: SIGKILL ends one of them, drawn at random, at a random moment, or root at a random operation on the disk. The others must end by
themselves soon after. What was killed goes on, on another number of processes as often as not, until it ends.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from benchmarks.kills import RECIPE, Aim, Bench, Tried, lay_in_wait
from halfmask.errors import HalfmaskError
from halfmask.privacy.account import Account
from halfmask.training import running
from halfmask.training.config import RunConfig, build_config
from halfmask.training.distributed import Group, Joining
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

# How long a process that gives no sign is waited for, and how long the others may take to end once one was killed.
PATIENCE, SOON = 5.0, 30.0


class Team:
    """The processes of a run, as far as one who kills one of them need know."""

    def __init__(self, processes: list[BaseProcess], rng: random.Random):
        self.processes, self.rng = processes, rng
        self.slowest = 0.0

    def join(self, seconds: float) -> None:
        """Wait for all of them; once one has died, for the others no longer than they may take."""
        until, died = time.monotonic() + seconds, None
        while any(process.is_alive() for process in self.processes) and time.monotonic() < until:
            if died is None and any(process.exitcode == -signal.SIGKILL for process in self.processes):
                died = time.monotonic()
            if died is not None and time.monotonic() - died > SOON:
                break
            time.sleep(0.01)
        self.slowest = 0.0 if died is None else time.monotonic() - died

    def kill(self) -> None:
        """End one of them, whichever."""
        self.rng.choice(self.processes).kill()

    @property
    def exitcode(self) -> int | None:
        """As if they were one: killed if one was, and None while any is there."""
        codes = [process.exitcode for process in self.processes]
        if None in codes:
            for process in self.processes:
                process.kill()
                process.join()
            return None
        return -signal.SIGKILL if -signal.SIGKILL in codes else max(code or 0 for code in codes)

    @property
    def killed(self) -> int | None:
        """Which of them was killed."""
        return next((rank for rank, process in enumerate(self.processes) if process.exitcode == -signal.SIGKILL), None)


class RankBench(Bench):
    """Starts several, kills one and looks."""

    # Operations on the disk are root's alone.
    aimed = 0.15

    def __init__(self, config: RunConfig, setup: Setup, folder: Path, rng: random.Random):
        super().__init__(config, setup, folder, rng)
        self.victims: Counter[tuple[str, int]] = Counter()
        self.slowest: list[float] = []
        self.team: Team | None = None

    def _start(self, run: Tried, resume: bool, aim: Aim | None) -> Team:  # type: ignore[override]
        os.environ["HALFMASK_HOME"] = str(run.home)
        world = self.rng.choice((2, 3))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        arguments = (self.setup, self.config, run.folder, resume, aim)
        processes = [fork.Process(target=_rank, args=(rank, world, port, *arguments)) for rank in range(world)]
        for process in processes:
            process.start()
        self.team = Team([*processes], self.rng)
        return self.team

    def _look(self, run: Tried, when: str) -> None:
        team = self.team
        if team is not None and team.killed is not None:
            self.victims["root" if team.killed == 0 else "another", len(team.processes)] += 1
            self.slowest.append(team.slowest)
        self.team = None
        super()._look(run, when)

    def _tell(self, last: Tried) -> None:
        super()._tell(last)
        print("who: " + ", ".join(f"{who} of {world} {count}" for (who, world), count in sorted(self.victims.items())))
        if self.slowest:
            middle = sorted(self.slowest)[len(self.slowest) // 2]
            print(f"the others ended {middle:.1f} s after the kill (median), {max(self.slowest):.1f} s at most")


def _rank(rank: int, world: int, port: int, setup: Setup, config: RunConfig, out: Path, resume: bool, aim: Aim | None) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

    # Preparation is the same each time and spends nothing: done once, so that the kills fall on what matters.
    def prepared(config: RunConfig, progress: Progress, group: Group) -> Setup:
        account = group.at_root(lambda: Account(setup.data.fingerprints, config.unit), "the ledger")
        return replace(setup, account=account, group=group)

    running.prepare = prepared  # type: ignore[assignment]
    # ε for the screen: of no interest here, and it would take most of the time.
    Setup.spent = lambda *_: 0.0  # type: ignore[method-assign]
    if aim is not None and rank == 0:
        lay_in_wait(aim)
    try:
        running.run_training(config, out, resume=resume, joining=Joining(PATIENCE))
    except (HalfmaskError, KeyboardInterrupt):
        sys.exit(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of whom, where and when to kill; what is killed has randomness of its own")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("absl").setLevel(logging.ERROR)
    # Connections that break are what is looked for, and not worth a page each.
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HALFMASK_HOME"] = str(Path(folder) / "home0")
        config = build_config(RECIPE, {})
        violations = RankBench(config, prepare(config, Progress()), Path(folder), random.Random(options.seed)).run(options.kills)
    sys.exit(int(bool(violations)))


if __name__ == "__main__":
    main()
