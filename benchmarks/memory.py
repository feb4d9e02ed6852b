"""How much memory a dataset takes: `python -m benchmarks.memory [--crops N] [--photographs N] [--large N]`.

Crops through the real store, their views, their features and two steps of `dpsgd`, for N people and for 4 N, and photographs that are
opened and cut out; each in a process of its own. Then a dataset of which only the sizes are real: files of 150,000 crops of 256×192 and of
their features below the top of TinyViT-5M, nothing in them, and two steps on a batch of 256.

Two kinds of memory are told apart. *Resident* is all that the process holds at its peak (`VmHWM`), with the pages of files that it reads
through a mapping: the kernel takes those back when somebody needs them. *Anonymous* (`RssAnon`, looked at every 5 ms) is what it cannot
take back, and what a machine must have. Beside each peak stands how far it rose above what the process held before the stage began.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch

from benchmarks.timing import conditions
from halfmask.data.people import Annotations, Part, Person
from halfmask.data.pose_records import PoseRecords, pose_records
from halfmask.data.prints import named_prints
from halfmask.data.reading import read_people
from halfmask.data.records import PRIVATE, Datasets
from halfmask.data.skeleton import MPII
from halfmask.data.store import Draft, cached_by_row
from halfmask.data.viewing import with_view
from halfmask.models.simcc import PoseModel
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare
from halfmask.training.strategy import features_key, with_lower_features
from halfmask.views import make_view

SIZE = (256, 192)
STEPS = 2
STAGES = ("photographs", "crops", "views", "features", "steps")
GOAL, MOST = 1.1, 4.0


class Watch:
    """The peaks of this process while it is open."""

    def __enter__(self) -> Watch:
        # From here on: the peak of what came before is forgotten.
        Path("/proc/self/clear_refs").write_text("5")
        self.before = {"VmHWM": _status("VmRSS"), "RssAnon": _status("RssAnon")}
        self.anonymous, self.done = self.before["RssAnon"], threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        self.start = time.perf_counter()
        return self

    def _look(self) -> None:
        while not self.done.wait(0.005):
            self.anonymous = max(self.anonymous, _status("RssAnon"))

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self.start
        self.done.set()
        self.thread.join()
        peaks = {"VmHWM": _status("VmHWM"), "RssAnon": max(self.anonymous, _status("RssAnon"))}
        print("measured", *(f"{value:.1f}" for name in peaks for value in (peaks[name], peaks[name] - self.before[name])), f"{seconds:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crops", type=int, default=2000, help="N for crops, views, features and steps")
    parser.add_argument("--photographs", type=int, default=1000, help="N for photographs")
    parser.add_argument("--large", type=int, default=150_000, help="people of the dataset beyond memory; 0 for none")
    parser.add_argument("--stage", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    if arguments.stage:
        _run(arguments.stage[0], int(arguments.stage[1]), Path(arguments.stage[2]))
        return
    print(f"{conditions()}; MiB at the peak (rise above what was held before), N and 4 N people\n")
    print("| stage | people | on disk | resident | anonymous | seconds | resident 4N : N | anonymous 4N : N |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        worst = 0.0
        for stage in STAGES:
            few = arguments.photographs if stage == "photographs" else arguments.crops
            found = [_measure(stage, count, Path(folder)) for count in (few, 4 * few)]
            ratios = [found[1][kind] / found[0][kind] for kind in (0, 2)]
            worst = max(worst, *ratios)
            for count, numbers, end in zip((few, 4 * few), found, ("| |", f"{ratios[0]:.3f} | {ratios[1]:.3f} |"), strict=True):
                print(f"| {stage} | {count:,} | {_line(numbers)} | {end}", flush=True)
        shutil.rmtree(Path(folder) / "home")
        if arguments.large:
            numbers = _measure("large", arguments.large, Path(folder))
            print(f"| {STEPS} steps, TinyViT-5M | {arguments.large:,} | {_line(numbers)} | | |")
            print(
                f"\n{arguments.large:,} people: {numbers[0] / 1024:.2f} GiB resident at most, {numbers[2] / 1024:.2f} GiB of it anonymous"
            )
            print(f"goal: below {MOST:g} GiB: {'met' if numbers[0] < MOST * 1024 else 'not met'}")
    print(f"largest ratio {worst:.3f}; goal: at most {GOAL:g}: {'met' if worst <= GOAL else 'not met'}")


def _line(numbers: list[float]) -> str:
    resident, rise, anonymous, anonymous_rise, seconds, disk = numbers
    return f"{disk:,.0f} | {resident:,.0f} (+{rise:,.0f}) | {anonymous:,.0f} (+{anonymous_rise:,.0f}) | {seconds:.1f}"


def _measure(stage: str, count: int, folder: Path) -> list[float]:
    """Peak resident, its rise, peak anonymous, its rise, seconds, and MiB of the files that lie there then (their length)."""
    home = folder / "home" / (f"photographs-{count}" if stage == "photographs" else f"{count}")
    if stage == "photographs":
        _photographs(folder, count)
    command = [sys.executable, "-m", "benchmarks.memory", "--stage", stage, str(count), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HALFMASK_HOME": str(home)})
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode or not lines:
        raise SystemExit(f"{stage} of {count} people failed:\n{done.stderr}")
    length = sum(path.stat().st_size for path in home.rglob("*.npy"))
    return [*(float(value) for value in lines[-1]), length / 2**20]


def _run(stage: str, count: int, folder: Path) -> None:
    stages: dict[str, Callable[[int, Path], None]] = {
        "photographs": _open_photographs,
        "crops": lambda count, _: _watched(lambda: _crops(count)),
        "views": lambda count, _: _see(_crops(count)),
        "features": lambda count, _: _look_below(_crops(count)),
        "steps": lambda count, folder: _train(_config("nano", 64), lambda: _crops(count), folder),
        "large": _large,
    }
    stages[stage](count, folder)


def _watched(work: Callable[[], object]) -> None:
    with Watch():
        work()


def _crops(count: int, empty: bool = False) -> PoseRecords:
    """Crops of noise; `empty` for files of which only the length is real."""

    def write(draft: Draft) -> None:
        images = draft.fields({"images": (np.uint8, (3, *SIZE))}, count)["images"]
        rng = np.random.default_rng(0)
        for row in range(0 if empty else count):
            images[row] = np.frombuffer(rng.bytes(3 * SIZE[0] * SIZE[1]), np.uint8).reshape(3, *SIZE)

    rng = np.random.default_rng(1)
    images = cached_by_row("records", f"noise {count} {empty}", write)["images"]
    joints = (rng.random((count, len(MPII), 2)) * np.array(SIZE[::-1])).astype(np.float32)
    everyone = np.arange(count)
    return pose_records(
        images=images,
        joints=joints,
        labelled=np.ones((count, len(MPII)), bool),
        head_boxes=np.tile(np.float32([10, 10, 22, 24]), (count, 1)),
        image_ids=everyone,
        key=f"noise {count}",
        prints=named_prints([f"noise {person}" for person in everyone]),
    )


def _see(records: PoseRecords) -> None:
    view = make_view("blur", {})
    with Watch():
        with_view(records, view)


def _config(size: str, batch: int) -> RunConfig:
    recipe = {"method": "dpsgd", "strategy": "top", "batch": batch, "epochs": 1, "even_so": True, "insecure_seed": 1, "delta": 1e-6}
    model = {"size": size, "weights": None, "input_size": list(SIZE)}
    return build_config(recipe | {"model": model, "device": "cpu"}, {}, [])


def _network(config: RunConfig) -> PoseModel:
    torch.manual_seed(0)
    return PoseModel(config.model.size, len(MPII), SIZE).eval()


def _look_below(records: PoseRecords) -> None:
    task = PoseTask(_config("nano", 64))
    lower = task.lower(_network(task.config))
    with Watch():
        with_lower_features(records, task, lower)


def _train(config: RunConfig, people: Callable[[], PoseRecords], folder: Path) -> None:
    """From records to the end of the second step. The seconds are those of the steps."""
    with Watch() as watch:
        records = people()
        data = Datasets(records, None, None, "noise", records.prints)  # type: ignore[arg-type]
        setup = prepare(config, Progress(), data, _network(config))
        run = Path(tempfile.mkdtemp(dir=folder)) / "run"
        trainer = Trainer(setup, RunFolder.create(run, config), Progress())
        trainer.refresh()
        watch.start = time.perf_counter()
        for _ in range(STEPS):
            trainer.take_step()
            trainer.standing.step += 1


def _large(count: int, folder: Path) -> None:
    config = _config("5m", 256)

    def people() -> PoseRecords:
        lower = PoseTask(config).lower(_network(config))
        with torch.no_grad():
            shape = tuple(lower.features({"image": torch.zeros(1, 3, *SIZE, dtype=torch.uint8)}).shape[1:])
        records = _crops(count, empty=True)
        fields = {"features": (np.float16, shape)}
        cached_by_row("features", features_key(records, PRIVATE, lower), lambda draft: draft.fields(fields, count) and None)
        return records

    _train(config, people, folder)


def _photographs(folder: Path, count: int) -> None:
    (folder / "photographs").mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / "photographs" / f"{number:06d}.jpg"
        if not path.is_file():
            cv2.imwrite(str(path), cv2.resize(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8), (320, 240)))


def _open_photographs(count: int, folder: Path) -> None:
    """Everybody but one in fifty, whose file is damaged: those who stay are moved up."""
    joints = np.column_stack([np.linspace(100, 200, 16), np.linspace(30, 200, 16), np.full(16, 2)])
    names = [f"{number:06d}.jpg" for number in range(count)]
    people = tuple(
        Person(name, folder / ("photographs" if number % 50 else "nowhere") / name, number, (90.0, 20.0, 120.0, 190.0), joints)
        for number, name in enumerate(names)
    )
    annotations = Annotations("folder", folder, MPII, {"all": Part("all", tuple(names), people)}, ())
    with Watch():
        records, left_out = read_people(annotations, annotations.parts["all"], SIZE, on_bad="skip")
    assert len(records) + len(left_out) == count and len(left_out) == -(-count // 50)


def _status(field: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main()
