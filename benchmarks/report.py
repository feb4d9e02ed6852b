"""The report of 144 runs (4 ε × 3 clip norms × 3 strategies × 4 methods): how large it is, and how long a browser takes to open it.

    python -m benchmarks.report [--times 7]

Nothing is trained: folders are written by the code that writes those of real runs, with scores that are drawn and mean nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.gradients.mechanism import METHODS
from halfmask.privacy.certificate import Certificate
from halfmask.tasks.base import Scores
from halfmask.training.config import build_config, load_recipe
from halfmask.training.outputs import RunFolder

JOINTS = ("head", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
PUBLIC = [
    "the number of private units (1,000), the sampling rate and every hyper-parameter",
    "the test set on which the metrics were measured",
]


def write_run(folder: Path, assignments: Sequence[str] = (), recipe: str = "pose/figures", epochs: int = 10, **flags: Any) -> Path:
    """A folder as a finished run leaves it, but for its weights; its scores are drawn and mean nothing."""
    config = build_config(load_recipe(recipe), flags, list(assignments))
    method, rng = METHODS[config.method], np.random.default_rng([config.seed, len(str(folder))])
    run = RunFolder.create(folder, config)
    noised = method.private == "noised"
    bound = {"noised": config.epsilon, "unread": 0.0, "exact": math.inf}[method.private]
    run.log("start", steps=30 * epochs, noise_multiplier=1.3, sampling_rate=0.03, expected_batch=100.0, test_records=500)
    if method.projected:
        spectrum = sorted((10 * rng.random(100) ** 4 + 0.01).tolist(), reverse=True)
        run.log("subspace", step=0, subspace_dim=50, spectrum=spectrum, eigengap=0.01, captured_energy=0.93)
    for epoch in range(1, epochs + 1):
        spent = config.epsilon * math.sqrt(epoch / epochs) if noised else 0.0
        run.log("epoch", step=30 * epoch, epoch=float(epoch), public_loss=8 - epoch / 10 + rng.normal() / 50, epsilon=spent)
    run.log("end", step=30 * epochs, interrupted=False)
    level = 60 + 3 * math.log10(max(config.epsilon, 0.01)) * noised + rng.normal()
    parts = {name: float(level + 4 * rng.normal()) for name in JOINTS}
    run.save_metrics(config.task, config.data.name, "test", Scores({"pckh@0.5": level, "pckh@0.1": level / 5}, parts, "per_joint"))
    certificate = Certificate(
        method=config.method,
        unit="crop",
        units=1000,
        adjacency="zero-out",
        epsilon={relation.value: bound for relation in method.adjacencies},
        delta=config.delta,
        accountant="pld",
        noise_multiplier=1.3,
        sampling_rate=0.03,
        steps=30 * epochs,
        planned_steps=30 * epochs,
        clip_norm=config.clip_norm,
        expected_batch=100.0,
        public_assumptions=PUBLIC,
        noise_source="aes-256-ctr keyed by the operating system",
        ledger_total=4.2,
        dataset_fingerprint="0" * 32,
        dataset=config.data.name,
        run="drawn",
        run_name=folder.name,
        weights_sha256="0" * 64,
    )
    run.save_certificate(certificate)
    return folder


def write_sweep(
    out: Path,
    methods: Sequence[str] = ("dpsgd", "projected", "feature", "feature-projective"),
    epsilons: Sequence[float] = (0.2, 0.4, 0.6, 0.8),
    clips: Sequence[float] = (0.01, 0.1, 1.0),
    strategies: Sequence[str] = ("finetune", "full", "scratch"),
    seeds: Sequence[int] = (0,),
) -> int:
    """All combinations; methods without noise once for each strategy and seed. Returns how many runs there are."""
    grid = [
        (method, epsilon, clip, strategy, seed)
        for method in methods
        for strategy in strategies
        for seed in seeds
        for epsilon in (epsilons if METHODS[method].private == "noised" else epsilons[:1])
        for clip in (clips if METHODS[method].private == "noised" else clips[:1])
    ]
    for method, epsilon, clip, strategy, seed in grid:
        name = f"{method}-eps{epsilon:g}-clip{clip:g}-{strategy}-seed{seed}"
        write_run(out / "runs" / name, method=method, epsilon=epsilon, clip_norm=clip, strategy=strategy, seed=seed)
    return len(grid)


def opening_times(page: Path, times: int) -> tuple[list[float], list[float]]:
    """Seconds from the start of the navigation until all charts are drawn, in a fresh context each time; and of them, those that the page
    had the processor, which is what remains on a machine that does nothing else.
    """
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("there is no Chromium here to open the page with")
    found, busy = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(times):
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            tab = context.new_page()
            measured = context.new_cdp_session(tab)
            measured.send("Performance.enable", {"timeDomain": "threadTicks"})
            tab.goto(page.as_uri(), wait_until="load")
            found.append(tab.evaluate("performance.getEntriesByName('halfmask-drawn')[0].startTime") / 1000)
            numbers = {one["name"]: one["value"] for one in measured.send("Performance.getMetrics")["metrics"]}
            busy.append(numbers["TaskDuration"])
            context.close()
        browser.close()
    return found, busy


def main() -> None:
    from halfmask.report.build import report_page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("HALFMASK_HOME", f"{place}/home")
        count = write_sweep(Path(place) / "sweep")
        pages = {count: [Path(place) / "sweep"], 1: [next((Path(place) / "sweep" / "runs").iterdir())]}
        for runs, folders in pages.items():
            begun = time.perf_counter()
            page = Path(place) / f"report-{runs}.html"
            page.write_text(report_page(folders))
            written = time.perf_counter() - begun
            opened, busy = opening_times(page, times)
            print(
                f"{runs:>4} run(s): {page.stat().st_size / 1e6:.2f} MB, written in {written:.1f} s, "
                f"drawn {statistics.median(opened):.2f} s after it was opened (median of {times}; {min(opened):.2f} to {max(opened):.2f}), "
                f"{statistics.median(busy):.2f} s of it with the processor"
            )
    print(f"load of the machine over the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
