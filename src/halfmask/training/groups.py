"""The loop's own groups of settings, the same for every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.settings import setting
from halfmask.tasks.base import task_named
from halfmask.views import VIEWS

if TYPE_CHECKING:
    from halfmask.training.config import RunConfig


@dataclass(frozen=True)
class ViewConfig:
    """What of a private image is public, ψ."""

    # A function, for there may be more when it is asked than there were when this was read.
    name: str = setting("blur", "Which view.", one_of=lambda: VIEWS, called="view")
    options: dict[str, Any] = setting({}, "The view's own options, such as `{kernel: 9}`.")


@dataclass(frozen=True)
class SubspaceConfig:
    """Where the directions for projected methods come from."""

    kind: str = setting(
        "gradients",
        "`gradients` (the leading directions of whole public gradients) or `layers` (two small bases for each layer, found from the same "
        "gradients; many more coordinates can be had from as many people).",
        one_of=("gradients", "layers"),
        called="subspace kind",
    )
    samples: int = setting(100, "m, how many public records; 0 for none, if there are views.", at_least=0)
    views: int = setting(
        0,
        "How many views of private records besides: public where a method has a view, and drawn anew for each refresh.",
        at_least=0,
    )
    dim: int = setting(
        50,
        "k, how many directions; 0 to choose, at each refresh, as many as held-out public people say are worth their noise.",
        at_least=0,
    )
    most: int = setting(4000, "With `subspace.dim` 0, the most to choose from.", at_least=1, asked_of="projected")
    refresh: int = setting(0, "Recompute after this many steps; 0 for once per epoch.", at_least=0)
    source: str = setting(
        "public",
        "`public` (public people) or `private` (units of the private set, which leave it and lose their protection).",
        one_of=("public", "private"),
        called="subspace source",
    )
    project_first: bool = setting(
        False,
        "Project each unit's gradient before clipping it, so that what lies outside the subspace uses up none of the clip norm. Same "
        "sensitivity, same ε; it forms every unit's gradient, so a step costs more.",
    )
    whiten: bool = setting(
        False,
        "For `layers` with `subspace.project_first`: take coordinates in units of how much they vary from one public person to the next, "
        "before the clip and again after the noise.",
    )

    def check(self, run: RunConfig) -> None:
        """Refuse a subspace that could not be found, or whose coordinates nobody clips."""
        method = method_named(run.method)
        if not method.projected:
            return
        if self.views and not method.view:
            raise HalfmaskError(
                f"subspace.views asks for public views of private people, and method '{method.name}' has none: use feature-projective"
            )
        if self.views and run.private.residual:
            raise HalfmaskError("the subspace of residuals needs raw people: set subspace.views to 0, or private.residual to false")
        if self.samples + self.views < 1:
            raise HalfmaskError(f"subspace.samples + subspace.views is {self.samples + self.views}: expected at least 1")
        clips_coordinates = self.kind == "layers" and self.project_first and run.private.optimiser != "shared"
        if self.whiten and not clips_coordinates:
            raise HalfmaskError(
                "subspace.whiten scales the coordinates that are clipped, and needs subspace.kind=layers, subspace.project_first=true "
                "and private.optimiser=sgd (or adam)"
            )


@dataclass(frozen=True)
class PublicConfig:
    """The exact half of a step."""

    batch: int = setting(0, "Its size; 0 for the private batch's.", at_least=0)
    first: int = setting(
        0, "So many public steps before the first step of the run, with a schedule of the learning rate to themselves.", at_least=0
    )
    steps: int = setting(
        1,
        "So many public steps for each step of the run, one after the other, each on a batch of its own. Private steps had better be few, "
        "on large batches; public ones cost nothing. The noised half goes with the first. 0 for none.",
        at_least=0,
    )
    weight: float = setting(1.0, "λ, its weight in the update.", at_least=0)
    raw_share: float = setting(
        0.5,
        "The share of its records that are raw images of public people (where the dataset has any); the rest are views of the private "
        "set. Views alone, as published, teach a model to see views.",
        at_least=0,
        at_most=1,
    )
    shared_batch: bool = setting(
        False,
        "Draw the views of the very people in the private batch, as the method was published. Their exact gradient reveals the batch, so "
        "sampling amplifies nothing; the noise is calibrated, and the certificate written, for that.",
    )

    def check(self, run: RunConfig) -> None:
        """Refuse a shared batch where there is no private one to share, or where it is not accounted."""
        if self.shared_batch and self.first:
            raise HalfmaskError("public.shared_batch takes views from the private batch alone: set public.first to 0")
        finest = next(iter(task_named(run.task).units), "record")
        if self.shared_batch and run.unit != finest:
            raise HalfmaskError(f"public.shared_batch reproduces a published mistake and is accounted for unit '{finest}' alone")


@dataclass(frozen=True)
class PrivateConfig:
    """The noised half of a step. None of these changes ε: sensitivity stays C, and the noise σ·C."""

    residual: bool = setting(
        False,
        "Release what a person's image adds to their view, ∇l(x) − ∇l(ψ(x)), which is often shorter than ∇l(x) and so is clipped less. "
        "For methods with a view; the exact half supplies ∇l(ψ(x)).",
    )
    follow: float = setting(
        0.0,
        "Let the clip norm follow this quantile of the gradient norms of public people, measured at each refresh of the subspace (0.5 for "
        "their median). Gradients shrink as training goes on; a fixed C is soon too long or too short. 0 keeps C fixed.",
        at_least=0,
        at_most=1,
    )
    weight: float = setting(
        1.0, "Multiplies the half after the noise was added: post-processing, to put both halves on one scale.", at_least=0
    )
    calibrate: bool = setting(
        False,
        "Take the private loss with its logits scaled so that the model is as sure as it should be on public people whom it was not "
        "trained on, found anew in each step.",
    )
    optimiser: str = setting(
        "shared",
        "`shared` adds the half to the public one, and both go through the optimiser of the recipe. `sgd` and `adam` are for projected "
        "methods: momentum or Adam in the coordinates of the subspace, so that the noise stays in it, and the public half has the "
        "recipe's optimiser to itself.",
        one_of=("shared", "sgd", "adam"),
        called="optimiser of the private half",
    )
    learning_rate: float = setting(
        0.1,
        "That of `sgd` and `adam`. For `sgd` it is in units of 1/C: a mean gradient as long as the clip norm, and no momentum, moves the "
        "weights by it.",
        at_least=0,
    )
    momentum: float = setting(0.9, "That of `sgd` and `adam`.", at_least=0)

    def check(self, run: RunConfig) -> None:
        """Refuse a residual without a view, and coordinates without a subspace."""
        method = method_named(run.method)
        if self.residual and not method.view:
            raise HalfmaskError(
                f"private.residual compares an image with its view, and method '{method.name}' has none: use feature or feature-projective"
            )
        if self.residual and method.rest:
            raise HalfmaskError(
                f"private.residual compares a record with its view, and method '{method.name}' divides a record in two, of which neither "
                "half has a part in the other's gradient: use feature or feature-projective, or set it to false"
            )
        if self.optimiser != "shared" and method.private == "noised" and not method.projected:
            raise HalfmaskError(
                f"private.optimiser={self.optimiser} works in the coordinates of a subspace, and method '{method.name}' has none: "
                f"use {'masked-projective' if method.rest else 'projected or feature-projective'}, or private.optimiser=shared"
            )
