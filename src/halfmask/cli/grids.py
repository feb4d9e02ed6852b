"""`halfmask compare` of a recipe that names a whole table, block by block, and of several strategies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from halfmask.training.grids import Grid


def compare_grid(
    grid: Grid,
    recipe: str,
    body: Mapping[str, Any],
    out: Path,
    seeds: Sequence[int],
    assignments: list[str],
    overlays: int = 4,
    as_json: bool = False,
) -> None:
    """Run every cell of a table and print it as its paper does, our numbers beside the published ones.

    Each block is a comparison of its own, with a page of its own, below `out`; the table is `table.md` and `table.json` in it.
    """
    from halfmask.cli.console import Console, TerminalProgress, note, say, say_json, warn
    from halfmask.gradients.mechanism import METHODS
    from halfmask.report.page import write_results
    from halfmask.report.paper_tables import paper_table
    from halfmask.tasks.base import task_named
    from halfmask.training.grids import plan_block
    from halfmask.training.setup import pick_device
    from halfmask.training.sweep import collect, do_run, remark
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
    judged: dict[str, Any] = {}
    try:
        with TerminalProgress() as progress:
            for name, runs in planned.items():
                # Before anything is trained: a test that cannot be read would show at the end of the first run alone.
                judged[name] = task_named(runs[0].config.task)(runs[0].config).load_test(progress.stage)
            for number, run in enumerate(everything, 1):
                progress.next_run()
                name = next(name for name, runs in planned.items() if run in runs)
                do_run(run, f"run {number}/{len(everything)}: {name}: {run.combination.label}", progress)
        note("writing the table and the pages")
        results = {}
        for block in grid.blocks:
            folder = out / block.slug
            results[block.name] = collect(planned[block.name], folder)
            write_results(folder, recipe, planned[block.name], results[block.name], judged[block.name], overlays)
    except KeyboardInterrupt:
        note(f"stopped; the same command goes on where {out} stands")
        raise typer.Exit(130) from None
    table = paper_table(grid, f"{recipe}: methods compared", results)
    write_whole(out / "table.md", table.to_markdown().encode())
    write_whole(out / "table.json", (json.dumps(table.to_json(), indent=1, ensure_ascii=False) + "\n").encode())
    if as_json:
        say_json(table.to_json())
        return
    # As wide as it is: a table of ten columns that was cut to the window would be no table.
    Console(width=max(Console().width, 34 + 12 * len(table.columns))).print(table.to_rich())
    if table.source:
        say(f"theirs: {table.source}")
    say(remark(everything))
    say(f"table: {out / 'table.md'}")
    for block in grid.blocks:
        say(f"page of '{block.name}': {out / block.slug / 'index.html'}")


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
