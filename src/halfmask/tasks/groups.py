"""The groups of settings that a task has: its own, or these.

A run's settings are the loop's own groups (`view`, `subspace`, `public`, `private`, `optimiser`) and four that belong to its task: `data`,
`model`, `augment` and `pretrain`. A task names dataclasses for those that it reads (`Task.groups`), made of `halfmask.settings.setting`;
recipes, `--set`, refusals and the page of settings reach them as they reach all others. What it does not name is what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.settings import setting


@dataclass(frozen=True)
class DataSettings:
    """Which records to use."""

    name: str = setting("records", "What the dataset is called, in results and in the certificate.", fits=bool, expected="a name")
    seed: int = setting(0, "Draws what is drawn of the dataset.", at_least=0)
    strangers: list[str] = setting(
        [],
        "Parts without the unit's ids of which the data holder declares that nobody in them is protected. The certificate says so.",
        one_of=("public", "basis", "tuning", "test"),
        called="part (data.strangers)",
    )
    recurring: str = setting(
        "refuse",
        "What to do about private records that recur in another part: `refuse` the dataset, or `leave-out` those, with all of their units.",
        one_of=("refuse", "leave-out"),
        called="way to treat records that recur (data.recurring)",
    )


@dataclass(frozen=True)
class ModelSettings:
    """The network: nothing of it can be set."""


@dataclass(frozen=True)
class ShowingSettings:
    """Random changes to records during training."""

    times: int = setting(
        0,
        "Each private record is shown so many times, changed differently each time, and the mean of the gradients is what is clipped: "
        "one unit still adds at most C. Public records are shown once. 0 shows all as they are.",
        at_least=0,
    )
    public: bool = setting(False, "Show raw public records changed, also where `augment.times` is 0: they are few, and cost no privacy.")
    views: bool = setting(
        True,
        "With `augment.times`, show views changed too. They are many; with strategy `top`, each copy of them costs a pass of the lower "
        "part.",
    )
    copies: int = setting(
        4,
        "With strategy `top`, whose lower part is computed once, changes are drawn once too: so many of each record, which are shown in "
        "turn with the record as it is.",
        at_least=1,
        at_most=16,
    )

    def check(self, run: Any) -> None:
        """Refuse more showings than there is to show, and images that change while their views do not."""
        # Imported here because tasks name their groups, and this is one.
        from halfmask.tasks.base import task_named

        if run.strategy in task_named(run.task).cached and self.times > self.copies + 1:
            raise HalfmaskError(
                f"augment.times is {self.times} but strategy {run.strategy} has a record and {self.copies} copies to show: raise augment.copies"
            )
        if run.private.residual and self.times and not self.views:
            raise HalfmaskError("private.residual compares an image with its view, changed alike: set augment.views to true")


@dataclass(frozen=True)
class PretrainSettings:
    """Settings of pre-training alone."""

    view_share: float = setting(
        0.0,
        "The share of records, chosen anew in each step, that are shown as their view: the frozen lower part of a model that never saw a "
        "view makes little of one later.",
        at_least=0,
        at_most=1,
    )
    top: bool = setting(
        False,
        "Train the top of the network alone, starting from the weights that the model names; what lies below is computed once, of each "
        "record and of `augment.copies` changed copies.",
    )


DEFAULT_GROUPS: dict[str, type] = {
    "data": DataSettings,
    "model": ModelSettings,
    "augment": ShowingSettings,
    "pretrain": PretrainSettings,
}


def groups_of(task: str, own: Mapping[str, type]) -> dict[str, type]:
    """The four groups of a task that names some of its own."""
    strange = sorted(own.keys() - DEFAULT_GROUPS.keys())
    if strange:
        raise HalfmaskError(f"the task '{task}' names the groups {', '.join(strange)}: expected some of {', '.join(DEFAULT_GROUPS)}")
    return {name: own.get(name, made) for name, made in DEFAULT_GROUPS.items()}
