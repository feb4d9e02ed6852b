"""`halfmask compare --dry-run`: what a sweep would be, and how long it would take here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from halfmask.cli.console import TerminalProgress, say, say_json, warn

if TYPE_CHECKING:
    from halfmask.training.sweep import PlannedRun


def dry_run(planned: Sequence[PlannedRun], size: int | None, at_once: int, threads: int | None, as_json: bool) -> None:
    """Show every run with its noise, its steps, and an estimate of time and memory."""
    from halfmask.training.sweep_estimate import estimate, together

    with TerminalProgress() as progress:
        found = estimate(planned, progress, size, threads)
    config, cost = planned[0].config, together(planned, found)
    times = [one.seconds for one in found]
    whole = None if None in times else sum(time for time in times if time is not None)
    if as_json:
        body = {
            "runs": [one.to_json() for one in found],
            "epsilon_together": cost,
            "delta": config.delta,
            "seconds_one_after_another": whole,
        }
        say_json(body)
        return
    table = Table()
    for name, side in (("Run", "left"), ("ε", "right"), ("σ", "right"), ("Steps", "right"), ("Time", "right"), ("Memory", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for one in found:
        asked = "—" if one.epsilon is None else f"{one.epsilon:g}"
        sigma = "—" if not one.noise_multiplier else f"{one.noise_multiplier:.3g}"
        table.add_row(one.run, asked, sigma, f"{one.steps:,}", duration(one.seconds), _gigabytes(one.memory_bytes))
    Console().print(table)
    where = f"{found[0].units:,} {config.unit}s, δ = {config.delta:g}"
    if cost:
        say(f"all noised runs together would cost ε = {cost:.4g} ({where})")
    if whole is not None:
        side = f", about {duration(whole / at_once)} with {at_once} at once if they do not get in each other's way" if at_once > 1 else ""
        say(f"about {duration(whole)} on this machine, one after the other{side}; from a few steps timed on public people")
    for remark in dict.fromkeys(one.remark for one in found if one.remark):
        warn(f"{sum(one.remark == remark for one in found)} of {len(found)} runs: {remark}")
    say("nothing private was opened, nothing was spent, and nothing was written to a run's folder")


def duration(seconds: float | None) -> str:
    """A time as people say it."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _gigabytes(size: int | None) -> str:
    return "—" if size is None else f"{size / 1e9:.1f} GB"
