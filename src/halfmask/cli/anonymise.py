"""`halfmask data anonymise`: clips in which everybody is somebody who does not exist."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.settings import OUTPUT_PANEL, JsonOption, ThreadsOption, use_threads
from halfmask.errors import HalfmaskError, unknown_name

if TYPE_CHECKING:
    from halfmask.data.anonymise import Draw, Pipeline
    from halfmask.data.clip_joints import JointSource
    from halfmask.data.clip_masks import MaskSource
    from halfmask.data.clips import ClipSet

_PEOPLE, _ROOMS, _DRAWN = "Who is found and drawn", "What they leave behind", "Drawn clips"
_FIGURES = "figures"
_FIRST = ("private", "200")
_ROOM = ("auto", "still", "frames")


def anonymise(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="A folder of clips, a name below $HALFMASK_DATA, or figures:private:200 for drawn ones (public, test)."
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not be there yet, or be empty.")],
    masks: Annotated[
        str,
        typer.Option(metavar="own|files:DIR|boxes:FILE|motion", help="How the person is found, to be removed.", rich_help_panel=_PEOPLE),
    ] = "own",
    joints: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Poses to draw avatars in: .csv, .json or .npz.", rich_help_panel=_PEOPLE),
    ] = None,
    pose: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Find poses with a pose network: the folder of a run, or 'embedded'.", rich_help_panel=_PEOPLE),
    ] = None,
    avatar: Annotated[
        str, typer.Option(help="own (drawn from the joints), anny (if installed), or none: only remove people.", rich_help_panel=_PEOPLE)
    ] = "own",
    avatar_by: Annotated[
        str, typer.Option(help="Which clips share an avatar: those of a video, of a subject, or none (clip).", rich_help_panel=_PEOPLE)
    ] = "video",
    room: Annotated[
        str,
        typer.Option(
            help="How the room is filled in: still (from other frames, for a camera that stands still), frames (each from around the "
            "hole), or auto.",
            rich_help_panel=_ROOMS,
        ),
    ] = "auto",
    method: Annotated[str, typer.Option(help="How what no frame shows is filled: telea, navier-stokes.", rich_help_panel=_ROOMS)] = "telea",
    margin: Annotated[int, typer.Option(min=0, help="Pixels beyond the outline that are removed too.", rich_help_panel=_ROOMS)] = 2,
    format: Annotated[str | None, typer.Option(help="The format of IN. (default: found out)")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many clips, the first of the set.")] = None,
    frames: Annotated[int, typer.Option(min=2, help="Frames of drawn clips.", rich_help_panel=_DRAWN)] = 8,
    size: Annotated[int, typer.Option(min=32, help="Pixels of drawn clips, on each side.", rich_help_panel=_DRAWN)] = 96,
    seed: Annotated[int, typer.Option(min=0, help="Which world to draw.", rich_help_panel=_DRAWN)] = 0,
    sheet: Annotated[
        int, typer.Option(min=0, help="How many clips are on OUT/contact-sheet.png; 0 for none.", rich_help_panel=OUTPUT_PANEL)
    ] = 8,
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG",
            help="Write a second sheet with the real clips beside them, outside OUT: it shows real people.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the people of clips by avatars, and write a folder of clips that says which pixels are avatar.

    People are cut out, the room behind them is filled in, and an avatar is drawn in their pose. What the avatar covers wholly is a
    function of the pose alone; everything else still shows the room, and is protected when you train with data.protect=background.
    A clip is left out if nobody knows where its person is, or in what pose. Frames are written without loss.
    """
    from halfmask.cli.console import TerminalProgress, say, say_json, warn
    from halfmask.data.anonymised import sheet_of_stages, write_anonymised
    from halfmask.report.overlay import save_png

    use_threads(threads)
    if before is not None and folder.resolve() in before.resolve().parents:
        raise HalfmaskError(f"--before is {before}, inside {folder}: it shows real people; write it somewhere else")
    clips = _clips(source, format, frames, size, seed)
    if limit is not None:
        clips = _first(clips, limit)
    finder = _masks(masks, clips)
    poses = _joints(source, joints, pose, avatar, (frames, size, seed))
    with TerminalProgress() as progress:
        written = write_anonymised(
            clips,
            folder,
            finder,
            poses,
            _pipeline(avatar, room, method, margin, finder.kind),
            avatar_by,
            max(sheet, 8 if before else 0),
            progress=lambda done, total: progress.stage("anonymising clips", done, total),
        )
    for count, why in ((count, why) for why, count in written.left_out.items()):
        warn(f"left out: {count:,} with {why}")
    if finder.kind == "motion":
        warn("people were found by motion: whoever stood still was not, and is still there; look at the sheet")
    sheets = []
    if sheet:
        save_png(folder / "contact-sheet.png", sheet_of_stages(written.shown[:sheet], real=False))
        sheets.append(folder / "contact-sheet.png")
    if before is not None:
        save_png(before, sheet_of_stages(written.shown, real=True))
        sheets.append(before)
    body = {"clips": written.clips, "keys": written.avatars, "left_out": written.left_out, "avatar_share": round(written.covered, 4)}
    if as_json:
        say_json({"folder": str(folder), **body, "sheets": [str(path) for path in sheets]})
        return
    say(f"{written.clips:,} clips, of whose pixels {written.covered:.1%} are avatar: {folder}")
    for path in sheets:
        say(f"look at {path}" + (" (it shows real people)" if path == before else ""))
    say("rooms are real: OUT is as private as they are. Train on it with data.protect=background")


def _clips(source: str, format: str | None, frames: int, size: int, seed: int) -> ClipSet:
    drawn = _drawn(source)
    if drawn is not None:
        from halfmask.data.figures_clips import figures_clips

        return figures_clips(*drawn, frames, size, seed)
    from halfmask.data.clip_sets import read_clips
    from halfmask.data.datasets import find_folder

    return read_clips(find_folder(source), format)


def _drawn(source: str) -> tuple[str, int] | None:
    """The population of drawn clips that is meant, and how many; None if it is a folder."""
    if source.partition(":")[0] != _FIGURES:
        return None
    parts = source.split(":")
    population, count = (*parts[1:], *_FIRST[len(parts) - 1 :])[:2]
    if len(parts) > 3 or not count.isdecimal() or int(count) < 1:
        raise HalfmaskError(f"IN is '{source}': expected figures:POPULATION:COUNT, such as figures:private:200")
    return population, int(count)


def _first(clips: ClipSet, limit: int) -> ClipSet:
    from dataclasses import replace

    return replace(clips, takes=clips.takes[:limit])


def _masks(text: str, clips: ClipSet) -> MaskSource:
    from halfmask.data.clip_masks import mask_source

    kind, _, path = text.partition(":")
    if kind == "none":
        raise HalfmaskError("--masks is none: nobody could be removed; expected own, files:DIR, boxes:FILE or motion")
    # What is in doubt counts as the person, and is removed.
    return mask_source(kind, "person", Path(path).expanduser() if path else None, own=clips.masks)


def _joints(source: str, joints: Path | None, pose: str | None, avatar: str, drawing: tuple[int, int, int]) -> JointSource | None:
    if joints is not None and pose is not None:
        raise HalfmaskError("both --joints and --pose were given: poses come from one of them")
    if avatar == "none":
        return None
    if joints is not None:
        from halfmask.data.clip_joints import FileJoints, read_joints

        read_joints(joints)
        return FileJoints(joints)
    if pose is not None:
        from halfmask.tasks.clip_poses import network_joints

        return network_joints(pose)
    drawn = _drawn(source)
    if drawn is not None:
        from halfmask.data.clip_joints import DrawnJoints

        return DrawnJoints(drawn[0], *drawing)
    raise HalfmaskError(
        "nobody says in what poses to draw avatars: give --joints FILE, or --pose RUN to find them with a pose network; or only remove "
        "people with --avatar none"
    )


def _pipeline(avatar: str, room: str, method: str, margin: int, masks: str) -> Pipeline:
    from halfmask.data.anonymise import Pipeline
    from halfmask.data.inpainting import METHODS, inpaint, inpaint_frames, inpaint_still

    if method not in METHODS:
        raise unknown_name("way of inpainting (--method)", method, METHODS)
    if room not in _ROOM:
        raise unknown_name("way to fill in the room (--room)", room, _ROOM)
    fill = {"auto": inpaint, "still": inpaint_still, "frames": inpaint_frames}[room]
    # An outline by motion misses what stands still: an arm, say, whose bones are known.
    return Pipeline(inpaint=partial(fill, method=method), draw=_drawer(avatar), margin=margin, hide_bones=masks == "motion")


def _drawer(avatar: str) -> Draw:
    from halfmask.data.anonymise import DRAWERS

    if avatar not in DRAWERS:
        raise unknown_name("avatar (--avatar)", avatar, DRAWERS)
    return DRAWERS[avatar]()
