"""`halfmask predict`: what a model sees on pictures and videos of your own, the joints of people say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmask.cli.settings import (
    OUTPUT_PANEL,
    DeviceOption,
    JsonOption,
    ThreadsOption,
    use_threads,
)
from halfmask.errors import HalfmaskError, unknown_name

if TYPE_CHECKING:
    from halfmask.inference.poses import PoseSeer
    from halfmask.inference.sources import Source
    from halfmask.tasks.base import Box, Task
    from halfmask.training.runs import TrainedRun

_LABELLED = "-labels"
_ENDINGS = (".json", ".png", f"{_LABELLED}.mp4", f"{_LABELLED}.avi")
_PREDICTION, _PEOPLE = "Prediction", "Where people are (poses)"
# How people are found where no boxes are given.
_WAYS = ("auto", "network", "hog", "whole")


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a file that 'halfmask export' wrote.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            help="Pictures, videos, folders or patterns of such ('shots/*.jpg'), or the number of a camera. (faces: pictures; "
            "actions: videos)",
            metavar="FILES...",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for a .json and a .png per picture, or for the .json and the video of each video.", rich_help_panel=OUTPUT_PANEL
        ),
    ],
    box: Annotated[
        str | None,
        typer.Option(metavar="X,Y,W,H", help="The person's box in pixels, for every picture given.", rich_help_panel=_PEOPLE),
    ] = None,
    boxes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who is where: a CSV with file,x,y,w,h (a line per person), or COCO's JSON. (default: as --people says)",
            rich_help_panel=_PEOPLE,
        ),
    ] = None,
    people: Annotated[
        str,
        typer.Option(
            metavar="auto|network|hog|whole",
            help="Without boxes: find people with the pose network itself, or with OpenCV's detector (quicker, finds fewer), or take each "
            "picture for one person's crop. (auto: network for pictures, hog for films)",
            rich_help_panel=_PEOPLE,
        ),
    ] = "auto",
    flip_test: Annotated[
        bool,
        typer.Option(
            "--flip-test/--no-flip-test",
            help="Also look at the mirror image and average. (of an exported file: as it was exported)",
            rich_help_panel=_PREDICTION,
        ),
    ] = True,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Actions: how much of a video is looked at at a time. (default: 2 seconds)",
            rich_help_panel=_PREDICTION,
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Poses: stop a camera or a video after so long. (default: Ctrl-C)", rich_help_panel=_PREDICTION)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same names in --out.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find on each picture or video what the run's task looks for: everybody's joints, all faces, or what is being done when.

    Coordinates are pixels of the picture as it is displayed, turned by its camera's orientation tag; times of videos are in seconds. Poses
    are written in COCO's form, all skeletons drawn on one picture; the score of a joint is the chance that it is right. Exits with code 2
    if any file could not be done; the others are done all the same.
    """
    person = None if box is None else parse_box(box)
    if person is not None and boxes is not None:
        raise HalfmaskError("--box and --boxes both say where people are: give one of them")
    if people not in _WAYS:
        raise unknown_name("way to find people (--people)", people, _WAYS)
    for option, value in (("--window", window), ("--seconds", seconds)):
        if value is not None and not 0 < value < 86400:
            raise HalfmaskError(f"{option} is {value:g}: expected a number of seconds above 0")
    if run.suffix.lower() == ".onnx" and not run.is_dir():
        from halfmask.inference.onnx_file import open_onnx

        _predict_poses(open_onnx(run, threads), images, out, person, boxes, people, seconds, overwrite, as_json)
        return
    from halfmask.training.runs import open_run

    use_threads(threads)
    trained = open_run(run, device)
    if not all(bool(tensor.isfinite().all()) for tensor in trained.model.parameters()):
        raise HalfmaskError(f"the weights of {run} are not finite numbers: its training diverged, so it cannot predict")
    if trained.config.task == "pose":
        from halfmask.inference.torch_pose import pose_of_run

        _predict_poses(pose_of_run(trained, flip_test), images, out, person, boxes, people, seconds, overwrite, as_json)
        return
    if boxes is not None:
        raise HalfmaskError(f"--boxes says where people are, and {run} is a run of the task '{trained.config.task}': leave it out")
    _predict_others(trained, images, out, person, flip_test, window, overwrite, as_json)


def _predict_poses(
    network: PoseSeer,
    given: list[Path],
    out: Path,
    box: Box | None,
    boxes: Path | None,
    way: str,
    seconds: float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Everybody's joints, by a network that runs wherever it does: nothing here needs torch."""
    from halfmask.cli.console import TerminalProgress, fail, note, say, say_json, warn
    from halfmask.inference.detection import finder
    from halfmask.inference.people_given import read_boxes
    from halfmask.inference.predicting import ENDINGS, Watcher, predict_film, predict_picture
    from halfmask.inference.sources import CAMERA, PICTURE, VIDEO, check_free, find_sources, output_names

    sources = find_sources(given, (PICTURE, VIDEO, CAMERA))
    films = [one for one in sources if one.kind != PICTURE]
    if boxes is not None and films:
        raise HalfmaskError(f"--boxes names pictures, and {films[0].path} is a {films[0].kind}: give --box, or let people be found")
    names = output_names(sources, out, ENDINGS)
    check_free(out, names, ENDINGS, overwrite)
    known = None if boxes is None else read_boxes(boxes, [one.path.as_posix() for one in sources])
    watcher = Watcher(network, known, box)
    out.mkdir(parents=True, exist_ok=True)
    done, failures = [], 0
    with TerminalProgress() as progress:
        for number, (source, name) in enumerate(zip(sources, names, strict=True), 1):
            try:
                watcher.detector = finder(way, network, film=source.kind != PICTURE)
                if source.kind == PICTURE:
                    result = predict_picture(watcher, source, out, name)
                else:
                    result = predict_film(watcher, source, out, name, seconds, progress.stage)
            except HalfmaskError as error:
                fail(str(error) if str(source.path) in str(error) else f"{source.path}: {error}")
                failures += 1
                continue
            finally:
                if len(sources) > 1:
                    progress.stage("files", number, len(sources))
            done.append(result)
    if as_json:
        say_json({"predictions": done, "failed": failures})
    else:
        for result in done:
            say(_told(result))
    for caution in watcher.cautions():
        warn(caution)
    if watcher.tally.pictures:
        note(watcher.tally.words())
    _end(failures, [one.path for one in sources])


def _told(result: dict[str, Any]) -> str:
    if "people" not in result:
        source = result.get("video") or f"camera {result['camera']}"
        words = f"{result['frames']} frames, {result['people_in_a_frame']:.1f} people in each"
        return f"{source}  →  {result['drawn']}, {result['json']}   ({words})"
    people = result["people"]
    words = (
        "nobody found"
        if not people
        else f"{len(people)} people, mean scores {', '.join(format(one['score'], '.2f') for one in people[:5])}"
    )
    more = " …" if len(people) > 5 else ""
    return f"{result['image']}  →  {result['json']}, .png   ({words.replace('1 people, mean scores', '1 person, mean score')}{more})"


def _predict_others(
    trained: TrainedRun,
    given: list[Path],
    out: Path,
    box: Box | None,
    flip_test: bool,
    window: float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Whatever a task says of pictures or of videos itself."""
    from halfmask.cli.console import fail, say, say_json
    from halfmask.inference.sources import VIDEO, check_free, find_sources, output_names

    kinds = kinds_of(trained.task)
    if not kinds:
        raise HalfmaskError(f"{trained.folder} is a run of the task '{trained.config.task}', which has nothing to say of a single picture")
    sources = find_sources(given, kinds)
    wrong = next((one.path for one in sources if (one.kind == VIDEO) != ("video" in kinds)), None)
    if wrong is not None and len(kinds) == 1:
        has, wants = ("a video", "pictures") if "picture" in kinds else ("no video", "videos, such as .mp4 or .avi files")
        raise HalfmaskError(f"{wrong} is {has}, and {trained.folder} is a run of the task '{trained.config.task}': give {wants}")
    names = output_names(sources, out, _ENDINGS)
    check_free(out, names, _ENDINGS, overwrite)
    out.mkdir(parents=True, exist_ok=True)
    done, failures = [], 0
    for source, name in zip(sources, names, strict=True):
        film = source.kind == VIDEO
        try:
            if film:
                result, drawn = predict_video(trained, source, window, out, name)
            else:
                drawn = out / f"{name}.png"
                result = predict_one(trained, source.path, box, flip_test, out / f"{name}.json", drawn)
        except HalfmaskError as error:
            fail(str(error))
            failures += 1
            continue
        done.append(result | {"json": str(out / f"{name}.json"), "drawn" if film else "png": str(drawn)})
        if not as_json:
            words = trained.task.summary(result)
            beside = f", {drawn.name}" if film else ", .png"
            say(f"{source.path}  →  {out / name}.json{beside}" + (f"   ({words})" if words else ""))
    if as_json:
        say_json({"predictions": done, "failed": failures})
    _end(failures, [one.path for one in sources])


def _end(failures: int, paths: list[Path]) -> None:
    """Exit with code 2 if anything could not be done."""
    from halfmask.cli.console import fail
    from halfmask.inference.sources import VIDEOS

    if failures:
        what = "videos" if all(path.suffix.lower() in VIDEOS for path in paths) else "pictures"
        fail(f"{failures} of {len(paths)} {what} could not be done")
        raise typer.Exit(2)


def kinds_of(task: Task) -> tuple[str, ...]:
    """What a task can say something of: pictures, videos, both or neither."""
    from halfmask.tasks.base import Task

    able = {"picture": type(task).predict is not Task.predict, "video": type(task).predict_video is not Task.predict_video}
    return tuple(kind for kind, can in able.items() if can)


def predict_one(trained: TrainedRun, path: Path, box: Box | None, flip_test: bool, json_path: Path, png_path: Path) -> dict[str, Any]:
    """Predict on one picture, and write what was found and a drawing of it."""
    import torch

    from halfmask.data.images import read_image
    from halfmask.report.overlay import save_png

    image = read_image(path)
    with torch.no_grad():
        found, drawing = trained.task.predict(trained.model, image, trained.device, box, flip_test)
    result = {"image": str(path)} | found
    json_path.write_text(json.dumps(result, indent=1) + "\n")
    save_png(png_path, drawing)
    return result


def predict_video(trained: TrainedRun, source: Source, window: float | None, out: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Predict over a video, and write what was found when, and the video with it drawn on it; returns the first and where the second is."""
    import torch

    from halfmask.cli.console import TerminalProgress
    from halfmask.data.footage import Footage, write_video

    footage = Footage(source.path)
    with TerminalProgress() as progress, torch.no_grad():
        if footage.assumed:
            progress.warn(f"{source.path} does not say how many frames it has a second: taken to be {footage.fps:g}")
        found, frames = trained.task.predict_video(trained.model, footage, footage.fps, trained.device, window, progress.stage)
        result = {"video": str(source.path)} | found
        if found.get("frames", footage.expected) < 0.9 * footage.expected:
            progress.warn(f"{source.path} breaks off after {found['frames']} of {footage.expected} frames: only those are labelled")

        def watched() -> Iterator[Any]:
            for number, frame in enumerate(frames, 1):
                yield frame
                progress.stage("frames drawn", number, found.get("frames", number))

        drawn = write_video(out / f"{name}{_LABELLED}", watched(), footage.fps)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result, drawn


def parse_box(text: str) -> Box:
    """A box such as `10,20,100,200`."""
    try:
        x, y, width, height = (float(part) for part in text.split(","))
    except ValueError:
        raise HalfmaskError(f"--box is '{text}': expected four numbers x,y,width,height") from None
    if not (width > 0 and height > 0 and max(map(abs, (x, y, width, height))) < 1e6):
        raise HalfmaskError(f"--box is '{text}': expected a width and a height above 0, in pixels")
    return x, y, width, height
