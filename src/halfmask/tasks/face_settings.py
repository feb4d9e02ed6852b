"""The settings that only faces have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfmask.data.face_sets import FaceDataConfig
from halfmask.errors import HalfmaskError
from halfmask.models.hyperface import SHAPES, SUBTASKS
from halfmask.settings import setting
from halfmask.tasks.groups import ShowingSettings

WEIGHTINGS = ("uncertainty", "equal", "set")
CLIPS = ("joint", "by-task")


@dataclass(frozen=True)
class FaceModelConfig:
    """The network, a HyperFace, and how its five losses become one."""

    size: str = setting("small", "The size of the HyperFace: `small` for a processor, or `paper`.", one_of=SHAPES, called="HyperFace size")
    weights: str | None = setting(
        "embedded",
        "`embedded` for the checkpoint inside the package, a path, or nothing. Heads of another number of landmarks start untrained.",
    )
    fresh_variances: bool = setting(
        False,
        "Begin with the network's own log-variances, and not with those of the weights: for going on from weights that have poor ones.",
    )
    subtasks: list[str] = setting(
        list(SUBTASKS),
        "Which tasks to learn. `attribute` is learnt only where `data.attribute` asks for it; leave `pose` out where a dataset has none.",
        one_of=SUBTASKS,
        called="task of a face (model.subtasks)",
    )
    weighting: str = setting(
        "uncertainty",
        "How the losses are weighed: `uncertainty` by log-variances that are learnt with all other weights, inside the clip; `equal`; or "
        "as `set` in `model.task_weights`.",
        one_of=WEIGHTINGS,
        called="weighting of the tasks",
    )
    task_weights: list[float] = setting(
        [1.0, 5.0, 0.5, 5.0, 2.0],
        "With `model.weighting=set`: the weights of detection, landmarks, visibility, pose and attribute.",
        expected="five numbers, none below 0",
        fits=lambda given: len(given) == len(SUBTASKS) and all(weight >= 0 for weight in given),
    )
    clip: str = setting(
        "joint",
        "`joint` clips a unit's gradient of all tasks together to C. `by-task` clips each task's own to C divided by their number: on "
        "weights that tasks share they add up, so that together they are at most C, and the noise, which is that of C, is as many times "
        "larger beside each.",
        one_of=CLIPS,
        called="way to clip tasks",
    )

    def check(self, run: Any) -> None:
        """Refuse a network that learns nothing, and tasks clipped apart where nothing but one gradient can be clipped."""
        if not self.subtasks:
            raise HalfmaskError(f"model.subtasks is empty: expected some of {', '.join(SUBTASKS)}")
        if self.clip == "by-task" and run.subspace.project_first:
            raise HalfmaskError("model.clip=by-task clips gradients, and subspace.project_first coordinates: set one of them otherwise")

    @property
    def input_size(self) -> tuple[int, int]:
        """The height and width of a region in pixels."""
        side = SHAPES[self.size].input_size
        return side, side


@dataclass(frozen=True)
class FaceShowingConfig(ShowingSettings):
    """Random changes to regions during training: mirrored, moved, lit otherwise."""

    shift: float = setting(0.05, "How far a region is moved at most, as a share of its side.", at_least=0, below=0.5)
    scale: float = setting(0.1, "By how much it is made larger or smaller at most.", at_least=0, below=1)
    light: float = setting(0.2, "How much brightness and contrast change at most.", at_least=0, below=1)
    mirror: bool = setting(True, "Mirror every other region.")


FACE_GROUPS: dict[str, type] = {"data": FaceDataConfig, "model": FaceModelConfig, "augment": FaceShowingConfig}
