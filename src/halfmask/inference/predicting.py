"""Poses of people on pictures, videos and from cameras: found, placed, drawn and told, one picture after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.data.footage import Camera, Footage, write_video
from halfmask.data.images import read_image
from halfmask.data.people import Box
from halfmask.errors import HalfmaskError
from halfmask.inference.detection import Detector
from halfmask.inference.people_given import Given
from halfmask.inference.poses import LOW, Posed, PoseSeer, coco_body, draw_people, place_people
from halfmask.inference.sources import CAMERA, VIDEO, Source
from halfmask.report.overlay import save_png
from halfmask.writing import write_whole, writing

DRAWN, FRAMES = "-people", "-frames"
# Whatever is written for a source.
ENDINGS = (".json", ".png", f"{DRAWN}.mp4", f"{DRAWN}.avi", FRAMES)
Report = Callable[[str, int, int], None]


@dataclass
class Tally:
    """What was done so far, and how long it took."""

    pictures: int = 0
    people: int = 0
    finding: float = 0.0
    placing: float = 0.0
    best: float = 0.0
    begun: float = field(default_factory=time.perf_counter)

    def words(self) -> str:
        """A line for the end."""
        took = max(time.perf_counter() - self.begun, 1e-9)
        shares = f"{100 * self.finding / took:.0f} % of the time finding people, {100 * self.placing / took:.0f} % placing joints"
        return (
            f"{self.pictures:,} pictures with {self.people:,} people in {took:.1f} s: {self.pictures / took:.2f} pictures and "
            f"{self.people / took:.2f} people a second ({shares})"
        )


@dataclass
class Watcher:
    """Looks at pictures.

    Attributes:
        boxes: of each picture by its name, where somebody wrote them down.
        box: one for every picture.
        detector: finds people where no box was given; None to take a whole picture for one person's crop.
    """

    network: PoseSeer
    boxes: dict[str, Given] | None = None
    box: Box | None = None
    detector: Detector | None = None
    tally: Tally = field(default_factory=Tally)

    def people(self, image: np.ndarray, name: str = "") -> list[Posed]:
        """Everybody on a picture (H×W×3 bytes, red first)."""
        start = time.perf_counter()
        boxes, scores = self._boxes(image, name)
        middle = time.perf_counter()
        found = place_people(self.network, image, boxes, scores)
        tally = self.tally
        tally.finding += middle - start
        tally.placing += time.perf_counter() - middle
        tally.pictures += 1
        tally.people += len(found)
        tally.best = max([tally.best, *(one.score for one in found)])
        return found

    def _boxes(self, image: np.ndarray, name: str) -> tuple[list[Box | None], list[float] | None]:
        if self.boxes is not None:
            given = self.boxes.get(name)
            if given is None:
                raise HalfmaskError(
                    f"the file of boxes does not name {name}: give its boxes, or a line without any to say that nobody is on it"
                )
            given.check_size(image.shape[1], image.shape[0])
            return list(given.boxes), None
        if self.box is not None or self.detector is None:
            return [self.box], None
        found = self.detector(image)
        return [one.box for one in found], [one.score for one in found]

    def cautions(self) -> list[str]:
        """What whoever reads the answers should not miss."""
        found = []
        if not self.network.calibrated:
            found.append(
                "the scores are the network's own and no chances: its run had no public people to spare to tell what they are worth"
            )
        elif self.tally.people and self.tally.best < LOW:
            found.append(
                f"the model is unsure of everybody: of the surest, {100 * self.tally.best:.0f} % of the joints are expected to be right. "
                "Are the pictures like those it was trained on, and are the boxes right?"
            )
        if self.tally.pictures and not self.tally.people:
            found.append(
                "nobody was found. Try --people hog, which knows people who stand and are seen whole; give boxes with --boxes; or say "
                "--people whole if each picture is one person's crop"
            )
        return found


def predict_picture(watcher: Watcher, source: Source, out: Path, name: str) -> dict[str, Any]:
    """Look at one picture, and write `NAME.json` and `NAME.png`; gives what was found, in short."""
    image = read_image(source.path)
    people = watcher.people(image, source.path.as_posix())
    size = (image.shape[1], image.shape[0])
    body = coco_body(source.path.name, size, people, watcher.network)
    with writing(out / f"{name}.json", "predict again"):
        write_whole(out / f"{name}.json", _packed(body))
        save_png(out / f"{name}.png", draw_people(image, people, watcher.network.skeleton))
    files = {"json": str(out / f"{name}.json"), "png": str(out / f"{name}.png")}
    return {"image": str(source.path), "people": [_short(one) for one in people]} | files


def predict_film(
    watcher: Watcher, source: Source, out: Path, name: str, seconds: float | None = None, report: Report | None = None
) -> dict[str, Any]:
    """Look at every frame of a video, or of a camera until it is stopped, and write the film with skeletons and a JSON for each frame."""
    film: Footage | Camera = Camera(int(str(source.path))) if source.kind == CAMERA else Footage(source.path)
    frames, counts = out / f"{name}{FRAMES}", list[int]()
    for old in frames.glob("*.json") if frames.is_dir() else ():
        old.unlink()

    def drawn() -> Iterator[np.ndarray]:
        for number, frame in enumerate(_for(film, seconds), 1):
            people = watcher.people(frame)
            size = (frame.shape[1], frame.shape[0])
            body = coco_body(f"{name}-{number:06d}", size, people, watcher.network, number)
            body["images"][0]["seconds"] = round((number - 1) / film.fps, 4)
            write_whole(frames / f"{number:06d}.json", _packed(body))
            counts.append(len(people))
            if report:
                report(f"frames of {name}", number, max(number, film.expected))
            yield _even(draw_people(frame, people, watcher.network.skeleton))

    with writing(frames, "predict again"):
        frames.mkdir(parents=True, exist_ok=True)
        path = write_video(out / f"{name}{DRAWN}", drawn(), film.fps)
    told = {"frames": len(counts), "fps": round(film.fps, 3), "people_in_a_frame": round(float(np.mean(counts)), 3) if counts else 0.0}
    kind = "video" if source.kind == VIDEO else "camera"
    return {kind: str(source.path)} | told | {"json": str(frames), "drawn": str(path)}


def _for(film: Iterable[np.ndarray], seconds: float | None) -> Iterator[np.ndarray]:
    """Frames until the time is over, or somebody presses Ctrl-C: what was seen until then is kept."""
    begun = time.monotonic()
    try:
        for frame in film:
            if seconds is not None and time.monotonic() - begun > seconds:
                return
            yield frame
    except KeyboardInterrupt:
        if not isinstance(film, Camera):
            raise


def _even(frame: np.ndarray) -> np.ndarray:
    """With an even number of rows and of columns, as films have them."""
    rows, columns = frame.shape[:2]
    return np.pad(frame, ((0, rows % 2), (0, columns % 2), (0, 0)), mode="edge")


def _short(one: Posed) -> dict[str, Any]:
    return {"box": None if one.box is None else [round(value, 1) for value in one.box], "score": round(one.score, 4)}


def _packed(body: dict[str, Any]) -> bytes:
    return (json.dumps(body, ensure_ascii=False) + "\n").encode()
