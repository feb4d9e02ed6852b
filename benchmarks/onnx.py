"""An exported pose network beside torch: `python -m benchmarks.onnx RUN FILE`, where FILE is what `halfmask export RUN` wrote.

One thread each, turn by turn in one process, so that whatever else the machine does slows both alike; the median of the turns, per crop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from halfmask.data.figures import World
from halfmask.inference.onnx_file import open_onnx
from halfmask.tasks.graphs import pose_graph
from halfmask.training.outputs import CALIBRATION
from halfmask.training.runs import open_run, read_json

BATCHES = (1, 8, 32)
# The first turns warm caches up.
WARM = 3


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = open_onnx(options.file, threads=1)
    trained = open_run(options.run, "cpu")
    for parameter in trained.model.parameters():
        parameter.requires_grad = False
    module = pose_graph(trained.model, read_json(options.run / CALIBRATION) or {}, network.flip_test).module.eval()
    world = World("public", seed=1, size=network.input_size)
    crops = np.stack([world.figure(*who).image.transpose(2, 0, 1) for who in world.records(max(BATCHES))])
    weights = options.run / "model.safetensors"
    print(f"{os.path.getsize(options.file) / 1e6:.2f} MB as ONNX, {os.path.getsize(weights) / 1e6:.2f} MB as weights")
    print("batch  torch ms  onnxruntime ms  times as fast (quartiles over turns)")
    for batch in BATCHES:
        some = crops[:batch]
        pixels = torch.from_numpy(some)
        times: list[tuple[float, float]] = []
        with torch.no_grad():
            for _ in range(options.turns + WARM):
                times.append((seconds(lambda pixels=pixels: module(pixels)), seconds(lambda some=some: network(some))))
        torch_ms, onnx_ms = (1e3 * statistics.median(column) / batch for column in zip(*times[WARM:], strict=True))
        low, middle, high = statistics.quantiles([one / other for one, other in times[WARM:]], n=4)
        print(f"{batch:5d}  {torch_ms:8.2f}  {onnx_ms:14.2f}  {middle:.2f} ({low:.2f} to {high:.2f})")
    with torch.no_grad():
        expected = [part.numpy() for part in module(torch.from_numpy(crops))]
    found = network(crops)
    print(
        "largest difference: joints {:.2g} px, scores {:.2g}".format(*(np.abs(a - b).max() for a, b in zip(expected, found, strict=True)))
    )


if __name__ == "__main__":
    main()
