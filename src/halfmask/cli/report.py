"""`halfmask report`: one page for one run or for many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.settings import OUTPUT_PANEL, ThreadsOption, use_threads
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.report.gather import ReportRun


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN|SWEEP...", help="Folders of runs, or of sweeps by 'halfmask compare'.")],
    out: Annotated[Path, typer.Option(help="The page.", rich_help_panel=OUTPUT_PANEL)] = Path("report.html"),
    pictures: Annotated[
        int, typer.Option(min=0, help="Test records to show with what every model makes of them; 0 for none.", rich_help_panel=OUTPUT_PANEL)
    ] = 3,
    force: Annotated[bool, typer.Option("--force", help="Write over a page that is there.", rich_help_panel=OUTPUT_PANEL)] = False,
    threads: ThreadsOption = None,
) -> None:
    """Write one page: what was promised, what it cost, how good it is, and what attacks found.

    The page stands alone and talks to nobody, so that it can be sent as one file. Private people are not opened for it.
    """
    from halfmask.cli.console import note, say
    from halfmask.report.build import report_page
    from halfmask.report.gather import gather
    from halfmask.report.parts import figure_sections, judged_runs
    from halfmask.tasks.base import task_named
    from halfmask.training.config import build_config
    from halfmask.writing import write_whole

    use_threads(threads)
    if out.is_dir():
        raise HalfmaskError(f"--out {out} is a folder: name the page, such as {out / 'report.html'}")
    if out.exists() and not force:
        raise HalfmaskError(f"{out} is there already: name another page with --out, or add --force to write over it")
    found = gather(runs)
    drawings, shown = "", ""
    if found and found[0].task != "own":
        try:
            task = task_named(found[0].task)(build_config(dict(found[0].config), {}))
            drawings = figure_sections(task.figures(judged_runs([run for run in found if run.group == found[0].group])))
            shown = _pictures(found, pictures) if pictures else ""
        except HalfmaskError as error:
            # What a page shows besides is no reason to be left without one: the data may lie on another machine.
            note(f"without pictures: {error}")
    page = report_page(runs, pictures=shown, drawings=drawings)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, page.encode())
    say(f"page: {out} ({len(found)} run{'' if len(found) == 1 else 's'}, {len(page.encode()) / 1e6:.1f} MB)")


def _pictures(runs: Sequence[ReportRun], count: int) -> str:
    from halfmask.cli.console import TerminalProgress
    from halfmask.report.picture_rows import picture_columns, representatives, rows_of_pictures
    from halfmask.tasks.base import task_named
    from halfmask.training.config import build_config

    chosen = representatives(runs)
    if not chosen:
        return ""
    task = task_named(chosen[0].task)(build_config(dict(chosen[0].config), {}))
    with TerminalProgress() as progress:
        people = task.load_test(progress.stage)
    return rows_of_pictures(picture_columns(runs, people, count), task.drawn)
