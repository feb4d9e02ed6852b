"""`halfmask audit tradeoff`: utility against identity, of runs that draw people anew and of everything they are compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmask.cli.settings import OUTPUT_PANEL, DeviceOption, JsonOption, ThreadsOption, names, numbers, use_threads
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.audit.tradeoff import People
    from halfmask.audit.tradeoff_ways import Way

_EFFORT = "How much is measured"
ReadPrivateOption = Annotated[
    bool,
    typer.Option(
        "--read-private",
        help="Attack real people too: it reads them without noise, no ε covers it, and what it finds is for the data holder.",
    ),
]
PeopleOption = Annotated[
    int | None, typer.Option(min=4, help="So many private people at most, the first. (default: all)", rich_help_panel=_EFFORT)
]
MatchedOption = Annotated[
    str | None,
    typer.Option(
        help="Shares of actions recognised, in percent, at which ways are compared, with commas between. (default: the paper's 65, and "
        "what the first curve reaches at ε 1)",
        rich_help_panel=_EFFORT,
    ),
]


def tradeoff(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUN...",
            help="Folders of runs of the task generate, on the same people. Those that differ in ε and seed alone are one curve; NAME= "
            "puts a run on the curve of that name.",
        ),
    ],
    people: PeopleOption = None,
    actions: Annotated[
        str | None, typer.Option(help="Actions that count for utility, with commas between. (default: all)", rich_help_panel=_EFFORT)
    ] = None,
    folds: Annotated[
        int, typer.Option(min=2, help="So often are people left out and their actions recognised.", rich_help_panel=_EFFORT)
    ] = 4,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Multiplies blurs and cells, which are meant for pictures 128 pixels high. (default: as high as these are by 128)",
            rich_help_panel=_EFFORT,
        ),
    ] = None,
    matched: MatchedOption = None,
    shown: Annotated[int, typer.Option(min=0, help="How many people the sheet shows; 0 for none.", rich_help_panel=OUTPUT_PANEL)] = 6,
    read_private: ReadPrivateOption = False,
    seed: Annotated[int, typer.Option(min=0, help="Fixes whom generators draw, and what the recogniser holds out.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the findings. (default: audits for figures; private storage for real people)", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what is left of actions and of identities in pictures that hide people: raw, filtered, drawn by hand, and by these runs.

    Reads private people without noise: real ones only with --read-private, and what it finds about them is for the data holder. The same
    command goes on where it was stopped; a way that was measured is not measured again.
    """
    from halfmask.cli.console import say, say_json

    use_threads(threads)
    found, folder = measure_tradeoff(
        [_named(run) for run in runs],
        out,
        read_private,
        people,
        [] if actions is None else names(actions, "--actions"),
        folds,
        scale,
        shares(matched),
        shown,
        seed,
        device,
    )
    if as_json:
        say_json(found)
        return
    show(found)
    say(f"page: {folder / 'index.html'}")


def measure_tradeoff(
    runs: Sequence[tuple[str | None, Path]],
    out: Path | None,
    read_private: bool = False,
    count: int | None = None,
    actions: Sequence[str] = (),
    folds: int = 4,
    scale: float | None = None,
    matched: Sequence[float] = (),
    shown: int = 6,
    seed: int = 0,
    device: str | None = None,
) -> tuple[dict[str, Any], Path]:
    """Measure, and write everything down; returns the content of the audit's file, and the folder."""
    from halfmask.audit.tradeoff import Measuring, audit_tradeoff, people_of
    from halfmask.audit.tradeoff_ways import public_ways, run_ways
    from halfmask.cli.console import TerminalProgress, note
    from halfmask.report.audits import write_audit

    ways, config = run_ways(runs, device)
    real = config.data.name != "figures"
    folder = _place([path for _, path in runs], out, real, read_private)
    with TerminalProgress() as progress:
        people = people_of(config.data, count, actions, progress.stage)
    every = [*public_ways(people, scale), *ways]
    more = {"matched": list(matched)}
    measuring = Measuring(people, seed, folds)

    def keep(body: dict[str, Any]) -> None:
        write_audit(folder, body | more)

    body = audit_tradeoff(measuring, every, config.data.name, _measured_before(folder), keep, note) | more
    _draw(folder, body, people, every, shown, seed)
    write_audit(folder, body)
    return body, folder


def shares(text: str | None) -> list[float]:
    """What `--matched` says, from 0 to 1."""
    found = [] if text is None else [number / 100 for number in numbers(text, "--matched")]
    if any(not 0 < share < 1 for share in found):
        raise HalfmaskError(f"--matched is '{text}': expected percentages between 0 and 100")
    return found


def _named(text: str) -> tuple[str | None, Path]:
    """A run's folder, and the name of its curve if one stands before it."""
    name, equals, path = text.partition("=")
    if Path(text).exists() or not equals:
        return None, Path(text)
    return name, Path(path)


def _place(runs: Sequence[Path], out: Path | None, real: bool, read_private: bool) -> Path:
    """Where findings go: of real people never beside what is released, and only if asked for."""
    from halfmask.cli.console import warn

    if not real:
        return Path("audits") if out is None else out
    if not read_private:
        raise HalfmaskError(
            "the identity attack reads these private people without noise, and no ε covers that: it is for the data holder alone. If you "
            "are, and publish nothing of it: --read-private"
        )
    warn("this audit reads private people; what it finds is for the data holder, not for release")
    if out is None:
        from halfmask.privacy.home import private_folder

        return private_folder("audits", runs[0].resolve().name)
    if any(out.resolve().is_relative_to(run.resolve()) for run in runs):
        raise HalfmaskError(
            f"--out {out} is inside a run's folder, which is released, and the findings are about private people: choose another"
        )
    return out


def _measured_before(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "tradeoff.json"
    if not path.is_file():
        return {}
    try:
        return {point["key"]: point for point in json.loads(path.read_text())["points"]}
    except (ValueError, KeyError, TypeError):
        raise HalfmaskError(f"{path} is no file of a trade-off: expected what 'halfmask audit tradeoff' wrote. Move it away") from None


def _draw(folder: Path, body: dict[str, Any], people: People, ways: Sequence[Way], shown: int, seed: int) -> None:
    """The drawing, the chart, the sheet of people and the tables as text."""
    from halfmask.report.audits import NEAREST_SHEET, PEOPLE_SHEET
    from halfmask.report.overlay import save_png
    from halfmask.report.tradeoff import tradeoff_figure
    from halfmask.report.tradeoff_sheet import memory_sheet, people_sheet
    from halfmask.report.tradeoff_tables import families_of, markdown

    folder.mkdir(parents=True, exist_ok=True)
    families = families_of(body)
    if families:
        figure = tradeoff_figure(
            families, body["chance"], "Utility against identity", "up is useful, left is private; bars: 95 % of pictures, of runs ± one σ"
        )
        save_png(folder / "tradeoff.png", figure.picture)
        assert figure.chart is not None
        figure.chart.write_html(folder / "tradeoff.html", include_plotlyjs=True)
    if shown and len(people.like):
        save_png(folder / PEOPLE_SHEET, people_sheet(people, ways, shown, seed))
        # Of drawn people alone: beside what was generated it shows who was trained with.
        alike = memory_sheet(people, ways, 2 * shown, seed) if body["dataset"] == "figures" else None
        if alike is not None:
            save_png(folder / NEAREST_SHEET, alike)
    (folder / "tradeoff.md").write_text(markdown(body))
    if body.get("not_for_release"):
        for name in ("tradeoff.png", "tradeoff.html", "tradeoff.md", PEOPLE_SHEET):
            if (folder / name).is_file():
                (folder / name).chmod(0o600)


def show(body: dict[str, Any]) -> None:
    """The tables in the terminal."""
    from rich.table import Table

    from halfmask.cli.console import Console, say
    from halfmask.report.tradeoff_tables import SOURCE, bought, facts, heights, matched_table, places_table, published_table

    def printed(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(title=title, title_justify="left")
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number else "left", no_wrap=not number)
        for row in rows:
            table.add_row(*row)
        Console().print(table)

    for line in facts(body):
        say(line)
    printed("Every way", *places_table(body, intervals=False))
    if "utility" in body["chance"]:
        for utility in heights(body):
            printed(f"Where {utility:.1%} of actions are recognised", *matched_table(body, utility))
    for line in bought(body):
        say(line)
    printed(f"Published: {SOURCE}", *published_table(body))
    say(f"how sure: {body['confidence']}")
    if body.get("not_for_release"):
        say(f"not for release: {body['not_for_release']}", "yellow")
