"""The settings that only actions have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfmask.data.clip_sets import ClipDataConfig
from halfmask.errors import HalfmaskError
from halfmask.models.mvit import SHAPES
from halfmask.settings import setting
from halfmask.tasks.groups import PretrainSettings, ShowingSettings


@dataclass(frozen=True)
class ActionModelConfig:
    """The network, an MViTv2, and what of a clip it is shown."""

    size: str = setting("nano", "The size of the MViTv2: `nano` for a processor, or `s`.", one_of=SHAPES, called="MViT size")
    weights: str | None = setting(
        "embedded",
        "`embedded` for the checkpoint inside the package, a path (a public Kinetics checkpoint loads as it is), or nothing. A head of "
        "other classes starts untrained.",
    )
    keep_head: bool = setting(
        False,
        "Begin with the head of the weights too, where it has as many classes: for going on from a model that was trained on these very "
        "classes.",
    )
    frames: int | None = setting(None, "Frames of a clip; by default those of the size (8 of `nano`, 16 of `s`).", at_least=1)
    side: int | None = setting(
        None,
        "Their height and width in pixels; by default those of the size (96, 224).",
        fits=lambda side: side >= 32 and side % 32 == 0,
        expected="a multiple of 32",
    )

    def check(self, run: Any) -> None:
        """Refuse a rehearsal: where ψ is a part of the clip itself, a view of a view is the view."""
        if run.rehearsal:
            raise HalfmaskError(
                "a rehearsal shows views in the place of records, and the public tokens of a clip have no protected part to rehearse with: "
                "try settings on public clips, or with --method public-only, which costs nothing"
            )

    @property
    def clip_shape(self) -> tuple[int, int]:
        """Frames, and pixels a side."""
        shape = SHAPES[self.size]
        return self.frames or shape.frames, self.side or shape.side


@dataclass(frozen=True)
class ActionShowingConfig(ShowingSettings):
    """Random changes to clips during training: mirrored, lit otherwise."""

    light: float = setting(0.2, "How much brightness and contrast change at most.", at_least=0, below=1)
    mirror: bool = setting(True, "Mirror every other clip. Leave it out where classes tell left from right.")


@dataclass(frozen=True)
class ActionPretrainConfig(PretrainSettings):
    """Settings of pre-training alone."""

    rest_share: float = setting(
        0.0, "The share of records that are shown as what their mask protects, the other side of their view.", at_least=0, at_most=1
    )
    joints: float = setting(
        0.0,
        "How much the placing of joints counts beside the naming of actions, on drawn clips, whose joints are known: how people move is "
        "learnt from them much sooner.",
        at_least=0,
    )


ACTION_GROUPS: dict[str, type] = {
    "data": ClipDataConfig,
    "model": ActionModelConfig,
    "augment": ActionShowingConfig,
    "pretrain": ActionPretrainConfig,
}
