"""The settings that only pose has."""

from __future__ import annotations

from dataclasses import dataclass, field

from halfmask.data.augment import AugmentConfig
from halfmask.data.datasets import DataConfig
from halfmask.models.tinyvit import SHAPES
from halfmask.settings import setting
from halfmask.tasks.groups import PretrainSettings, ShowingSettings


def _is_a_size(sides: tuple[int, ...]) -> bool:
    return len(sides) == 2 and min(sides) >= 32 and not any(side % 8 for side in sides)


@dataclass(frozen=True)
class ModelConfig:
    """The network: a TinyViT and a SimCC head."""

    size: str = setting("nano", "The size of the TinyViT.", one_of=SHAPES, called="TinyViT size")
    input_size: tuple[int, int] = setting(
        (256, 192),
        "The height and width of a crop in pixels.",
        fits=_is_a_size,
        expected="a height and a width, each a multiple of 8 and at least 32",
    )
    stage4_stride: int = setting(
        2, "2 as published; 1 keeps stage 4 at stage 3's resolution, as checkpoints made for dense prediction do.", one_of=(1, 2)
    )
    norm: str = setting(
        "batch",
        "The normalisation: `batch`, whose statistics are those of public people and stay as they are, or `group`.",
        one_of=("batch", "group"),
        called="normalisation",
    )
    bins_per_pixel: int = setting(2, "How finely the head divides a pixel to say where a joint is.", at_least=1)
    weights: str | None = setting(
        "embedded",
        "`embedded` for the checkpoint inside the package, a path (of a whole pose model or of a backbone), or nothing.",
    )
    transfer: bool = setting(
        False,
        "Take weights that place another dataset's joints: what the head knows of joints that both datasets have is kept, by their names, "
        "and the others begin anew.",
    )


@dataclass(frozen=True)
class ShowingConfig(ShowingSettings):
    """Random changes to crops during training, and what is changed."""

    change: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass(frozen=True)
class PretrainConfig(PretrainSettings):
    """Settings of pre-training alone."""

    small_share: float = setting(
        0.0,
        "The share of steps, at the start, on images of half the size. They cost a quarter, and what is learnt on them carries over: the "
        "head reads its map at a fixed size.",
        at_least=0,
        at_most=1,
    )


POSE_GROUPS: dict[str, type] = {"data": DataConfig, "model": ModelConfig, "augment": ShowingConfig, "pretrain": PretrainConfig}
