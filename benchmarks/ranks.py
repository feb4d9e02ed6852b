"""Two processes of one run against one: `python -m benchmarks.ranks [--rounds 6] [--steps 4] [--batch 32] [--chunk N] [--quick]`.

TinyViT-5M, method dpsgd, strategy full, people of 256×192 pixels (`--quick`: 64×48, to see that it runs). Three teams are kept ready in
processes of their own, pinned to their cores: one process on one core, one process with two threads on two cores, and two processes of one
thread on a core each. In every round each team takes the same number of steps while the others wait, so that a busy moment slows all alike;
ratios are taken within a round. All toss the same coins (a seed), pay into ledgers of their own, and are timed from end to end of a step.

Then the exchange by itself: as many doubles as the network has weights to root, as many floats back, between the two processes; and on
paper what crosses for more of them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from halfmask.gradients.clipped import ClippedCoordinates
from halfmask.training.config import build_config
from halfmask.training.distributed import group
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, Unwritten
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

TEAMS = {"one process, one core": (1, 1), "one process, two threads": (1, 2), "two processes": (2, 1)}
SUBSPACE = 50


@dataclass
class Team:
    """Processes that wait to be told how many steps to take."""

    processes: list[subprocess.Popen[str]]

    def ask(self, *words: object) -> dict[str, Any]:
        """Tell all of them; root answers."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(" ".join(map(str, words)) + "\n")
            process.stdin.flush()
        answers = self.processes[0].stdout
        assert answers is not None
        line = answers.readline()
        if not line:
            raise SystemExit("a process ended: see above")
        return json.loads(line)


def team(name: str, folder: Path, options: argparse.Namespace) -> Team:
    world, threads = TEAMS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    made = []
    for rank in range(world):
        variables = os.environ | {"OMP_NUM_THREADS": str(threads), "HALFMASK_HOME": str(folder / "home")}
        if world > 1:
            variables |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        mine = cores[rank : rank + threads] if world > 1 or threads == 1 else cores[:threads]
        words = [sys.executable, "-m", "benchmarks.ranks", "--member", str(folder / name.replace(" ", "-")), "--steps", str(options.steps)]
        words += ["--batch", str(options.batch), "--rounds", str(options.rounds), "--cores", ",".join(map(str, mine))]
        words += ["--chunk", str(options.chunk), *(["--quick"] if options.quick else [])]
        made.append(subprocess.Popen(words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    return Team(made)


def member(options: argparse.Namespace) -> None:
    """A process of a team: takes steps when it is told to."""
    os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    people = 8 * options.batch
    steps = (options.rounds + 2) * options.steps
    recipe: dict[str, Any] = {
        "method": "dpsgd",
        "strategy": "full",
        "batch": options.batch,
        "epochs": steps * options.batch / people,
        "noise_multiplier": 1.0,
        "epsilon": 200.0,
        "delta": 1e-4,
        "accountant": "rdp",
        "insecure_seed": 1,
        "chunk": options.chunk,
        "even_so": True,
        "data": {"private": people, "public": 8, "test": 0},
        "model": {"weights": None, "size": "5m", "input_size": [64, 48] if options.quick else [256, 192]},
    }
    config, processes = build_config(recipe, {}), group()
    setup = prepare(config, Progress(), group=processes)
    folder = RunFolder.create(Path(options.member), config) if processes.root else Unwritten(Path(options.member))
    trainer = Trainer(setup, folder, Progress())
    trainer.begin()
    drawn, real = [0], trainer.noised.poisson.draw

    def counted() -> torch.Tensor:
        found = real()
        drawn[0] += len(found)
        return found

    trainer.noised.poisson.draw = counted  # type: ignore[method-assign]
    print(json.dumps({"weights": trainer.engine.size}), flush=True)
    for line in sys.stdin:
        what, times = line.split()
        processes.barrier()
        drawn[0], start = 0, time.perf_counter()
        for _ in range(int(times)):
            if what == "steps":
                trainer.make_ready(setup.steps)
                trainer.take_step()
                trainer.standing.step += 1
            else:
                nobody = torch.zeros(0, dtype=torch.long)
                # Whatever a step sends: a sum in double precision to root, and what is released of it to all.
                zeros = torch.zeros(trainer.engine.size, dtype=torch.float64)
                total = processes.sum(ClippedCoordinates(torch.zeros(0), 1.0, 0, zeros), nobody)
                processes.from_root(lambda total=total: total.coordinates.float())
        processes.barrier()
        print(json.dumps({"seconds": time.perf_counter() - start, "people": drawn[0]}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=4, help="of each team in a round")
    parser.add_argument("--batch", type=int, default=32, help="people expected in a step")
    parser.add_argument("--chunk", type=int, default=64, help="people that a process holds at once, at most")
    parser.add_argument("--quick", action="store_true", help="small pictures: only to see that it runs")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--cores", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        member(options)
        return
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("this takes two cores")
    with tempfile.TemporaryDirectory() as folder:
        teams: dict[str, Team] = {}
        for name in TEAMS:
            teams[name] = team(name, Path(folder), options)
            # One after the other: the first draws the people for all.
            assert teams[name].processes[0].stdout is not None
            weights = json.loads(teams[name].processes[0].stdout.readline())["weights"]
        compare(teams, options)
        exchange(teams["two processes"], weights)
        for one in teams.values():
            for process in one.processes:
                assert process.stdin is not None
                process.stdin.close()
            for process in one.processes:
                process.wait(30)


def compare(teams: dict[str, Team], options: argparse.Namespace) -> None:
    """People per second of each, interleaved; the first round warms up."""
    found: dict[str, list[float]] = {name: [] for name in teams}
    for turn in range(options.rounds + 1):
        for name, one in teams.items():
            answer = one.ask("steps", options.steps)
            if turn:
                found[name].append(answer["people"] / answer["seconds"])
    base = found[next(iter(teams))]
    print(f"{options.rounds} rounds of {options.steps} steps of {options.batch} people expected")
    print(f"{'':28s} {'people/s':>9s} {'ratio':>7s}   {'from – to':>13s}")
    for name, speeds in found.items():
        ratios = [speed / other for speed, other in zip(speeds, base, strict=True)]
        spread = f"{min(ratios):.2f} – {max(ratios):.2f}"
        print(f"{name:28s} {statistics.median(speeds):9.2f} {statistics.median(ratios):6.2f}×   {spread:>13s}")


def exchange(two: Team, weights: int) -> None:
    """What an exchange costs by itself, measured for two processes and counted for more."""
    two.ask("exchange", 1)
    times = [two.ask("exchange", 1)["seconds"] for _ in range(7)]
    print(f"\nexchange of {weights:,} numbers between two processes: {1e3 * statistics.median(times):.0f} ms", end="")
    print(f" ({1e3 * min(times):.0f} to {1e3 * max(times):.0f}, 7 times)")
    heads = ("on paper, per step", "into root", "out of root", f"with {SUBSPACE} coordinates: into", "out")
    print("{:20s} {:>12s} {:>12s} {:>26s} {:>10s}".format(*heads))
    for ranks in (2, 8, 64):
        numbers = [_bytes((ranks - 1) * size * count) for count in (weights, SUBSPACE) for size in (8, 4)]
        print("{:20s} {:>12s} {:>12s} {:>26s} {:>10s}".format(f"{ranks} processes", *numbers))


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


if __name__ == "__main__":
    main()
