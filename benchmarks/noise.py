"""What secure noise costs: `python -m benchmarks.noise`.

Rounds are interleaved in one process, so that a busy machine slows every contender alike; medians and the spread of ratios are printed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from halfmask.privacy.noise import RandomStream

NUMBERS, COORDINATES, ROUNDS = 5_000_000, 50, 15


def main() -> None:
    stream = RandomStream.secure()
    contenders: dict[str, Callable[[], object]] = {
        "torch.randn, double precision": lambda: torch.randn(NUMBERS, dtype=torch.float64),
        "secure stream": lambda: stream.gaussian(NUMBERS),
        "secure stream, sum of four": lambda: stream.gaussian(NUMBERS, sum_of_four=True),
        f"secure stream, {COORDINATES} coordinates of a subspace": lambda: stream.gaussian(COORDINATES),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, draw in contenders.items():
            start = time.perf_counter()
            draw()
            times[name].append(time.perf_counter() - start)
    base = times["torch.randn, double precision"]
    print(f"{NUMBERS:,} Gaussian numbers, {torch.get_num_threads()} threads, {ROUNDS} interleaved rounds")
    for name, seconds in times.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(seconds, base, strict=True))
        print(
            f"{name:50s} {1e3 * statistics.median(seconds):9.3f} ms   ratio {statistics.median(ratios):8.5f} "
            f"(from {ratios[0]:.5f} to {ratios[-1]:.5f})"
        )


if __name__ == "__main__":
    main()
