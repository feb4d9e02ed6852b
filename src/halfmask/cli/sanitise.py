"""`halfmask sanitise`: photographs on which everybody is somebody who does not exist, in the same pose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import OUTPUT_PANEL, DeviceOption, JsonOption, ThreadsOption, use_threads

_PEOPLE, _DRAWN = "Who is where, and in what pose", "What is drawn"
# Some pictures could not be done: apart from 2, after which nothing was.
_SOME_NOT_DONE = 1


def sanitise(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of the task 'generate'.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Photographs, or folders of such; folders below are kept.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the new pictures, of the same names, and manifest.json.", rich_help_panel=OUTPUT_PANEL)
    ],
    boxes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who is where: a CSV with file,x,y,w,h (a line per person), or COCO's JSON. (default: each picture is taken to be one "
            "person's crop that fills it, and is replaced whole)",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    poses: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Joints of people: COCO's JSON with keypoints. (default: found by a network)", rich_help_panel=_PEOPLE
        ),
    ] = None,
    pose_network: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Who finds other joints: 'embedded', the folder of a run of the task 'pose', or a weight file. (default: as in training)",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="How much more than a box is replaced on each side, as a share of it.", rich_help_panel=_PEOPLE)
    ] = 0.1,
    background: Annotated[
        str, typer.Option(metavar="keep|blur|none", help="What becomes of what is outside the boxes.", rich_help_panel=_DRAWN)
    ] = "keep",
    same_person: Annotated[
        bool,
        typer.Option(
            "--same-person",
            help="One appearance for all pictures, as for frames of a film; with several boxes, one for the first of each, and so on.",
            rich_help_panel=_DRAWN,
        ),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Draw appearances by a seed, for tests. (default: by the operating system)", rich_help_panel=_DRAWN),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same names in --out.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the people on photographs by people whom a trained generator draws in the same pose.

    Inside a box, a little enlarged, every pixel is replaced. Names and sizes stay; metadata such as EXIF are dropped. ε covers the people
    of the generator's training set; of the people on IMAGES the output shows pose, box and background, as manifest.json says.
    Exits with code 1 if any file could not be done; the others are done all the same.
    """
    from halfmask.cli.console import TerminalProgress, fail, say, say_json, warn
    from halfmask.inference.sanitise import sanitise as do_sanitise

    use_threads(threads)
    try:
        with TerminalProgress() as progress:
            done = do_sanitise(
                run,
                images,
                out,
                boxes=boxes,
                poses=poses,
                pose_network=pose_network,
                background=background,
                margin=margin,
                same_person=same_person,
                seed=seed,
                overwrite=overwrite,
                device=device,
                progress=lambda count, total: progress.stage("sanitising pictures", count, total),
            )
    except KeyboardInterrupt:
        warn(f"stopped: {out / 'manifest.json'} says which pictures are done, and which are not")
        raise
    for caution in done.cautions:
        warn(caution)
    if as_json:
        say_json(
            {
                "folder": str(done.folder),
                "manifest": str(done.manifest),
                "pictures": len(done.done),
                "people": done.people,
                "not_done": [{"name": name, "reason": reason} for name, reason in done.not_done],
            }
        )
    else:
        say(f"{len(done.done):,} pictures with {done.people:,} people drawn anew: {done.folder}")
        say(f"they show the poses, boxes and backgrounds of real people: see {done.manifest}")
    for name, reason in done.not_done:
        fail(f"{name} was not done: {reason}")
    if done.not_done:
        fail(f"{len(done.not_done):,} of {len(done.done) + len(done.not_done):,} files were not done")
        raise typer.Exit(_SOME_NOT_DONE)
