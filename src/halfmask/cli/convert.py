"""`halfmask data convert`: other formats as a folder of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import OUTPUT_PANEL, JsonOption

_WHO = "Who is what"
_READING = "How it is read"


def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A dataset folder, or a CSV file with a row for each person.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset folder to write.")],
    format: Annotated[
        str | None,
        typer.Option("--from", help="coco, humanart, mpii, lsp, lspet, csv or folder. (default: found out)", rich_help_panel=_READING),
    ] = None,
    annotations: Annotated[
        list[str] | None,
        typer.Option(help="An annotation file to read, where there are several. May be repeated.", rich_help_panel=_READING),
    ] = None,
    head_boxes: Annotated[
        str,
        typer.Option(
            help="Of a folder of your own: 'corners' if its head boxes are x1, y1, x2, y2, as before version 2, or 'sides'.",
            rich_help_panel=_READING,
        ),
    ] = "sides",
    on_bad: Annotated[
        str, typer.Option(help="'skip' people whose image file is missing, or 'refuse' the dataset.", rich_help_panel=_READING)
    ] = "refuse",
    private: Annotated[str | None, typer.Option(help="Images to protect, as in data.splits.private.", rich_help_panel=_WHO)] = None,
    public: Annotated[str | None, typer.Option(help="Public images, such as 1-100 or train:1-100.", rich_help_panel=_WHO)] = None,
    test: Annotated[str | None, typer.Option(help="Images to score on, such as val. Others are private.", rich_help_panel=_WHO)] = None,
    link: Annotated[
        bool, typer.Option("--link", help="Make hard links instead of copies of images.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write COCO, Human-Art, MPII, LSP, LSPET or a CSV file as a folder of your own images (see docs/schema.md)."""
    from halfmask.cli.console import TerminalProgress, say, say_json
    from halfmask.data.convert import convert_dataset
    from halfmask.data.crops import ON_BAD
    from halfmask.data.datasets import find_folder
    from halfmask.data.splits import SplitsConfig
    from halfmask.errors import unknown_name

    if on_bad not in ON_BAD:
        raise unknown_name("way to treat bad images (--on-bad)", on_bad, ON_BAD)
    place = source if source.is_file() else find_folder(str(source))
    with TerminalProgress() as progress:
        done = convert_dataset(
            place,
            out,
            format,
            SplitsConfig(private=private, public=public, test=test),
            tuple(annotations or ()),
            head_boxes,
            on_bad,
            link,
            lambda number, total: progress.stage("copying images", number, total),
        )
    if as_json:
        body = {"folder": str(out), "people": done.people, "images": done.images, "left_out": done.left_out}
        say_json(body | {"joints_without_label": list(done.unlabelled)})
        return
    say(f"{', '.join(f'{count:,} {split}' for split, count in done.people.items())} people on {done.images:,} images: {out}")
    for reason, count in done.left_out.items():
        say(f"left out: {count:,} × {reason}")
    if done.unlabelled:
        say(f"joints that the source does not have, and nobody has a label of: {', '.join(done.unlabelled)}")
    say(f"look at them with: halfmask data inspect {out} --sheet people.png")
