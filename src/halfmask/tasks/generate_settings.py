"""The settings that only generated pictures have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfmask.data.picture_sets import PictureDataConfig
from halfmask.errors import HalfmaskError
from halfmask.models.posegan import SHAPES
from halfmask.settings import setting
from halfmask.tasks.groups import PretrainSettings, ShowingSettings

CLIPS = ("real", "pair")
BOUNDS = ("weights", "spectral", "penalty", "none")
CRITICS = ("network", "means")


@dataclass(frozen=True)
class GenerateModelConfig:
    """The generator, what judges it, and how the two take turns."""

    size: str = setting("small", "`small`, made for a processor, or `paper`.", one_of=SHAPES, called="size of the generator")
    weights: str | None = setting(None, "A warm start: what `halfmask pretrain generate/pretrain` wrote; or nothing.")
    fresh_critic: bool = setting(False, "Begin with an untrained critic, and not with that of the weights.")
    critic: str = setting(
        "network",
        "What judges pictures: a `network` that learns to, in many noised steps, or `means`: noised means of fixed features, released "
        "once, which the generator then learns to match.",
        one_of=CRITICS,
        called="critic",
    )
    clip: str = setting(
        "real",
        "`real` clips and noises the gradient of the real picture alone; generated ones are clipped to the same C and not noised. `pair`, "
        "as published, clips real minus generated as one.",
        one_of=CLIPS,
        called="way to clip (model.clip)",
    )
    bound: str = setting(
        "weights",
        "What keeps the critic from rising too steeply: cutting its `weights` to `model.limit`, as published; the `spectral` norm of each "
        "layer, to `model.limit` at most; a `penalty` on its slope between public and generated pictures; or `none`.",
        one_of=BOUNDS,
        called="bound of the critic",
    )
    limit: float = setting(0.01, "That of `weights` (the paper's c) or of `spectral` norms.", above=0)
    penalty: float = setting(10.0, "The weight of the `penalty`.", at_least=0)
    conditional: bool = setting(False, "Let the critic see the pose besides the picture. Poses are public.")
    critic_steps: int = setting(5, "n_d, how many steps the critic takes for each one of the generator.", at_least=1)
    generator_steps: int = setting(1, "How many steps the generator then takes; all of them at once after `means`.", at_least=0)
    generator_rate: float = setting(1e-4, "The learning rate of the generator.", at_least=0)
    generator_batch: int = setting(64, "How many pictures it draws in a step of its own.", at_least=2)
    generator_optimiser: str = setting(
        "adam", "`adam`, or `sgd`, as published.", one_of=("adam", "sgd"), called="optimiser of the generator"
    )
    generator_part: str = setting(
        "whole",
        "What of it learns: the `whole`, or the `appearance` alone, so that how a pose becomes a shape stays as public people taught it.",
        one_of=("whole", "appearance"),
        called="part of the generator",
    )
    anchor: float = setting(
        0.0,
        "How strongly the generator is held to the outlines it drew at its public start: to what stands out from its surroundings, while "
        "light and colours are free to change.",
        at_least=0,
    )
    average: float = setting(
        0.0,
        "Release an average of the generator's weights, each of its steps keeping this share of it. 0 releases the last.",
        at_least=0,
        below=1,
    )
    spread: float = setting(0.03, "The standard deviation of a joint's heatmap, as a share of the picture's height.", above=0)

    def check(self, run: Any) -> None:
        """Refuse what has no meaning together."""
        if self.critic == "means" and (self.clip == "pair" or self.conditional):
            raise HalfmaskError(
                "model.critic=means looks at real pictures alone, and knows their poses: set model.clip=real, model.conditional=false"
            )
        if self.clip == "real" and run.private.follow:
            raise HalfmaskError(
                "private.follow moves the clip norm of real pictures, and generated ones beside them would keep theirs: set it to 0, or "
                "model.clip=pair"
            )
        if self.clip == "pair" and not run.augment.times:
            raise HalfmaskError("model.clip=pair draws a generated picture for each real one it is shown: set augment.times to 1")


@dataclass(frozen=True)
class GenerateShowingConfig(ShowingSettings):
    """How pictures are shown: as they are, each beside generated ones where pairs are clipped."""

    times: int = setting(1, "How many generated pictures stand against each real one, with `model.clip=pair`.", at_least=0)


@dataclass(frozen=True)
class GeneratePretrainConfig(PretrainSettings):
    """The warm start: public people are drawn again from what an encoder says of them; then a critic learns to tell the two apart."""

    encoder: bool = setting(False, "Train with an encoder, which is left out of what private runs load.")
    critic: bool = setting(False, "Train the critic alone, against a generator that `model.weights` has taught to draw.")
    person: float = setting(8.0, "How much more a person's pixels count than what stands behind.", at_least=0)
    appearances: float = setting(1.0, "The weight of how far appearances from noise are from those of public people.", at_least=0)


GENERATE_GROUPS: dict[str, type] = {
    "data": PictureDataConfig,
    "model": GenerateModelConfig,
    "augment": GenerateShowingConfig,
    "pretrain": GeneratePretrainConfig,
}
