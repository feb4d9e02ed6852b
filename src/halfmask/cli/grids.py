"""`halfmask compare` of a recipe that names a whole table, block by block, and of several strategies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from halfmask.cli.crews import absent, carry_out_runs

if TYPE_CHECKING:
    from halfmask.training.grids import Grid
    from halfmask.training.sweep import PlannedRun
    from halfmask.training.sweep_jobs import Crew


def compare_grid(
    grid: Grid,
    recipe: str,
    body: Mapping[str, Any],
    out: Path,
    seeds: Sequence[int],
    assignments: list[str],
    overlays: int = 4,
    as_json: bool = False,
    crew: Crew | None = None,
    dry: Callable[[Sequence[PlannedRun]], None] | None = None,
) -> None:
    """Run every cell of a table and print it as its paper does, our numbers beside the published ones.

    Each block is a comparison of its own, with a page of its own, below `out`; the table is `table.md` and `table.json` in it.

    Args:
        crew: who does the runs; this process, one after the other, if nobody is named.
        dry: told every run instead of anything being done.
    """
    from halfmask.cli.console import Console, TerminalProgress, note, say, say_json, warn
    from halfmask.gradients.mechanism import METHODS
    from halfmask.report.page import write_results
    from halfmask.report.paper_tables import paper_table
    from halfmask.tasks.base import task_named
    from halfmask.training.grids import plan_block
    from halfmask.training.setup import pick_device
    from halfmask.training.sweep import collect, is_done, remark
    from halfmask.training.sweep_jobs import exit_code
    from halfmask.writing import write_whole

    planned = {}
    whole = []
    for block in grid.blocks:
        lists = _silent(body, assignments)
        runs = plan_block(block, body, seeds, assignments, out, lists)
        planned[block.name] = runs
        filled: dict[str, Any] = {name: getattr(block, name) or tuple(values) for name, values in lists.items()}
        whole.append(replace(block, **filled))
    grid = replace(grid, blocks=tuple(whole))
    everything = [run for runs in planned.values() for run in runs]
    pick_device(everything[0].config.device)
    bare = sorted({run.config.method for run in everything if METHODS[run.config.method].private == "exact"})
    if bare and everything[0].config.data.name != "figures":
        warn(f"{', '.join(bare)} reads everybody without noise: it ends the account of the people in {everything[0].config.data.name}")
    if dry is not None:
        return dry(everything)
    judged: dict[str, Any] = {}
    try:
        with TerminalProgress() as progress:
            for name, runs in planned.items():
                # Before anything is trained: a test that cannot be read would show at the end of the first run alone.
                judged[name] = task_named(runs[0].config.task)(runs[0].config).load_test(progress.stage)
        outcomes = carry_out_runs(everything, crew)
        note("writing the table and the pages")
        missing, results = absent(everything, outcomes), {}
        for block in grid.blocks:
            folder, done = out / block.slug, [run for run in planned[block.name] if is_done(run.folder)]
            results[block.name] = collect(done, folder)
            if done:
                write_results(folder, recipe, done, results[block.name], judged[block.name], overlays, missing)
    except KeyboardInterrupt:
        note(f"stopped; the same command goes on where {out} stands")
        raise typer.Exit(130) from None
    table = paper_table(grid, f"{recipe}: methods compared", results)
    write_whole(out / "table.md", table.to_markdown().encode())
    write_whole(out / "table.json", (json.dumps(table.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
    if as_json:
        say_json(table.to_json())
        raise typer.Exit(exit_code(outcomes))
    # As wide as it is: a table of ten columns that was cut to the window would be no table.
    Console(width=max(Console().width, 34 + 12 * len(table.columns))).print(table.to_rich())
    if table.source:
        say(f"theirs: {table.source}")
    say(remark(everything))
    say(f"table: {out / 'table.md'}")
    for block in grid.blocks:
        say(f"page of '{block.name}': {out / block.slug / 'index.html'}")
    raise typer.Exit(exit_code(outcomes))


def _silent(body: Mapping[str, Any], assignments: list[str]) -> dict[str, list[Any]]:
    """What a block compares where neither it nor its group says."""
    from halfmask.gradients.mechanism import METHODS
    from halfmask.tasks.base import task_named
    from halfmask.training.config import build_config

    base = build_config(body, {}, assignments)
    kind = task_named(base.task)
    methods = [*(kind.compared or kind.methods)]
    if base.data.name != "figures":
        methods = [name for name in methods if METHODS[name].private != "exact"]
    return {"methods": methods, "epsilons": [base.epsilon], "clip_norms": [base.clip_norm]}
