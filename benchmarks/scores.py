"""What scores are worth on people they were not calibrated on: `python -m benchmarks.scores RUN [--set data.splits.test=5501-5800]`.

For each way of looking, the mean distance between a joint's chance and how often such joints were right (ten groups of equal size), of the
run's calibrated scores and of the network's own; and the shares right in the lowest and the highest group.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from halfmask.data.pose_records import PoseRecords
from halfmask.metrics.calibration import WITHIN, Calibration, expected_error
from halfmask.metrics.pck import torso_lengths
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import PoseTask, predict
from halfmask.training.config import build_config, load_recipe
from halfmask.training.outputs import CALIBRATION
from halfmask.training.runs import open_run, read_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--people", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trained = open_run(options.run, "cpu")
    config = build_config(load_recipe(str(options.run / "config.yaml")), {}, options.settings)
    test = PoseTask(config).load_test()
    test = test.take(np.arange(min(options.people, len(test))))
    assert isinstance(test, PoseRecords) and isinstance(trained.model, PoseModel)
    known, truth = np.asarray(test.scored(), bool), np.asarray(test.joints, np.float64)
    torsos = torso_lengths(truth, known, test.skeleton)
    counted = known & np.isfinite(torsos)[:, None]
    print(f"{len(test)} people, {counted.sum()} joints")
    print("way    right %  error of chances  error of own scores  right where least sure  most sure")
    for name, body in (read_json(options.run / CALIBRATION) or {}).items():
        placed, scores = predict(trained.model, np.asarray(test.images), name == "flip")
        with np.errstate(invalid="ignore"):
            right = (np.linalg.norm(placed - truth, axis=2) <= WITHIN * torsos[:, None])[counted]
        own = scores[counted]
        chances = Calibration.from_json(body)(own)
        groups = np.array_split(np.argsort(chances, kind="stable"), 10)
        ends = [100 * right[groups[place]].mean() for place in (0, -1)]
        errors = [100 * expected_error(values, right) for values in (chances, own)]
        print(f"{name:6s} {100 * right.mean():7.1f}  {errors[0]:16.1f}  {errors[1]:19.1f}  {ends[0]:22.1f}  {ends[1]:9.1f}")


if __name__ == "__main__":
    main()
