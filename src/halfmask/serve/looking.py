"""What every model sees on one picture: skeletons, faces, or a label, by the tasks' own inference."""

from __future__ import annotations

import base64
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from halfmask.errors import HalfmaskError
from halfmask.serve.live import progress_of
from halfmask.tasks.base import Task
from halfmask.training.runs import TrainedRun, open_run

# Models kept open for the next picture.
_OPEN = 8
_SHOWN = 900
# A still is shown to a network for videos as two seconds in which nothing moves.
_STILLS, _STILL_RATE = 16, 8.0
_STILL = "shown a picture that does not move, for two seconds: actions are told by movement, so this is a guess"


class Models:
    """The models of runs, opened when they are first asked for; the last few are kept."""

    def __init__(self, device: str | None = None):
        self.device = device
        self._open: OrderedDict[tuple[Path, int], TrainedRun] = OrderedDict()

    def of(self, folder: Path) -> TrainedRun:
        """The model of a run, as its folder holds it now."""
        weights = folder / "model.safetensors"
        key = folder, weights.stat().st_mtime_ns if weights.is_file() else 0
        if key not in self._open:
            trained = open_run(folder, self.device)
            if not all(bool(tensor.isfinite().all()) for tensor in trained.model.parameters()):
                raise HalfmaskError("its weights are not finite numbers: its training diverged")
            self._open[key] = trained
        self._open.move_to_end(key)
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return self._open[key]


def see(trained: TrainedRun, picture: np.ndarray) -> dict[str, Any]:
    """What a model makes of a picture: what `halfmask predict` would write, in a few words, and drawn."""
    task, kind, told = trained.task, type(trained.task), ""
    with torch.no_grad():
        if kind.predict is not Task.predict:
            found, drawing = task.predict(trained.model, picture, trained.device)
        elif kind.predict_video is not Task.predict_video:
            found, frames = task.predict_video(trained.model, [picture] * _STILLS, _STILL_RATE, trained.device)
            drawing, told = next(iter(frames)), _STILL
        else:
            raise HalfmaskError(f"a run of the task '{trained.config.task}' has nothing to say of a single picture")
    return {"found": found, "summary": task.summary(found), "remark": told, "drawing": as_url(drawing)}


def look(models: Models, runs: Mapping[str, Path], picture: np.ndarray) -> Iterator[Callable[[], dict[str, Any]]]:
    """For each run a piece of work whose result is what its model sees, or why it sees nothing."""

    def one(name: str, folder: Path) -> dict[str, Any]:
        settings = progress_of(name, folder).settings
        told = {"run": name} | {key: settings.get(key) for key in ("task", "method", "epsilon", "seed")}
        try:
            return told | see(models.of(folder), picture)
        except HalfmaskError as error:
            return told | {"error": str(error)}
        except Exception as error:
            # What is wrong with one model is no reason not to ask the others.
            traceback.print_exc()
            return told | {"error": f"its model cannot be asked ({type(error).__name__}): the terminal says more"}

    for name, folder in runs.items():
        yield lambda name=name, folder=folder: one(name, folder)  # type: ignore[misc]


def as_url(drawing: np.ndarray) -> str:
    """A picture inside an address, no larger than it is shown."""
    longest = max(drawing.shape[:2])
    if longest > _SHOWN:
        size = (max(1, round(drawing.shape[1] * _SHOWN / longest)), max(1, round(drawing.shape[0] * _SHOWN / longest)))
        drawing = cv2.resize(drawing, size, interpolation=cv2.INTER_AREA)
    done, body = cv2.imencode(".png", cv2.cvtColor(drawing, cv2.COLOR_RGB2BGR))
    assert done
    return "data:image/png;base64," + base64.b64encode(body.tobytes()).decode()
