"""`halfmask evaluate`: score a run's model on a test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmask.cli.settings import DeviceOption, JsonOption, ThreadsOption, use_threads
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from rich.table import Table

    from halfmask.data.records import Records

_SCORING = "What is scored"
# Settings of a dataset that mean nothing for another.
_FILES = ("format", "splits", "annotations", "boxes")


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
    """Score a run's model on a test split, by the metrics of its task; for poses that of its dataset: PCKh, PCK of torso length, or OKS-AP.

    metrics.json is rewritten when the run's own dataset is scored as training does it, with the flip test.
    """
    from dataclasses import replace

    from halfmask.cli.console import Console, TerminalProgress, say, say_json
    from halfmask.data.records import PRIVATE, VIEW
    from halfmask.data.viewing import with_view
    from halfmask.training.outputs import RunFolder, scores_body
    from halfmask.training.runs import open_run
    from halfmask.views import make_view

    use_threads(threads)
    trained = open_run(run, device)
    config = trained.config
    chosen = choose_data(config.task, config.data, data, images, boxes)
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


def choose_data(task: str, settings: Any, data: str | None = None, images: str | None = None, boxes: str | None = None) -> Any:
    """The settings of the data to score on: a run's own, with what the options name instead, as far as its task has such settings."""
    from dataclasses import replace

    chosen, fresh = settings, type(settings)
    for option, value, needed in (("--data", data, "splits"), ("--images", images, "splits"), ("--boxes", boxes, "boxes")):
        if value is not None and not hasattr(chosen, needed):
            what = "a detector's boxes" if needed == "boxes" else "splits to choose from"
            raise HalfmaskError(f"{option} is '{value}': the task '{task}' has a dataset of its own, without {what}")
    if data is not None and data != chosen.name:
        # Splits and files are the run's dataset's own; how the targets are wanted is the model's.
        files = {name: getattr(fresh(), name) for name in _FILES if hasattr(chosen, name)}
        chosen = replace(chosen, name=data, **files)
    if images is not None:
        chosen = replace(chosen, splits=replace(chosen.splits, test=images))
    if boxes is not None:
        chosen = replace(chosen, boxes=boxes)
    if chosen.name == "figures" and getattr(chosen, "test", None) == 0:
        chosen = replace(chosen, test=fresh().test)
    return chosen


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

    from halfmask.metrics.names import about, has_headline, headline, printed
    from halfmask.report.tables import format_metric, heading

    table = Table(title=title, title_justify="left")
    first, second = headline(metrics)
    table.add_column(printed(first) if has_headline(metrics) else "Metric")
    table.add_column("Images", justify="right")
    if views is not None:
        table.add_column("Views ψ", justify="right")
    groups = [name for name in metrics if "/" in name]
    means = [name for name in metrics if "/" not in name]
    grouped = bool(groups) and has_headline(metrics)
    for name in (*groups, *means):
        # Average precision has no groups of joints; its ten numbers stand under their own names.
        label = {first: "Mean", second: f"Mean {printed(second)}"}.get(name, heading(name)) if grouped else heading(name)
        if name == first and grouped:
            table.add_section()
        shown = [metrics[name]] + ([views[name]] if views is not None else [])
        table.add_row(label, *(format_metric(value, digits=about(name).digits) for value in shown))
    return table


def _without_nan(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a joint that was never annotated has no score."""
    return {name: None if value != value else round(value, 4) for name, value in values.items()}
