"""`halfmask predict`: what a model sees on pictures of your own, the joints of people say."""

from __future__ import annotations

import json
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
    from halfmask.tasks.base import Box
    from halfmask.training.runs import TrainedRun

_PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}
_PREDICTION = "Prediction"


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    images: Annotated[list[Path], typer.Argument(help="Pictures, for poses of one person each, or folders of such pictures.")],
    out: Annotated[Path, typer.Option(help="Folder for a .json and a .png per picture.", rich_help_panel=OUTPUT_PANEL)],
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
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find on each picture what the run's task looks for: the joints of the person, or all faces.

    Coordinates are pixels of the picture as it is displayed, turned by its camera's orientation tag. Exits
    with code 2 if any picture could not be read; the others are done all the same.
    """
    from halfmask.cli.console import fail, say, say_json
    from halfmask.tasks.base import Task
    from halfmask.training.runs import open_run

    person = None if box is None else parse_box(box)
    paths = list_images(images)
    use_threads(threads)
    trained = open_run(run, device)
    if type(trained.task).predict is Task.predict:
        raise HalfmaskError(f"{run} is a run of the task '{trained.config.task}', which has nothing to say of a single picture")
    if not all(bool(tensor.isfinite().all()) for tensor in trained.model.parameters()):
        raise HalfmaskError(f"the weights of {run} are not finite numbers: its training diverged, so it cannot predict")
    out.mkdir(parents=True, exist_ok=True)
    done, failures = [], 0
    for path, name in zip(paths, output_names(paths, out), strict=True):
        try:
            result = predict_one(trained, path, person, flip_test, out / f"{name}.json", out / f"{name}.png")
        except HalfmaskError as error:
            fail(str(error))
            failures += 1
            continue
        done.append(result | {"json": str(out / f"{name}.json"), "png": str(out / f"{name}.png")})
        if not as_json:
            words = trained.task.summary(result)
            say(f"{path}  →  {out / name}.json, .png" + (f"   ({words})" if words else ""))
    if as_json:
        say_json({"predictions": done, "failed": failures})
    if failures:
        fail(f"{failures} of {len(paths)} pictures could not be read")
        raise typer.Exit(2)


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


def parse_box(text: str) -> Box:
    """A box such as `10,20,100,200`."""
    try:
        x, y, width, height = (float(part) for part in text.split(","))
    except ValueError:
        raise HalfmaskError(f"--box is '{text}': expected four numbers x,y,width,height") from None
    if not (width > 0 and height > 0 and max(map(abs, (x, y, width, height))) < 1e6):
        raise HalfmaskError(f"--box is '{text}': expected a width and a height above 0, in pixels")
    return x, y, width, height


def list_images(given: list[Path]) -> list[Path]:
    """The pictures meant, each once: files as they stand, and all pictures of a folder."""
    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix.lower() in _PICTURES and one.is_file())
            if not inside:
                raise HalfmaskError(f"{path} holds no pictures: expected files ending in {', '.join(sorted(_PICTURES))}")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def output_names(paths: list[Path], out: Path) -> list[str]:
    """A name for each picture's results: its stem, numbered where it is taken or a picture would be lost."""
    originals = {path.resolve() for path in paths}
    taken: set[str] = set()
    names = []
    for path in paths:
        name, number = path.stem, 2
        # Some file systems do not tell A from a.
        while name.casefold() in taken or (out / f"{name}.png").resolve() in originals:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names
