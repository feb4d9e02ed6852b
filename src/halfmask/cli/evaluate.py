"""`halfmask evaluate`: score a run's model on a test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.settings import DeviceOption, JsonOption, ThreadsOption, use_threads

if TYPE_CHECKING:
    from rich.table import Table

_SCORING = "What is scored"


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Another dataset's test split: 'figures', a folder, or a name. (default: the run's)",
            rich_help_panel=_SCORING,
        ),
    ] = None,
    flip_test: Annotated[
        bool,
        typer.Option(
            "--flip-test/--no-flip-test",
            help="Also look at the mirror image and average.",
            rich_help_panel=_SCORING,
        ),
    ] = True,
    views: Annotated[
        bool,
        typer.Option(
            "--views",
            help="Also score on ψ of the test images, the run's public view.",
            rich_help_panel=_SCORING,
        ),
    ] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a run's model on a test split: PCKh by joint group and on average.

    metrics.json is rewritten when the run's own dataset is scored as training does it, with the flip test.
    """
    from dataclasses import replace

    from halfmask.cli.console import Console, TerminalProgress, say, say_json
    from halfmask.data.datasets import DataConfig, load_test, with_view
    from halfmask.tasks.pose import evaluate as score
    from halfmask.training.outputs import RunFolder
    from halfmask.training.runs import open_run
    from halfmask.views import make_view

    use_threads(threads)
    trained = open_run(run, device)
    config = trained.config
    chosen = replace(config.data, name=data or config.data.name)
    if chosen.name == "figures" and not chosen.test:
        chosen = replace(chosen, test=DataConfig().test)
    with TerminalProgress() as progress:
        people = load_test(chosen, config.model.input_size, progress.stage)
        metrics, per_joint = score(trained.model, people, "image", flip_test, trained.device)
        seen_through = None
        if views:
            people = with_view(people, make_view(config.view.name, config.view.options))
            seen_through, _ = score(trained.model, people, "view", flip_test, trained.device)
    own = chosen.name == config.data.name
    if own and flip_test:
        RunFolder(run).save_metrics(config.task, chosen.name, "test", metrics, per_joint)
    if as_json:
        body = {
            "task": config.task,
            "dataset": chosen.name,
            "split": "test",
            "people": len(people),
            "flip_test": flip_test,
        }
        body |= {"metrics": _without_nan(metrics), "per_joint": _without_nan(per_joint)}
        say_json(body | ({"views": _without_nan(seen_through)} if seen_through is not None else {}))
        return
    Console().print(score_table(metrics, seen_through, f"{len(people)} people of {chosen.name}, test"))
    if own and flip_test:
        say(f"written: {run / 'metrics.json'}")


def score_table(metrics: dict[str, float], views: dict[str, float] | None, title: str) -> Table:
    """Joint groups down, so that the table fits a narrow terminal."""
    from rich.table import Table

    from halfmask.report.tables import format_metric, heading

    table = Table(title=title, title_justify="left")
    table.add_column("PCKh@0.5")
    table.add_column("Images", justify="right")
    if views is not None:
        table.add_column("Views ψ", justify="right")
    groups = [name for name in metrics if "/" in name]
    for name in (*groups, "pckh@0.5", "pckh@0.1"):
        label = {"pckh@0.5": "Mean", "pckh@0.1": "Mean PCKh@0.1"}.get(name, heading(name))
        if name == "pckh@0.5":
            table.add_section()
        table.add_row(label, format_metric(metrics[name]), *([format_metric(views[name])] if views is not None else []))
    return table


def _without_nan(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a joint that was never annotated has no score."""
    return {name: None if value != value else round(value, 4) for name, value in values.items()}
