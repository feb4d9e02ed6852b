"""What a run is: plain dataclasses, read from a recipe, overridden by flags.

Precedence: defaults < recipe < flags < `--set a.b=c`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from halfmask.data.datasets import DataConfig
from halfmask.data.pose_records import UNITS
from halfmask.errors import HalfmaskError, unknown_name
from halfmask.gradients.mechanism import method_named
from halfmask.privacy.accounting import ACCOUNTANTS, check_budget
from halfmask.privacy.adjacency import Adjacency
from halfmask.training.optimise import OPTIMISERS, OptimiserConfig
from halfmask.training.override import override
from halfmask.training.showing import ShowingConfig

STRATEGIES = ("finetune", "full", "scratch", "top")


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Attributes:
        weights: `embedded` for the checkpoint inside the package, a path (of a whole pose model or of a backbone), or nothing.
    """

    size: str = "nano"
    input_size: tuple[int, int] = (256, 192)
    stage4_stride: int = 2
    norm: str = "batch"
    bins_per_pixel: int = 2
    weights: str | None = "embedded"


@dataclass(frozen=True)
class ViewConfig:
    """What of a private image is public, ψ."""

    name: str = "blur"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SubspaceConfig:
    """Where the directions for projected methods come from.

    Attributes:
        kind: `gradients` (the leading directions of whole public gradients) or `layers` (two small bases for each layer, found from
            the same gradients; many more coordinates can be had from as many people).
        samples: m, how many public records; 0 for none, if there are views.
        views: how many views of private records besides: public where a method has a view, and drawn anew for each refresh.
        dim: k, how many directions; 0 to choose, at each refresh, as many as held-out public people say are worth their noise.
        most: with `dim` 0, the most to choose from.
        refresh: recompute after this many steps; 0 for once per epoch.
        source: `public` (public people) or `private` (units of the private set, which leave it and lose their protection).
        project_first: project each unit's gradient before clipping it, so that what lies outside the subspace uses up none of the
            clip norm. Same sensitivity, same ε; it forms every unit's gradient, so a step costs more.
        whiten: for `layers` with `project_first`: take coordinates in units of how much they vary from one public person to the next,
            before the clip and again after the noise; see `LayeredSubspace.whitened`.
    """

    kind: str = "gradients"
    samples: int = 100
    views: int = 0
    dim: int = 50
    most: int = 4000
    refresh: int = 0
    source: str = "public"
    project_first: bool = False
    whiten: bool = False


@dataclass(frozen=True)
class PublicConfig:
    """The exact half of a step.

    Attributes:
        batch: its size; 0 for the private batch's.
        first: so many public steps before the first step of the run, with a schedule of the learning rate to themselves.
        steps: so many public steps for each step of the run, one after the other, each on a batch of its own. Private steps had better be
            few, on large batches; public ones cost nothing. The noised half goes with the first. 0 for none.
        weight: λ, its weight in the update.
        raw_share: the share of its records that are raw images of public people (where the dataset has any); the rest are views of
            the private set. Views alone, as published, teach a model to see views.
        shared_batch: draw the views of the very people in the private batch, as the method was published. Their exact gradient
            reveals the batch, so sampling amplifies nothing; the noise is calibrated, and the certificate written, for that.
    """

    batch: int = 0
    first: int = 0
    steps: int = 1
    weight: float = 1.0
    raw_share: float = 0.5
    shared_batch: bool = False


@dataclass(frozen=True)
class PrivateConfig:
    """The noised half of a step. None of these changes ε: sensitivity stays C, and the noise σ·C.

    Attributes:
        residual: release what a person's image adds to their view, ∇l(x) − ∇l(ψ(x)), which is often shorter than ∇l(x) and so is
            clipped less. For methods with a view; the exact half supplies ∇l(ψ(x)).
        follow: let the clip norm follow this quantile of the gradient norms of public people, measured at each refresh of the subspace
            (0.5 for their median). Gradients shrink as training goes on; a fixed C is soon too long or too short. 0 keeps C fixed.
        weight: multiplies the half after the noise was added: post-processing, to put both halves on one scale.
        calibrate: take the private loss with its logits scaled so that the model is as sure as it should be on public people whom it
            was not trained on, found anew in each step: see `halfmask.tasks.pose.best_sharpness`.
        optimiser: `shared` adds the half to the public one, and both go through the optimiser of the recipe. `sgd` and `adam` are
            for projected methods: momentum or Adam in the coordinates of the subspace, so that the noise stays in it, and the public
            half has the recipe's optimiser to itself.
        learning_rate, momentum: of `sgd` and `adam`. That of `sgd` is in units of 1/C: a mean gradient as long as the clip norm, and no
            momentum, moves the weights by it.
    """

    residual: bool = False
    follow: float = 0.0
    weight: float = 1.0
    calibrate: bool = False
    optimiser: str = "shared"
    learning_rate: float = 0.1
    momentum: float = 0.9


@dataclass(frozen=True)
class PretrainConfig:
    """Settings of pre-training alone.

    Attributes:
        small_share: the share of steps, at the start, on images of half the size. They cost a quarter, and what is learnt on them
            carries over: the head reads its map at a fixed size.
        view_share: the share of records, chosen anew in each step, that are shown as their view: the frozen lower part of a model
            that never saw a view makes little of one later.
        top: train stage 4 and the head alone, starting from the weights that the model names; what lies below is computed once, of each
            record and of `augment.copies` changed copies.
    """

    small_share: float = 0.0
    view_share: float = 0.0
    top: bool = False


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run, but for the secret randomness.

    Attributes:
        epochs: how often each unit is expected to be read.
        batch: the expected number of units in a step, B̄.
        unit_gradient: a unit's gradient is the `mean` or the `sum` over its records.
        rehearsal: try the run out with the views of private people in the place of their images, which costs nothing: see
            `halfmask.data.rehearsal`.
        budget: the ε, at `delta`, that all runs ever made on the dataset must stay within together.
        declared_reads: how private data was looked at outside the mechanism (to choose a setting or a checkpoint, say). Any makes the
            certificate say ε = ∞, which is then the truth.
        even_so: go on where a plan looks hopeless: see `halfmask.training.prospects`.
        unsafe_diagnostics: write private losses and gradient norms down, for debugging. The certificate then says ε = ∞.
    """

    task: str = "pose"
    method: str = "feature-projective"
    strategy: str = "finetune"
    epsilon: float = 0.8
    delta: float = 1e-5
    clip_norm: float = 0.1
    epochs: float = 25
    batch: int = 64
    adjacency: str = "zero-out"
    unit: str = "crop"
    records_per_unit: int = 8
    unit_gradient: str = "mean"
    accountant: str = "pld"
    rehearsal: bool = False
    budget: float | None = None
    declared_reads: list[str] = field(default_factory=list)
    unsafe_diagnostics: bool = False
    even_so: bool = False
    seed: int = 0
    insecure_seed: int | None = None
    noise_sum_of_four: bool = False
    chunk: int = 64
    device: str = "auto"
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    view: ViewConfig = field(default_factory=ViewConfig)
    subspace: SubspaceConfig = field(default_factory=SubspaceConfig)
    public: PublicConfig = field(default_factory=PublicConfig)
    private: PrivateConfig = field(default_factory=PrivateConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    augment: ShowingConfig = field(default_factory=ShowingConfig)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)

    def checked(self) -> RunConfig:
        """This, after refusing what cannot be run."""
        method = method_named(self.method)
        for kind, found, known in (
            ("task", self.task, ("pose",)),
            ("strategy", self.strategy, STRATEGIES),
            ("unit", self.unit, UNITS),
            ("accountant", self.accountant, ACCOUNTANTS),
            ("optimiser", self.optimiser.name, OPTIMISERS),
            ("schedule", self.optimiser.schedule, ("cosine", "constant")),
            ("subspace source", self.subspace.source, ("public", "private")),
            ("subspace kind", self.subspace.kind, ("gradients", "layers")),
            ("optimiser of the private half", self.private.optimiser, ("shared", "sgd", "adam")),
            ("unit gradient", self.unit_gradient, ("mean", "sum")),
            ("way to treat people who recur (data.recurring)", self.data.recurring, ("refuse", "leave-out")),
        ):
            if found not in known:
                raise unknown_name(kind, found, known)
        adjacency = Adjacency.parse(self.adjacency)
        if self.private.residual and not method.view:
            raise HalfmaskError(
                f"private.residual compares an image with its view, and method '{method.name}' has none: use feature or feature-projective"
            )
        if self.private.optimiser != "shared" and method.private == "noised" and not method.projected:
            raise HalfmaskError(
                f"private.optimiser={self.private.optimiser} works in the coordinates of a subspace, and method '{method.name}' has none: "
                "use projected or feature-projective, or private.optimiser=shared"
            )
        if method.projected and self.subspace.views and not method.view:
            raise HalfmaskError(
                f"subspace.views asks for public views of private people, and method '{method.name}' has none: use feature-projective"
            )
        if method.projected and self.subspace.views and self.private.residual:
            raise HalfmaskError("the subspace of residuals needs raw people: set subspace.views to 0, or private.residual to false")
        if self.rehearsal and not method.view:
            raise HalfmaskError(
                f"a rehearsal takes views and labels of private people to be public, and method '{method.name}' promises to hide them: "
                "rehearse with feature-projective, feature or public-only"
            )
        if self.private.residual and self.augment.times and not self.augment.views:
            raise HalfmaskError("private.residual compares an image with its view, changed alike: set augment.views to true")
        clips_coordinates = self.subspace.kind == "layers" and self.subspace.project_first and self.private.optimiser != "shared"
        if method.projected and self.subspace.whiten and not clips_coordinates:
            raise HalfmaskError(
                "subspace.whiten scales the coordinates that are clipped, and needs subspace.kind=layers, subspace.project_first=true "
                "and private.optimiser=sgd (or adam)"
            )
        self.augment.check(self.strategy)
        if self.optimiser.average >= 1:
            raise HalfmaskError(f"optimiser.average is {self.optimiser.average}: at 1 the weights would never change; expected less")
        if self.public.shared_batch and self.public.first:
            raise HalfmaskError("public.shared_batch takes views from the private batch alone: set public.first to 0")
        if self.public.shared_batch and self.unit != "crop":
            raise HalfmaskError("public.shared_batch reproduces a published mistake and is accounted for unit 'crop' alone")
        if self.budget is not None:
            check_budget(self.budget, self.delta)
        if method.private == "noised":
            check_budget(self.epsilon, self.delta)
            method.check_adjacency(adjacency)
            if adjacency is Adjacency.REPLACE_ONE and self.accountant == "rdp":
                raise HalfmaskError(
                    "the RDP accountant has no bound for Poisson sampling under replace-one: use --accountant pld, or --adjacency zero-out"
                )
            if not (math.isfinite(self.clip_norm) and self.clip_norm > 0):
                raise HalfmaskError(f"the clip norm is {self.clip_norm}: expected a number greater than 0")
        self._check_numbers(method.projected)
        shares = {
            "public.raw_share": self.public.raw_share,
            "pretrain.small_share": self.pretrain.small_share,
            "pretrain.view_share": self.pretrain.view_share,
            "private.follow": self.private.follow,
            "optimiser.average": self.optimiser.average,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise HalfmaskError(f"{name} is {share}: expected a share between 0 and 1")
        return self

    def _check_numbers(self, projected: bool) -> None:
        at_least_one = {"batch": self.batch, "chunk": self.chunk, "records_per_unit": self.records_per_unit}
        at_least_one |= {"model.bins_per_pixel": self.model.bins_per_pixel}
        if projected:
            at_least_one |= {"subspace.samples + subspace.views": self.subspace.samples + self.subspace.views}
            at_least_one |= {"subspace.most": self.subspace.most}
        not_negative: dict[str, float] = {
            "seed": self.seed,
            "data.seed": self.data.seed,
            "data.private": self.data.private,
            "data.public": self.data.public,
            "data.public_skip": self.data.public_skip,
            "data.test": self.data.test,
            "public.batch": self.public.batch,
            "public.first": self.public.first,
            "public.steps": self.public.steps,
            "public.weight": self.public.weight,
            "private.weight": self.private.weight,
            "private.learning_rate": self.private.learning_rate,
            "private.momentum": self.private.momentum,
            "subspace.samples": self.subspace.samples,
            "subspace.views": self.subspace.views,
            "subspace.dim": self.subspace.dim,
            "subspace.refresh": self.subspace.refresh,
            "optimiser.learning_rate": self.optimiser.learning_rate,
            "optimiser.momentum": self.optimiser.momentum,
            "optimiser.weight_decay": self.optimiser.weight_decay,
        }
        for name, value in at_least_one.items():
            if value < 1:
                raise HalfmaskError(f"{name} is {value}: expected at least 1")
        for name, number in not_negative.items():
            if not (math.isfinite(number) and number >= 0):
                raise HalfmaskError(f"{name} is {number}: expected a number of at least 0")
        if not (math.isfinite(self.epochs) and self.epochs > 0):
            raise HalfmaskError(f"epochs is {self.epochs}: expected a number greater than 0")
        size = self.model.input_size
        if len(size) != 2 or min(size) < 32 or any(side % 8 for side in size):
            raise HalfmaskError(f"model.input_size is {list(size)}: expected a height and a width, each a multiple of 8 and at least 32")
        if not self.data.name or self.data.name == "None":
            raise HalfmaskError("data.name is empty: expected 'figures', a dataset folder, or a name below $HALFMASK_DATA")

    def to_yaml(self) -> str:
        """The resolved recipe, for the run folder. The test seed is named; a production key never is."""
        return yaml.safe_dump(_plain(asdict(self)), sort_keys=False)


def load_recipe(name: str | None) -> dict[str, Any]:
    """A recipe by its name inside the package (`pose/figures`) or by its path."""
    if name is None:
        return {}
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise HalfmaskError(f"no recipe at {path}: check the path, or use one of {', '.join(recipe_names())}")
        text = path.read_text()
    else:
        if name not in recipe_names():
            raise unknown_name("recipe", name, recipe_names())
        text = resources.files("halfmask.recipes").joinpath(f"{name}.yaml").read_text()
    try:
        body = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise HalfmaskError(f"recipe {name} is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(body, dict):
        raise HalfmaskError(f"recipe {name} is a {type(body).__name__}: expected names and values")
    return body


def recipe_names() -> list[str]:
    """The recipes inside the package."""
    root = Path(str(resources.files("halfmask.recipes")))
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def build_config(recipe: Mapping[str, Any], flags: Mapping[str, Any], assignments: list[str] | None = None) -> RunConfig:
    """Put defaults, recipe, flags (those not None) and `a.b=c` assignments together."""
    config = override(RunConfig(), recipe, "recipe")
    config = override(config, {name: value for name, value in flags.items() if value is not None}, "flag")
    for assignment in assignments or []:
        path, separator, value = assignment.partition("=")
        if not separator:
            raise HalfmaskError(f"--set '{assignment}': expected key=value, such as optimiser.learning_rate=0.1")
        try:
            nested: Any = yaml.safe_load(value)
        except yaml.YAMLError:
            raise HalfmaskError(f"--set '{assignment}': the value is not valid YAML; quote it") from None
        for part in reversed(path.strip().split(".")):
            nested = {part: nested}
        config = override(config, nested, "--set")
    return config.checked()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value
