"""How fast people are read: `python -m benchmarks.reading [DATASET FOLDER]`.

Decoding, cutting out and blurring (ψ), from files to the arrays that training uses, without any cache. Without a folder, photographs of
the size of MPII's are drawn first. Rounds are interleaved, so that a busy machine slows every number of threads alike.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from halfmask.data.crops import crop_people
from halfmask.data.formats import read_annotations
from halfmask.data.people import Person
from halfmask.views import make_view

PEOPLE, ROUNDS, SIZE = 400, 5, (256, 192)


def main() -> None:
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        people = _people_of(Path(sys.argv[1])) if len(sys.argv) > 1 else _drawn_people(Path(folder))
        counts = sorted({1, 2, os.cpu_count() or 1})
        seconds: dict[int, list[float]] = {workers: [] for workers in counts}
        processor: list[float] = []
        sums = set()
        for _ in range(ROUNDS):
            for workers in counts:
                start, busy = time.perf_counter(), time.process_time()
                sums.add(_read(people, workers))
                seconds[workers].append(time.perf_counter() - start)
                processor.append(time.process_time() - busy)
    height, width = SIZE
    print(f"{len(people)} people to {height}×{width}, decoded, cut out and blurred; {os.cpu_count()} cores, {ROUNDS} interleaved rounds")
    for workers, times in seconds.items():
        rates = sorted(len(people) / one for one in times)
        print(f"{workers} threads: {statistics.median(rates):7.0f} records/s   (from {rates[0]:.0f} to {rates[-1]:.0f})")
    # What other programs on the machine do not change.
    print(f"per core of its own: {len(people) / statistics.median(processor):.0f} records per second of processor time")
    print("the same bytes in every round" if len(sums) == 1 else f"{len(sums)} different results: reading is not deterministic")


def _read(people: list[Person], workers: int) -> int:
    arrays, _ = crop_people(people, SIZE, workers)
    view = make_view("blur", {})
    views = np.empty_like(arrays["images"])

    def look(i: int) -> None:
        views[i] = view(np.ascontiguousarray(arrays["images"][i].transpose(1, 2, 0))).transpose(2, 0, 1)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(look, range(len(people))))
    return hash((arrays["images"].tobytes(), arrays["joints"].tobytes(), views.tobytes()))


def _people_of(folder: Path) -> list[Person]:
    everyone = [person for part in read_annotations(folder).parts.values() for person in part.people]
    return everyone[:PEOPLE]


def _drawn_people(folder: Path) -> list[Person]:
    """Pictures that take as long to decode as photographs: smooth shapes with some grain."""
    rng = np.random.default_rng(0)
    people = []
    for number in range(PEOPLE):
        shapes = cv2.resize(rng.integers(0, 256, (12, 20, 3), dtype=np.uint8), (1280, 720), interpolation=cv2.INTER_CUBIC)
        grain = rng.normal(0, 6, shapes.shape)
        path = folder / f"{number:04d}.jpg"
        cv2.imwrite(str(path), np.clip(shapes + grain, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 90])
        joints = np.column_stack([rng.uniform(500, 800, 16), rng.uniform(100, 600, 16), np.full(16, 2)])
        people.append(Person(path.name, path, number, (450.0, 60.0, 400.0, 600.0), joints))
    return people


if __name__ == "__main__":
    main()
