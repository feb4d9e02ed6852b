"""What finding the subspace costs beside an ordinary pass over the same records: `python -m benchmarks.subspace`.

Time: 100 records, 50 directions, against plain forward and backward passes over the same 100 records in the same chunks; interleaved.
Memory: how much a refresh adds to what the process held before, for 100 and for 1,000 records, each in a fresh process.
"""

from __future__ import annotations

import argparse
import warnings

import torch

from benchmarks.clipping import Step, as_published, pose_case
from benchmarks.timing import conditions, interleaved, peak_memory_of, print_peak
from halfmask.gradients.engine import ClippingEngine

CHUNK, DIRECTIONS = 25, 50


def refresh(records: int, directions: int = DIRECTIONS) -> Step:
    model, loss_fn, batch = pose_case("finetune", records)
    engine = ClippingEngine(model)
    return lambda: engine.subspace(loss_fn, batch, directions, CHUNK)


def plain_passes(records: int) -> Step:
    model, loss_fn, batch = pose_case("finetune", records)

    def passes() -> None:
        with as_published():
            for start in range(0, records, CHUNK):
                model.zero_grad()
                loss_fn(model, {key: value[start : start + CHUNK] for key, value in batch.items()}).mean().backward()

    return passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory", type=int, nargs="*", default=[100, 1000], help="numbers of records to measure memory for")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    if options.peak_of:
        print_peak(lambda: refresh(options.peak_of), times=1)
        return
    print(conditions())
    if options.rounds:
        contenders = {"plain passes": plain_passes(100), "refresh": refresh(100)}
        print(f"100 records, {DIRECTIONS} directions, TinyViT-5M finetune, chunks of {CHUNK}: {options.rounds} interleaved rounds")
        for name, timed in interleaved(contenders, "plain passes", options.rounds).items():
            print(f"  {name:20s} {timed}", flush=True)
    for records in options.memory:
        peak = peak_memory_of("benchmarks.subspace", "--peak-of", str(records), "--threads", str(options.threads))
        print(f"  {records} records: peak {peak or float('nan'):.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
