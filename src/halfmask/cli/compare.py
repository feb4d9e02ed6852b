"""`halfmask compare`: methods side by side, over budgets, clip norms and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.crews import absent, carry_out_runs, crew_for
from halfmask.cli.grids import compare_grid
from halfmask.cli.settings import (
    OUTPUT_PANEL,
    RUN_PANEL,
    DeviceOption,
    JsonOption,
    SetOption,
    ThreadsOption,
    default_sweep_folder,
    names,
    numbers,
    use_threads,
    whole_numbers,
)
from halfmask.cli.tradeoff import MatchedOption, PeopleOption, measure_tradeoff, shares, show
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    pass

_GRID = "What is compared"


def compare(
    recipe: Annotated[str, typer.Argument(help="Name (see 'halfmask recipes') or path of a recipe.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs, the table and the page. (default: runs/ and the recipe's name)", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="'figures', a dataset folder, or a name below $HALFMASK_DATA. (default: the recipe's)", rich_help_panel=_GRID),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, with commas between. (default: all of the task's; non-private, which ends an account, on 'figures' alone)",
            rich_help_panel=_GRID,
        ),
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(help="Values of ε, with commas between. (default: the recipe's)", rich_help_panel=_GRID),
    ] = None,
    clips: Annotated[
        str | None,
        typer.Option(help="Clip norms, with commas between. (default: the recipe's)", rich_help_panel=_GRID),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(help="Training strategies, with commas between. (default: the recipe's)", rich_help_panel=_GRID),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, with commas between.", rich_help_panel=_GRID)] = "0",
    assignments: SetOption = None,
    tradeoff: Annotated[
        bool | None,
        typer.Option(
            help="For the task generate: measure utility against identity too, as 'halfmask audit tradeoff' does. It reads private people "
            "without noise. (default: on 'figures' alone)",
            rich_help_panel=_GRID,
        ),
    ] = None,
    people: PeopleOption = None,
    matched: MatchedOption = None,
    overlays: Annotated[
        int,
        typer.Option(min=0, help="Test people to show in overlays.png; 0 for none.", rich_help_panel=OUTPUT_PANEL),
    ] = 4,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs at the same time, each in a process of its own; --threads is then of each. (default: 1)",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Runs on a Ray cluster: its address, 'auto' for the one of this machine, 'local' to make one. All spend through the "
            "ledger here.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(
            min=0, help="GPUs that each run asks Ray for, or a share of one. (default: 1 where there are any)", rich_help_panel=RUN_PANEL
        ),
    ] = None,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only show every run with its noise, its steps, and how long it would take here. Opens nothing private, spends nothing.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            min=1, help="For --dry-run: how many units there are to protect. (default: what annotations say)", rich_help_panel=RUN_PANEL
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run every combination and lay the results side by side, in a table, a chart, pictures and a page.

    The same command goes on where it was stopped. Methods without noise run once per seed. A recipe that names a whole table (see
    'halfmask recipes', pose/paper) is run and printed as such; the options then choose some of its rows. Exits with code 2 if a run was
    refused, and with 1 if one failed; the others are in the table all the same.
    """
    from halfmask.cli.console import Console, TerminalProgress, note, say, say_json
    from halfmask.cli.dry_run import dry_run
    from halfmask.gradients.mechanism import METHODS
    from halfmask.metrics.names import shown
    from halfmask.report.page import write_results
    from halfmask.report.tables import method_tables
    from halfmask.tasks.base import task_named
    from halfmask.training.config import build_config, load_recipe
    from halfmask.training.grids import load_grid, narrowed, of_strategies
    from halfmask.training.override import nested
    from halfmask.training.setup import pick_device
    from halfmask.training.sweep import collect, expand, is_done, plan_sweep
    from halfmask.training.sweep_jobs import exit_code

    body = load_recipe(recipe) | ({} if device is None else {"device": device})
    body = nested({**body, **({} if data is None else {"data.name": data})})
    out = out or default_sweep_folder(recipe)
    changes = assignments or []
    chosen = [] if methods is None else names(methods, "--methods")
    some = None if strategies is None else names(strategies, "--strategies")
    grid = load_grid(recipe) or (None if some is None else of_strategies(some))
    crew = None if dry else crew_for(out, workers, ray, threads, gpus)
    if grid is not None:
        budgets = None if epsilons is None else numbers(epsilons, "--epsilons")
        norms = None if clips is None else numbers(clips, "--clips")
        use_threads(threads)
        compare_grid(
            narrowed(grid, chosen or None, budgets, norms, some),
            recipe,
            body,
            out,
            whole_numbers(seeds, "--seeds"),
            changes,
            overlays,
            as_json,
            crew,
            (lambda runs: dry_run(runs, size, workers or 1, threads, as_json)) if dry else None,
        )
        return
    base = build_config(body, {"method": chosen[0]} if chosen else {}, changes)
    kind = task_named(base.task)
    chosen = chosen or [*(kind.compared or kind.methods)]
    if methods is None and base.data.name != "figures":
        # A run without noise ends the account of real people: nobody gets one unasked.
        chosen = [name for name in chosen if METHODS[name].private != "exact"]
    if tradeoff is None:
        # The attack reads private people without noise: of real ones, too, only if asked for.
        tradeoff = kind.name == "generate" and base.data.name == "figures"
    if tradeoff and kind.name != "generate":
        raise HalfmaskError(f"--tradeoff measures pictures of the task generate, and {recipe} is of the task {kind.name}: leave it out")
    heights = shares(matched)
    pick_device(base.device)
    use_threads(threads)
    cells = expand(
        chosen,
        [base.epsilon] if epsilons is None else numbers(epsilons, "--epsilons"),
        [base.clip_norm] if clips is None else numbers(clips, "--clips"),
        whole_numbers(seeds, "--seeds"),
    )
    planned = plan_sweep(body, cells, changes, out)
    if dry:
        return dry_run(planned, size, workers or 1, threads, as_json)
    try:
        with TerminalProgress() as progress:
            judged = kind(base).load_test(progress.stage)
        outcomes = carry_out_runs(planned, crew)
        done = [run for run in planned if is_done(run.folder)]
        if not done:
            raise HalfmaskError(f"none of the {len(planned)} runs came to its end; the first: {outcomes[0].words}")
        found = None
        if tradeoff:
            place = out / "audit" if base.data.name == "figures" else None
            found, findings = measure_tradeoff([(None, run.folder) for run in done], place, True, people, matched=heights, device=device)
        note("writing the table and the page")
        results = write_results(out, recipe, done, collect(done, out), judged, overlays, absent(planned, outcomes))
    except KeyboardInterrupt:
        note(f"stopped; the same command goes on where {out} stands")
        raise typer.Exit(130) from None
    if as_json:
        say_json(results)
        raise typer.Exit(exit_code(outcomes))
    metrics = shown(name for row in results["summary"] for name in row if isinstance(row[name], dict))
    for table in method_tables(results["summary"], metrics):
        Console().print(table)
    say(f"optimiser: {results['optimiser']}")
    say(results["remark"])
    if found is not None:
        show(found)
        say(f"trade-off: {findings / 'index.html'}")
    say(f"page: {out / 'index.html'}")
    raise typer.Exit(exit_code(outcomes))
