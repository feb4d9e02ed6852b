"""How fast clips are drawn: `python -m benchmarks.clips`.

Clips of the embedded world, 8 frames of 96×96 and 16 of 224×224, on one core. Rooms are built when they are first seen, which is counted
apart: a dataset has many more clips than rooms.
"""

from __future__ import annotations

import statistics
import time

import cv2

from halfmask.data.figures.clips import Clips

ROUNDS = 5


def main() -> None:
    cv2.setNumThreads(1)
    for frames, side, count in ((8, 96, 100), (16, 224, 20)):
        for population in ("public", "private"):
            clips = Clips(population, size=(side, side), frames=frames)
            first = _seconds(clips, count)
            rates = sorted(count / _seconds(clips, count) for _ in range(ROUNDS))
            print(
                f"{population:8} {frames:2} frames of {side}×{side}: {statistics.median(rates):5.1f} clips per second of processor time "
                f"(from {rates[0]:.1f} to {rates[-1]:.1f}); {count / first:.1f} with the rooms to be built"
            )


def _seconds(clips: Clips, count: int) -> float:
    start = time.process_time()  # what other programs on the machine do not change
    for index in range(count):
        clips.clip(index)
    return time.process_time() - start


if __name__ == "__main__":
    main()
