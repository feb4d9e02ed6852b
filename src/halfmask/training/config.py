"""What a run is: plain dataclasses, read from a recipe, overridden by flags.

Precedence: defaults < recipe < flags < `--set a.b=c`. Which settings `data`, `model`, `augment` and `pretrain` have is for the task to
say, so its name is found first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from halfmask.errors import HalfmaskError, Problems, unknown_name
from halfmask.gradients.mechanism import METHODS, method_named
from halfmask.privacy.accounting import ACCOUNTANTS, LARGEST_EPSILON, SMALLEST_EPSILON, check_budget
from halfmask.privacy.adjacency import Adjacency
from halfmask.settings import groups_in, note_problems, setting
from halfmask.tasks.base import task_named
from halfmask.tasks.groups import DEFAULT_GROUPS, groups_of
from halfmask.tasks.pose_settings import ModelConfig as ModelConfig
from halfmask.tasks.pose_settings import PretrainConfig as PretrainConfig
from halfmask.training.groups import PrivateConfig, PublicConfig, SubspaceConfig, ViewConfig
from halfmask.training.optimise import OptimiserConfig
from halfmask.training.override import override
from halfmask.words import a_or_an

STRATEGIES = ("finetune", "full", "scratch", "top")
# What others call what is protected.
_UNITS_ELSEWHERE = {
    **dict.fromkeys(("person", "people", "patient", "participant", "individual", "identity", "user", "human", "name", "id"), "subject"),
    **dict.fromkeys(("photo", "photograph", "picture", "frame", "file"), "image"),
    **dict.fromkeys(("film", "movie", "recording"), "video"),
    **dict.fromkeys(("box", "instance", "detection"), "crop"),
}
_BUDGETS = f"a number from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}"


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run, but for the secret randomness.

    Attributes:
        data, model, augment, pretrain: of the types that the task names; see `halfmask.tasks.groups`.
    """

    task: str = setting("pose", "What is learnt.", expected="the name of a task")
    method: str = setting(
        "",
        "Which parts a step has: see [concepts](concepts.md). By default feature-projective, or what the task asks for.",
        one_of=METHODS,
        called="method",
    )
    strategy: str = setting(
        "finetune",
        "Which weights train: with `full` and `scratch` all of them (`scratch` starts from random ones), with `finetune` and `top` those "
        "that the task says.",
        one_of=STRATEGIES,
        called="strategy",
    )
    epsilon: float = setting(0.8, "The privacy loss ε to stay within.", expected=_BUDGETS, asked_of="noised")
    delta: float = setting(
        1e-5, "The probability δ with which ε may fail.", expected="a probability between 0 and 1, well below 1/N", asked_of="noised"
    )
    noise_multiplier: float | None = setting(
        None,
        "σ, where it is fixed beforehand: the run then takes as many steps as ε allows, `epochs` at most. By default it is what the steps "
        "need.",
        expected="a number above 0",
        fits=lambda given: given is None or 0 < given < math.inf,
        asked_of="noised",
    )
    clip_norm: float = setting(
        0.1, "C, how long the gradient of one unit may be at most.", above=0, called="the clip norm", asked_of="noised"
    )
    epochs: float = setting(25, "How often each unit is expected to be read.", above=0)
    batch: int = setting(64, "The expected number of units in a step, B̄.", at_least=1)
    adjacency: str = setting(
        "zero-out", "What is hidden about a unit.", one_of=tuple(relation.value for relation in Adjacency), called="adjacency"
    )
    unit: str = setting("", "What is protected; by default the finest unit that the task has.", expected="a unit of the task")
    records_per_unit: int = setting(8, "How many records of a unit are read at most; the others never are.", at_least=1)
    unit_gradient: str = setting(
        "mean", "A unit's gradient is the mean or the sum over its records.", one_of=("mean", "sum"), called="unit gradient"
    )
    accountant: str = setting("pld", "`pld` (tighter) or `rdp`.", one_of=ACCOUNTANTS, called="accountant")
    rehearsal: bool = setting(False, "Try the run out with the views of private people in the place of their images, which costs nothing.")
    budget: float | None = setting(
        None, "The ε, at `delta`, that all runs ever made on the dataset must stay within together.", expected=_BUDGETS
    )
    declared_reads: list[str] = setting(
        [],
        "How private data was looked at outside the mechanism (to choose a setting or a checkpoint, say). Any makes the certificate say "
        "ε = ∞, which is then the truth.",
    )
    unsafe_diagnostics: bool = setting(
        False, "Write private losses and gradient norms down, for debugging. The certificate then says ε = ∞."
    )
    even_so: bool = setting(False, "Go on where a plan looks hopeless.")
    seed: int = setting(0, "Fixes initial weights, public sampling and changes; never the private noise.", at_least=0)
    insecure_seed: int | None = setting(None, "For tests only: fixes noise and private sampling too. The certificate says so.")
    noise_sum_of_four: bool = setting(
        False, "Make each number of noise of four draws, so that the gaps between numbers a computer can represent betray nothing."
    )
    chunk: int = setting(64, "How many records go through the network at once; it changes memory and time, and no result.", at_least=1)
    device: str = setting("auto", "Where to compute: `auto`, `cpu`, `cuda`, `cuda:1` …")
    data: Any = None
    model: Any = None
    view: ViewConfig = field(default_factory=ViewConfig)
    subspace: SubspaceConfig = field(default_factory=SubspaceConfig)
    public: PublicConfig = field(default_factory=PublicConfig)
    private: PrivateConfig = field(default_factory=PrivateConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    augment: Any = None
    pretrain: Any = None

    def __post_init__(self) -> None:
        missing = [name for name in DEFAULT_GROUPS if getattr(self, name) is None]
        for name in missing:
            object.__setattr__(self, name, task_groups(self.task)[name]())
        if not self.method:
            object.__setattr__(self, "method", task_named(self.task).method)
        if not self.unit:
            object.__setattr__(self, "unit", next(iter(task_units(self.task)), "record"))

    def checked(self, problems: Problems | None = None) -> RunConfig:
        """This, after refusing what cannot be run: each setting by what is declared of it, each group by itself, then the promise.

        Args:
            problems: what was found wrong before; all of it is told at once.
        """
        problems = problems or Problems()
        with problems.gathered():
            self._check_task()
        method = METHODS.get(self.method)
        kinds = set() if method is None else {method.private} | ({"projected"} if method.projected else set())
        note_problems(self, problems, asked=kinds)
        if method is not None:
            for name, group in groups_in(self):
                if name and callable(getattr(group, "check", None)):
                    with problems.gathered():
                        group.check(self)
            with problems.gathered():
                self._check_promise()
        problems.raise_if_any("the settings")
        return self

    def _check_task(self) -> None:
        for name, made in task_groups(self.task).items():
            if not isinstance(getattr(self, name), made):
                raise HalfmaskError(
                    f"{name} is {a_or_an(type(getattr(self, name)).__name__)} and the task '{self.task}' has {made.__name__}: "
                    "build the settings anew for this task"
                )
        methods = task_named(self.task).methods
        if self.method in METHODS and self.method not in methods:
            divides = ", whose records no mask divides" if METHODS[self.method].rest else ""
            raise HalfmaskError(f"method '{self.method}' has no meaning for the task '{self.task}'{divides}: use {', '.join(methods)}")
        if task_units(self.task) and self.unit not in task_units(self.task):
            raise unknown_name("unit", self.unit, task_units(self.task), _UNITS_ELSEWHERE)

    def _check_promise(self) -> None:
        method = method_named(self.method)
        if self.rehearsal and not method.view:
            raise HalfmaskError(
                f"a rehearsal takes views and labels of private people to be public, and method '{method.name}' promises to hide them: "
                "rehearse with feature-projective, feature or public-only"
            )
        if self.budget is not None:
            check_budget(self.budget, self.delta)
        # Whatever the method: one that reads nothing private is shown what stays of a unit all the same, and would miss it.
        adjacency = Adjacency.parse(self.adjacency)
        method.check_adjacency(adjacency)
        stays = task_named(self.task).stays
        if stays and adjacency is Adjacency.ADD_REMOVE:
            raise HalfmaskError(
                f"adjacency '{adjacency.value}' has no meaning for the task '{self.task}': {stays} would be missed when a unit is removed. "
                "Use zero-out or replace-one"
            )
        if method.private != "noised":
            return
        check_budget(self.epsilon, self.delta)
        if adjacency is Adjacency.REPLACE_ONE and self.accountant == "rdp":
            raise HalfmaskError(
                "the RDP accountant has no bound for Poisson sampling under replace-one: use --accountant pld, or --adjacency zero-out"
            )

    def to_yaml(self) -> str:
        """The resolved recipe, for the run folder. The test seed is named; a production key never is."""
        return yaml.safe_dump(self.plain(), sort_keys=False)

    def plain(self) -> dict[str, Any]:
        """The same as numbers, words, lists and mappings."""
        return _plain(asdict(self))


def task_groups(task: str) -> dict[str, type]:
    """The dataclasses of `data`, `model`, `augment` and `pretrain` for a task."""
    return groups_of(task, task_named(task).groups)


def task_units(task: str) -> tuple[str, ...]:
    """What a task can protect, the finest first."""
    return task_named(task).units


def load_recipe(name: str | None) -> dict[str, Any]:
    """A recipe by its name inside the package (`pose/figures`) or by its path, without the table that it may name besides."""
    return {} if name is None else {key: value for key, value in load_whole_recipe(name).items() if key != "compare"}


def load_whole_recipe(name: str) -> dict[str, Any]:
    """The same with the group `compare`, which `halfmask.training.grids` reads."""
    try:
        body = yaml.safe_load(recipe_text(name)) or {}
    except yaml.YAMLError as error:
        raise HalfmaskError(f"recipe {name} is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(body, dict):
        raise HalfmaskError(f"recipe {name} is {a_or_an(type(body).__name__)}: expected names and values")
    return body


def recipe_text(name: str) -> str:
    """A recipe as it was written, with its comments."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise HalfmaskError(f"no recipe at {path}: check the path, or use one of {', '.join(recipe_names())}")
        return path.read_text()
    if name not in recipe_names():
        raise unknown_name("recipe", name, recipe_names())
    return resources.files("halfmask.recipes").joinpath(f"{name}.yaml").read_text()


def recipe_names() -> list[str]:
    """The recipes inside the package."""
    root = Path(str(resources.files("halfmask.recipes")))
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def build_config(
    recipe: Mapping[str, Any],
    flags: Mapping[str, Any],
    assignments: list[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Put defaults, recipe, flags (those not None), `a.b=c` assignments and settings by their keys together.

    Everything that is wrong with any of them is told at once.
    """
    problems = Problems()
    changes: list[tuple[str, Mapping[str, Any]]] = [
        ("recipe", recipe),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    for assignment in assignments or []:
        with problems.gathered():
            changes.append(("--set", _assigned(assignment)))
    changes.append(("settings", settings or {}))
    tasks = [body["task"] for _, body in changes if isinstance(body.get("task"), str)]
    config = RunConfig(task=tasks[-1]) if tasks else RunConfig()
    for where, body in changes:
        config = override(config, body, where, problems)
    return config.checked(problems)


def _assigned(assignment: str) -> dict[str, Any]:
    """`a.b=c` as the part of a recipe that it is."""
    path, separator, value = assignment.partition("=")
    if not separator:
        raise HalfmaskError(f"--set '{assignment}': expected key=value, such as optimiser.learning_rate=0.1")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        raise HalfmaskError(f"--set '{assignment}': the value is not valid YAML; quote it") from None
    for part in reversed(path.strip().split(".")):
        nested = {part: nested}
    return nested


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value
