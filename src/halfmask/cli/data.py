"""`halfmask data`: datasets on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.anonymise import anonymise
from halfmask.cli.convert import convert
from halfmask.cli.settings import OUTPUT_PANEL, JsonOption, use_threads

if TYPE_CHECKING:
    from halfmask.data.inspectors import Looked

app = typer.Typer(no_args_is_help=True, help="Datasets on disk.")

_HOW_MANY = "How many people"
_READING = "How it is read"


@app.callback()
def _data() -> None:
    """Datasets on disk."""


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset folder to write.")],
    private: Annotated[int, typer.Option(min=0, help="People to protect.", rich_help_panel=_HOW_MANY)] = 60,
    public: Annotated[int, typer.Option(min=0, help="Public people.", rich_help_panel=_HOW_MANY)] = 60,
    test: Annotated[int, typer.Option(min=0, help="People to score on.", rich_help_panel=_HOW_MANY)] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Which world to draw.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Write people of the embedded world as a folder dataset: an example of the format."""
    from halfmask.cli.console import TerminalProgress, say, say_json
    from halfmask.data.export import export_figures

    counts = {"private": private, "public": public, "test": test}
    with TerminalProgress() as progress:
        pictures = export_figures(folder, counts, seed, progress.stage)
    if as_json:
        say_json({"folder": str(folder), "pictures": pictures, "people": counts})
        return
    say(f"{sum(counts.values())} people on {pictures} pictures: {folder / 'annotations.json'}")
    say(f"train on them with: halfmask train --data {folder}")


@app.command("inspect")
def inspect(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A dataset folder, or a name below $HALFMASK_DATA.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="folder, mpii, coco, humanart, lsp or lspet; of faces ytf68, aflw, aflw-json or landmark-files; of clips "
            "clips (your own), ucf101, hmdb51, ntu, smarthome, airtlab, airtlab-actions, weizmann or arid; of pictures of one person each "
            "market1501 or cad60. (default: found out)",
            rich_help_panel=_READING,
        ),
    ] = None,
    annotations: Annotated[
        list[str] | None,
        typer.Option(help="An annotation file to read, where there are several. May be repeated.", rich_help_panel=_READING),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not open images or videos.", rich_help_panel=_READING)] = False,
    skeleton: Annotated[str, typer.Option(help="Show how the joints become mpii's, coco's or lsp's.", rich_help_panel=_READING)] = "mpii",
    masks: Annotated[
        str | None,
        typer.Option(help="Of clips: where masks come from: own, files, boxes, motion or none. (default: own)", rich_help_panel=_READING),
    ] = None,
    masks_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Of clips: the folder of mask files, or the file of boxes.", rich_help_panel=_READING)
    ] = None,
    protect: Annotated[
        str | None,
        typer.Option(help="Of clips: what is protected, and tinted: background, person or mask.", rich_help_panel=_READING),
    ] = None,
    sheet: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG",
            help="Write a picture of people with their joints, of faces with their landmarks, or of clips as filmstrips.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    people: Annotated[int, typer.Option(min=1, help="How many people, or clips, are on the picture.", rich_help_panel=OUTPUT_PANEL)] = 12,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 2 if anything had better be mended.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a dataset holds, what is wrong with it, and whom a unit of privacy would be.

    Opens every image or video to find damaged ones, and writes nothing but the picture that is asked for. For the holder of the
    data alone: unlike every other command, it names images and shows annotations that are wrong. All that is wrong is told at once.
    """
    from halfmask.cli.console import TerminalProgress, say, say_json
    from halfmask.cli.inspection import look_at_people, named
    from halfmask.data.datasets import find_folder
    from halfmask.data.files import BadAnnotations
    from halfmask.data.inspectors import TAKES_MASKS, find_out_format, inspector_of
    from halfmask.data.skeleton import skeleton_named
    from halfmask.errors import HalfmaskError

    use_threads(None)
    target = skeleton_named(skeleton)
    pictured = people if sheet else 0
    refused: BadAnnotations | None = None
    try:
        inspector_of(format)
        folder = find_folder(path)
        kind = format or find_out_format(folder)
        look = inspector_of(kind)
        given = {"masks": masks, "masks_path": masks_path, "protect": protect}
        options = {name: value for name, value in given.items() if value is not None}
        if options and kind not in TAKES_MASKS:
            named_so = ", ".join(f"--{name.replace('_', '-')}" for name in options)
            raise HalfmaskError(f"{named_so} is for clips, and this dataset's format is '{kind}': leave it away")
        with TerminalProgress() as progress:
            told = lambda done, total: progress.stage("opening files", done, total)  # noqa: E731
            if look is None:
                # What the shape of LSP's matrix tells is overruled by what was said alone, so that is handed on as it was.
                wanted = format or ("folder" if kind == "folder" else None)
                seen, refused = look_at_people(
                    folder, wanted, target, tuple(annotations or ()), open_images=not quick, pictured=pictured, progress=told
                )
            else:
                seen = look(folder, kind, open_images=not quick, pictured=pictured, progress=told, **options)
    except BadAnnotations as error:
        if as_json:
            say_json({"problem": str(error), "details": list(error.details)})
        else:
            for line in named(error.details):
                say(line)
        raise
    _show(seen, sheet, as_json)
    if refused is not None:
        raise refused
    if strict and seen.problems:
        raise HalfmaskError(f"{seen.problems:,} things had better be mended, and --strict lets none of them pass: they are told above")


app.command("convert")(convert)
app.command("anonymise")(anonymise)


def _show(seen: Looked, sheet: Path | None, as_json: bool) -> None:
    """What somebody else's look at a dataset told, as that at people with joints is shown."""
    from halfmask.cli.console import Console, say, say_json
    from halfmask.report.overlay import save_png

    drawn = sheet is not None and seen.sheet is not None
    if sheet is not None and seen.sheet is not None:
        save_png(sheet, seen.sheet)
    if as_json:
        say_json(seen.body | ({"sheet": str(sheet)} if drawn else {}))
        return
    for part in seen.lines:
        Console().print(part, markup=False, highlight=False, soft_wrap=True) if isinstance(part, str) else Console().print(part)
    if drawn:
        say(f"picture: {sheet}")
