"""`halfmask predict`: what a model sees on pictures and videos of your own, the joints of people say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.tasks.base import Box, Task
    from halfmask.training.runs import TrainedRun

_PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}
VIDEOS = {".avi", ".mp4", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg"}
_LABELLED = "-labels"
_PREDICTION = "Prediction"


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    images: Annotated[
        list[Path],
        typer.Argument(help="Pictures, for poses of one person each; for actions, videos; or folders of such.", metavar="FILES..."),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder for a .json and a .png per picture, or a .json and a video per video.", rich_help_panel=OUTPUT_PANEL),
    ],
    box: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,W,H",
            help="The person's box in pixels, for every picture given. (default: the whole picture; of faces, all that are found)",
            rich_help_panel=_PREDICTION,
        ),
    ] = None,
    flip_test: Annotated[
        bool,
        typer.Option(
            "--flip-test/--no-flip-test",
            help="Also look at the mirror image and average.",
            rich_help_panel=_PREDICTION,
        ),
    ] = True,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How much of a video is looked at at a time. (default: 2 seconds)",
            rich_help_panel=_PREDICTION,
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find on each picture or video what the run's task looks for: the joints of the person, all faces, or what is being done when.

    Coordinates are pixels of the picture as it is displayed, turned by its camera's orientation tag; times of videos are in seconds.
    Exits with code 2 if any file could not be read; the others are done all the same.
    """
    from halfmask.cli.console import fail, say, say_json
    from halfmask.training.runs import open_run

    person = None if box is None else parse_box(box)
    if window is not None and not 0 < window < 86400:
        raise HalfmaskError(f"--window is {window:g}: expected a number of seconds above 0")
    use_threads(threads)
    trained = open_run(run, device)
    kinds = kinds_of(trained.task)
    if not kinds:
        raise HalfmaskError(f"{run} is a run of the task '{trained.config.task}', which has nothing to say of a single picture")
    paths = list_images(images, kinds)
    wrong = next((path for path in paths if (path.suffix.lower() in VIDEOS) != ("video" in kinds)), None)
    if wrong is not None and len(kinds) == 1:
        has, wants = ("a video", "pictures") if "picture" in kinds else ("no video", f"files ending in {', '.join(sorted(VIDEOS))}")
        raise HalfmaskError(f"{wrong} is {has}, and {run} is a run of the task '{trained.config.task}': give {wants}")
    if not all(bool(tensor.isfinite().all()) for tensor in trained.model.parameters()):
        raise HalfmaskError(f"the weights of {run} are not finite numbers: its training diverged, so it cannot predict")
    out.mkdir(parents=True, exist_ok=True)
    done, failures = [], 0
    for path, name in zip(paths, output_names(paths, out), strict=True):
        film = path.suffix.lower() in VIDEOS
        try:
            if film:
                result, drawn = predict_video(trained, path, window, out, name)
            else:
                result, drawn = (
                    predict_one(trained, path, person, flip_test, out / f"{name}.json", out / f"{name}.png"),
                    out / f"{name}.png",
                )
        except HalfmaskError as error:
            fail(str(error))
            failures += 1
            continue
        done.append(result | {"json": str(out / f"{name}.json"), "drawn" if film else "png": str(drawn)})
        if not as_json:
            words = trained.task.summary(result)
            beside = f", {drawn.name}" if film else ", .png"
            say(f"{path}  →  {out / name}.json{beside}" + (f"   ({words})" if words else ""))
    if as_json:
        say_json({"predictions": done, "failed": failures})
    if failures:
        what = "videos" if all(path.suffix.lower() in VIDEOS for path in paths) else "pictures"
        fail(f"{failures} of {len(paths)} {what} could not be read")
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


def predict_video(trained: TrainedRun, path: Path, window: float | None, out: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Predict over a video, and write what was found when, and the video with it drawn on it; returns the first and where the second is."""
    import torch

    from halfmask.cli.console import TerminalProgress
    from halfmask.data.footage import Footage, write_video

    footage = Footage(path)
    with TerminalProgress() as progress, torch.no_grad():
        if footage.assumed:
            progress.warn(f"{path} does not say how many frames it has a second: taken to be {footage.fps:g}")
        found, frames = trained.task.predict_video(trained.model, footage, footage.fps, trained.device, window, progress.stage)
        result = {"video": str(path)} | found
        if found.get("frames", footage.expected) < 0.9 * footage.expected:
            progress.warn(f"{path} breaks off after {found['frames']} of {footage.expected} frames: only those are labelled")

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


def list_images(given: list[Path], kinds: Sequence[str] = ("picture",)) -> list[Path]:
    """The files meant, each once: files as they stand, and all pictures of a folder, or all its videos where those are wanted."""
    suffixes = sorted((_PICTURES if "picture" in kinds else set()) | (VIDEOS if "video" in kinds else set()))
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix.lower() in suffixes and one.is_file())
            if not inside:
                what = " or ".join(f"{kind}s" for kind in kinds)
                raise HalfmaskError(f"{path} holds no {what}: expected files ending in {', '.join(suffixes)}")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def output_names(paths: list[Path], out: Path) -> list[str]:
    """A name for each file's results: its stem, numbered where it is taken or a picture or video would be lost."""
    originals = {path.resolve() for path in paths}
    endings = (".png", f"{_LABELLED}.mp4", f"{_LABELLED}.avi")
    taken: set[str] = set()
    names = []
    for path in paths:
        name, number = path.stem, 2
        # Some file systems do not tell A from a.
        while name.casefold() in taken or any((out / f"{name}{ending}").resolve() in originals for ending in endings):
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names
