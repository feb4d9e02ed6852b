"""Fair timing on a machine that is never quite quiet, and memory in a process of its own."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Timed:
    seconds: list[float]
    ratios: list[float]

    def __str__(self) -> str:
        middle = statistics.median(self.ratios)
        return f"{statistics.median(self.seconds):8.3f} s   ratio {middle:6.3f}  (from {min(self.ratios):.3f} to {max(self.ratios):.3f})"


def interleaved(
    contenders: dict[str, Callable[[], object]], base: str, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Timed]:
    """Every contender once a round, so that a busy moment slows all alike; ratios are taken within a round. One round warms up.

    Args:
        clock: `time.process_time` where other processes share the core.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, step in contenders.items():
            start = clock()
            step()
            if turn:
                times[name].append(clock() - start)
    return {name: Timed(seconds, [s / b for s, b in zip(seconds, times[base], strict=True)]) for name, seconds in times.items()}


def peak_memory_of(module: str, *arguments: str) -> float | None:
    """MiB that `python -m module arguments` says it needed, in a fresh process; None if it failed."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, env=os.environ)
    lines = [line for line in done.stdout.splitlines() if line.startswith("peak ")]
    return float(lines[-1].split()[1]) if done.returncode == 0 and lines else None


def print_peak(prepare: Callable[[], Callable[[], object]], times: int = 2) -> None:
    """Run a prepared step and print by how much memory rose above what was held before it."""
    step = prepare()
    before = _memory("VmRSS")
    for _ in range(times):
        step()
    # Not getrusage: its peak is inherited from the parent process.
    print(f"peak {_memory('VmHWM') - before:.1f}")


def _memory(field: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))


def conditions() -> str:
    return f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}"
