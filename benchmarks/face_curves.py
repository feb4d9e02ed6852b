"""Loss and score of each face task over epochs, private beside plain: `python -m benchmarks.face_curves OUT`.

What the face paper shows in its Figures 3 to 5 and its Table 2, on drawn close-ups: HyperFace as it is trained without privacy and at three
ε. The table gives the difference to the run without privacy of the same seed with a 95 % interval over seeds, in the place of the paper's
t-test, and the paper's own final figures beside it. Besides, the share of faces below each landmark error at the end. Runs that are there
are not made again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from halfmask.data.records import PRIVATE
from halfmask.metrics.faces import cumulative, landmark_errors
from halfmask.models.hyperface import SUBTASKS
from halfmask.report import canvas
from halfmask.report.overlay import save_png
from halfmask.tasks.face import HEADLINES, FaceTask, said_of, subtask_losses
from halfmask.training.config import build_config, load_recipe
from halfmask.training.progress import Progress
from halfmask.training.running import train_prepared
from halfmask.training.setup import Setup, prepare

RUNS = {"without privacy": ("non-private", 5.0), "ε = 10": ("dpsgd", 10.0), "ε = 5": ("dpsgd", 5.0), "ε = 0.7": ("dpsgd", 0.7)}
# At the end of the paper's training: without privacy, and at ε = 5 "per epoch"; accuracies in %, squared errors.
PUBLISHED = {"detection": (99, 90), "landmarks": (0.245, 0.255), "visibility": (0.2, 0.25), "pose": (0.24, 0.27), "attribute": (90, 86)}
LIMITS = np.linspace(0, 0.2, 41)


class Watching(Progress):
    """Scores the model on the public test set after every epoch."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        self.epochs: list[dict[str, float]] = []

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
        assert self.setup is not None
        if step % self.setup.steps_per_epoch == 0 or step == total:
            self.epochs.append(scored(self.setup))


@torch.no_grad()
def scored(setup: Setup) -> dict[str, float]:
    """Mean losses of the tasks, and the score of each, on the test set."""
    model, test = setup.model, setup.data.test
    assert test is not None and isinstance(setup.task, FaceTask)
    losses: dict[str, list[torch.Tensor]] = {name: [] for name in SUBTASKS}
    for batch in test.batches(PRIVATE, setup.device, 256):
        for name, loss in subtask_losses(model.upper(batch["features"]), batch).items():
            losses[name].append(loss)
    scores = setup.task.score(model, test).parts
    return {f"loss/{name}": float(torch.cat(parts).mean()) for name, parts in losses.items()} | scores


def run_once(name: str, seed: int, out: Path) -> None:
    place = out / f"{name.replace(' ', '')}-{seed}"
    if (place / "curves.json").is_file():
        return
    method, epsilon = RUNS[name]
    flags = {"method": method, "epsilon": epsilon, "seed": seed, "even_so": True}
    watching = Watching()
    setup = watching.setup = prepare(build_config(load_recipe("face/figures"), flags, []), Progress())
    watching.epochs.append(scored(setup))
    train_prepared(setup, place, watching)
    test = setup.data.test
    everyone = np.arange(len(test))
    targets, truth = test.targets.rows(everyone), test.truth.rows(everyone)
    face = targets["face"] > 0.5
    said = said_of(setup.model, test)["landmarks"][face]
    errors = landmark_errors(said, targets["landmarks"][face], targets["visible"][face], truth["boxes"][face], truth["face_boxes"][face])
    body = {"epochs": watching.epochs, "cumulative": cumulative(errors, LIMITS).tolist()}
    (place / "curves.json").write_text(json.dumps(body))
    print(name, seed, flush=True)


def panel(picture: np.ndarray, at: tuple[int, int], title: str, lines: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """One chart of lines over epochs."""
    left, top, width, height = at[0] + 56, at[1] + 30, 230, 150
    every = np.concatenate([values for _, values in lines.values()])
    ticks = canvas.nice_ticks(float(every.min()), float(every.max()), 5)
    last = max(float(steps[-1]) for steps, _ in lines.values())
    for tick in ticks:
        y = top + height * (1 - (tick - ticks[0]) / (ticks[-1] - ticks[0]))
        canvas.draw_line(picture, (left, y), (left + width, y), canvas.GRID)
        canvas.draw_text(picture, f"{tick:g}", (left - 6, y), 0.38, align="right")
    for number, (steps, values) in enumerate(lines.values()):
        places = [
            (left + width * float(x) / last, top + height * (1 - (float(y) - ticks[0]) / (ticks[-1] - ticks[0])))
            for x, y in zip(steps, values, strict=True)
        ]
        canvas.draw_path(picture, places, canvas.PALETTE[number], 2)
    canvas.draw_text(picture, title, (left, at[1] + 14), 0.45)


def draw(bodies: dict[str, list[dict[str, list[dict[str, float]]]]]) -> np.ndarray:
    picture = canvas.blank(5 * 300 + 20, 3 * 215 + 40)
    rows = [[(f"loss/{name}", f"{name}: loss") for name in SUBTASKS], [(name, HEADLINES[name].replace("_", " ")) for name in SUBTASKS]]
    for row, cells in enumerate(rows):
        for column, (key, title) in enumerate(cells):
            lines = {}
            for name, found in bodies.items():
                values = np.mean([[epoch[key] for epoch in body["epochs"]] for body in found], axis=0)
                lines[name] = (np.arange(len(values)), values)
            panel(picture, (column * 300, row * 215), title, lines)
    shares = {name: (LIMITS, np.mean([body["cumulative"] for body in found], axis=0)) for name, found in bodies.items()}
    panel(picture, (0, 430), "share of faces below a landmark error (of face size, to 0.2)", shares)
    for number, name in enumerate(bodies):
        canvas.draw_line(picture, (420, 480 + 26 * number), (460, 480 + 26 * number), canvas.PALETTE[number], 3)
        canvas.draw_text(picture, name, (470, 480 + 26 * number), 0.5)
    return picture


def differences(bodies: dict[str, list[dict[str, list[dict[str, float]]]]]) -> None:
    """At the end, and by the seeds' own runs without privacy: what privacy costs."""
    open_runs = bodies["without privacy"]
    print("| task | without privacy | " + " | ".join(f"{name}: difference (95 %)" for name in list(bodies)[1:]) + " | published: H, DPLH |")
    print("|---" * (len(bodies) + 2) + "|")
    for task in SUBTASKS:
        plain = np.array([body["epochs"][-1][task] for body in open_runs])
        cells = [f"{plain.mean():.3f}"]
        for name in list(bodies)[1:]:
            apart = np.array([body["epochs"][-1][task] for body in bodies[name]])[: len(plain)] - plain[: len(bodies[name])]
            reach = stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else float("nan")
            cells.append(f"{apart.mean():+.3f} ± {reach:.3f}")
        print(f"| {HEADLINES[task].replace('_', ' ')} | {' | '.join(cells)} | {PUBLISHED[task][0]:g}, {PUBLISHED[task][1]:g} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        # Private runs first: one without privacy ends the account of these people.
        for name in reversed(RUNS):
            run_once(name, seed, options.out)
    bodies = {
        name: [json.loads((options.out / f"{name.replace(' ', '')}-{seed}" / "curves.json").read_text()) for seed in range(options.seeds)]
        for name in RUNS
    }
    differences(bodies)
    save_png(options.out / "face-curves.png", draw(bodies))
    print(options.out / "face-curves.png")


if __name__ == "__main__":
    main()
