"""How actions are shown: on pages class by class, as frames with the label that a model gives them, and over the time of a video."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halfmask.data.clip_frames import fitted, pick, windows_of
from halfmask.data.clips import ClipRecords
from halfmask.data.records import PRIVATE, Records
from halfmask.models.mvit import PATCH, PATCH_STRIDE
from halfmask.models.mvit_attention import centred
from halfmask.report import canvas
from halfmask.tasks.action_video import annotate, label_over_time, summary_of
from halfmask.tasks.base import Batch, Figure, Judged, Report, Task
from halfmask.views.tokens import FILL

_SHOWN, _SIDE, _LINE = 4, 112, 24
_RIGHT: canvas.Colour = canvas.PALETTE[2]
_WRONG: canvas.Colour = canvas.PALETTE[1]


class ActionShowing(Task):
    """The part of the action task that people look at.

    Attributes:
        opened: the folder of the run whose weights were opened, where one was: its `metrics.json` has the names of the classes.
    """

    parted = "Accuracy of each class (%)"
    opened: Path | None = None

    def figures(self, judged: Sequence[Judged]) -> list[Figure]:
        """What privacy loses of each class and what is regained, and which are confused."""
        from halfmask.report.parts import class_figures

        return class_figures(judged, self.shares())

    def shares(self) -> dict[str, float] | None:
        """Of each class among the private clips, where settings alone tell: those of real people may be told by nobody for free."""
        data = self.config.data
        if data.name != "figures":
            return None
        from halfmask.data.figures.clips import CARE_ACTIONS

        weights = {name: (1 - data.balance) ** place for place, name in enumerate(CARE_ACTIONS)}
        kept = {name: weights[name] for name in data.classes or CARE_ACTIONS if name in weights}
        return {name: weight / sum(kept.values()) for name, weight in kept.items()}

    def pictures(self, model: nn.Module | None, records: Records, device: torch.device | str = "cpu") -> list[np.ndarray]:
        """Four frames of each clip above the action, or what a model takes it for: green if that is right.

        What no token that is there has a part in is painted over: of a view, that is not public.
        """
        from halfmask.tasks.action import action_logits

        assert isinstance(records, ClipRecords)
        everyone = np.arange(len(records))
        shown, labels = records.part(PRIVATE).rows(everyone), records.targets.rows(everyone)["label"]
        clips = np.where(in_tokens(shown["tokens"], shown["clip"].shape)[:, :, None], shown["clip"], np.uint8(FILL))
        said, sure = labels, np.ones(len(labels))
        if model is not None:
            batches = records.without_view().batches(PRIVATE, device)
            with torch.no_grad():
                chances = torch.cat([action_logits(model, batch).softmax(-1).cpu() for batch in batches]).numpy()
            said, sure = chances.argmax(1), chances.max(1)
        drawn = []
        for clip, label, answer, chance in zip(clips, labels, said, sure, strict=True):
            words = records.classes[answer] + ("" if model is None else f" {chance:.2f}")
            drawn.append(_quartet(clip, words, canvas.INK if model is None else _RIGHT if answer == label else _WRONG))
        return drawn

    def predict_video(
        self,
        model: nn.Module,
        frames: Iterable[np.ndarray],
        fps: float,
        device: torch.device | str = "cpu",
        seconds: float | None = None,
        report: Report | None = None,
    ) -> tuple[dict[str, Any], Iterator[np.ndarray]]:
        """What is done when; frames are made into clips as those of a dataset are."""
        from halfmask.tasks.action import action_logits

        length, side = self.config.model.clip_shape
        # Nobody says where the person is on a video of the user's: what is looked at is then the central square.
        fit = "crop" if self.config.data.fit == "person" else self.config.data.fit

        def classify(clips: np.ndarray) -> np.ndarray:
            pixels = torch.from_numpy(clips).to(device)
            batch: Batch = {"clip": pixels, "tokens": torch.ones(len(pixels), *self.grid, dtype=torch.bool, device=device)}
            logits: Tensor = action_logits(model, batch)
            return logits.float().softmax(-1).cpu().numpy()

        def shrink(frame: np.ndarray) -> np.ndarray:
            return fitted(frame[None], side, windows_of((1, *frame.shape[:2]), fit))[0]

        found = label_over_time(classify, frames, fps, self.class_names(model), shrink, length, seconds, report=report)
        return found, annotate(frames, found)

    def summary(self, found: Mapping[str, Any]) -> str:  # noqa: D102
        return summary_of(found)

    def class_names(self, model: nn.Module) -> list[str]:
        """Those of the run that was opened; numbers for a run that was judged on nobody."""
        from halfmask.training.runs import read_json

        known = int(model.head[-1].out_features)  # type: ignore[index, union-attr]
        scores = None if self.opened is None else read_json(self.opened / "metrics.json")
        names = [] if scores is None else scores.get("classes", [])
        return list(names) if len(names) == known else [f"class {number}" for number in range(known)]

    @property
    @abstractmethod
    def grid(self) -> tuple[int, int, int]:
        """How many tokens a clip has, in time and in space."""


def in_tokens(tokens: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Which pixels of N×T×3×H×W clips have a part in a token that is there: N×T×H×W."""
    sizes, padding = (shape[1], *shape[3:]), centred(PATCH)
    sides = zip(sizes, tokens.shape[1:], PATCH, PATCH_STRIDE, padding, strict=True)
    more = [size - ((count - 1) * step - 2 * pad + patch) for size, count, patch, step, pad in sides]
    there = torch.from_numpy(np.array(tokens, np.float32))[:, None]
    found = F.conv_transpose3d(there, torch.ones(1, 1, *PATCH), stride=PATCH_STRIDE, padding=padding, output_padding=tuple(more))
    return found[:, 0].numpy() > 0.5


def _quartet(clip: np.ndarray, words: str, colour: canvas.Colour) -> np.ndarray:
    """Four frames of T×3×H×W, two by two, with a line of words below."""
    shown = clip[pick(len(clip), _SHOWN)].transpose(0, 2, 3, 1)
    frames = [cv2.resize(frame, (_SIDE, _SIDE), interpolation=cv2.INTER_LINEAR) for frame in shown]
    picture = canvas.blank(2 * _SIDE, 2 * _SIDE + _LINE)
    picture[: 2 * _SIDE] = np.concatenate([np.concatenate(frames[:2], 1), np.concatenate(frames[2:], 1)])
    canvas.draw_text(
        picture, words, (4, 2 * _SIDE + _LINE / 2), min(0.5, 0.5 * 2 * _SIDE / max(1, canvas.text_size(words, 0.5)[0] + 8)), colour
    )
    return picture
