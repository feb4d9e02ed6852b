"""`halfmask evaluate`: score a run's model on a test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.settings import DeviceOption, JsonOption, ThreadsOption, use_threads
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from rich.table import Table

    from halfmask.data.records import Records

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
    images: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            help="Which images to score on, such as 5501-6000 or val:1-100. (default: the run's, or the dataset's own split)",
            rich_help_panel=_SCORING,
        ),
    ] = None,
    boxes: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A detector's boxes, for COCO-style datasets.", rich_help_panel=_SCORING),
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
    even_so: Annotated[
        bool,
        typer.Option(
            "--even-so",
            help="Score people whom an account here protects, and write it into their ledgers as a read without protection (ε = ∞).",
            rich_help_panel=_SCORING,
        ),
    ] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a run's model on a test split, by the metric of its dataset: PCKh, PCK of torso length, or OKS-AP.

    metrics.json is rewritten when the run's own dataset is scored as training does it, with the flip test.
    """
    from dataclasses import replace

    from halfmask.cli.console import Console, TerminalProgress, say, say_json
    from halfmask.data.datasets import DataConfig
    from halfmask.data.records import PRIVATE, VIEW
    from halfmask.data.viewing import with_view
    from halfmask.training.outputs import RunFolder, scores_body
    from halfmask.training.runs import open_run
    from halfmask.views import make_view

    use_threads(threads)
    trained = open_run(run, device)
    config = trained.config
    chosen = config.data
    if not isinstance(chosen, DataConfig):
        if data is not None or images is not None or boxes is not None:
            raise HalfmaskError(
                f"--data, --images and --boxes choose among people with joints: the task '{config.task}' has a dataset of its own"
            )
    elif data is not None and data != chosen.name:
        # Splits and files are the run's dataset's own; how the joints are wanted is the model's.
        fresh = DataConfig()
        chosen = replace(chosen, name=data, format=fresh.format, splits=fresh.splits, annotations=fresh.annotations, boxes=fresh.boxes)
    if images is not None:
        chosen = replace(chosen, splits=replace(chosen.splits, test=images))
    if boxes is not None:
        chosen = replace(chosen, boxes=boxes)
    if isinstance(chosen, DataConfig) and chosen.name == "figures" and not chosen.test:
        chosen = replace(chosen, test=DataConfig().test)
    with TerminalProgress() as progress:
        task = type(trained.task)(replace(config, data=chosen))
        people = task.load_test(progress.stage)
        _check_open(people, run, even_so)
        scores = task.score(trained.model, people, PRIVATE, trained.device, flip_test)
        seen_through = None
        if views:
            people = with_view(people, task.view() or make_view(config.view.name, config.view.options))
            seen_through = task.score(trained.model, people, VIEW, trained.device, flip_test).metrics
    own = chosen.name == config.data.name and images is None and boxes is None
    if own and flip_test:
        RunFolder(run).save_metrics(config.task, chosen.name, "test", scores)
    if as_json:
        body = {
            "task": config.task,
            "dataset": chosen.name,
            "split": "test",
            "people": len(people),
            "flip_test": flip_test,
        }
        body |= scores_body(scores)
        say_json(body | ({"views": _without_nan(seen_through)} if seen_through is not None else {}))
        return
    Console().print(score_table(scores.metrics, seen_through, f"{len(people)} people of {chosen.name}, test"))
    if own and flip_test:
        say(f"written: {run / 'metrics.json'}")


def _check_open(people: Records, run: Path, even_so: bool) -> None:
    """Scores on protected people are a read of them that no noise covers."""
    from halfmask.cli.console import warn
    from halfmask.data.prints import fingerprints_of
    from halfmask.privacy.account import account_of, protected_among
    from halfmask.privacy.ledger import Ledger

    protected = protected_among(fingerprints_of(people))
    if not protected:
        return
    found = f"{sum(protected.values()):,} of the {len(people):,} records to score on show people whom an account here protects"
    if not even_so:
        raise HalfmaskError(
            f"{found}: their scores would be read without noise. Score on others, or say --even-so, which ends their accounts"
        )
    for name in protected:
        account = account_of(Ledger(name))
        if account is not None:
            account.record_read(run.resolve().name, "its people were scored openly (halfmask evaluate --even-so)")
    warn(f"{found}: it is in their ledgers, and their accounts have no bound from now on (ε = ∞)")


def score_table(metrics: dict[str, float], views: dict[str, float] | None, title: str) -> Table:
    """Joint groups down, so that the table fits a narrow terminal."""
    from rich.table import Table

    from halfmask.metrics.names import headline, is_percentage, printed
    from halfmask.report.tables import format_metric, heading

    table = Table(title=title, title_justify="left")
    first, second = headline(metrics)
    table.add_column(printed(first))
    table.add_column("Images", justify="right")
    if views is not None:
        table.add_column("Views ψ", justify="right")
    groups = [name for name in metrics if "/" in name]
    means = [name for name in metrics if "/" not in name]
    for name in (*groups, *means):
        # Average precision has no groups of joints; its ten numbers stand under their own names.
        label = {first: "Mean", second: f"Mean {printed(second)}"}.get(name, heading(name)) if groups else heading(name)
        if name == first and groups:
            table.add_section()
        digits = 1 if is_percentage(name) else None
        shown = [metrics[name]] + ([views[name]] if views is not None else [])
        table.add_row(label, *(format_metric(value, digits=digits) for value in shown))
    return table


def _without_nan(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a joint that was never annotated has no score."""
    return {name: None if value != value else round(value, 4) for name, value in values.items()}
