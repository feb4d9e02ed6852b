"""Settings: who overrides whom, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from halfmask.errors import HalfmaskError
from halfmask.settings import Setting, declared_in, setting
from halfmask.tasks import base
from halfmask.tasks.groups import ModelSettings, PretrainSettings, ShowingSettings
from halfmask.training.config import RunConfig, build_config, load_recipe, recipe_names


def test_later_beats_earlier() -> None:
    recipe = {"batch": 10, "epochs": 3, "optimiser": {"learning_rate": 0.5, "momentum": 0.1}}
    config = build_config(recipe, {"batch": 20, "delta": None}, ["optimiser.learning_rate=0.7", "data.private=5"])
    default = RunConfig()
    assert (config.batch, config.epochs, config.delta) == (20, 3.0, default.delta)
    assert (config.optimiser.learning_rate, config.optimiser.momentum) == (0.7, 0.1)
    assert config.optimiser.name == default.optimiser.name
    assert config.data.private == 5 and config.data.public == default.data.public
    assert build_config({}, {"batch": 20}, ["batch=30", "batch=31"]).batch == 31
    assert default == RunConfig(), "nothing is shared between configs"


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("optimiser.learning_rate=1e-3", "optimiser.learning_rate", 1e-3),
        ("epsilon=8", "epsilon", 8.0),
        ("insecure_seed=3", "insecure_seed", 3),
        ("insecure_seed=null", "insecure_seed", None),
        ("model.weights=null", "model.weights", None),
        ("model.weights=a=b.pt", "model.weights", "a=b.pt"),
        ("model.input_size=[64, 48]", "model.input_size", (64, 48)),
        ("noise_sum_of_four=true", "noise_sum_of_four", True),
        ("view.options={kernel: 9}", "view.options", {"kernel": 9}),
        ("data.name=mpii", "data.name", "mpii"),
        ("chunk=1e2", "chunk", 100),
        ("method=non-private", "method", "non-private"),
    ],
)
def test_assignments_are_read_as_yaml(assignment: str, path: str, value: Any) -> None:
    found: Any = build_config({}, {}, [assignment])
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("batch", "expected key=value"),
        ("bacth=3", "did you mean 'batch'"),
        ("optimiser.learning_rat=3", "did you mean 'learning_rate'"),
        ("optimizer.learning_rate=3", "did you mean 'optimiser'"),
        ("=3", "unknown setting"),
        ("optimiser=sgd", "expected a group"),
        ("batch=many", "expected an int"),
        ("batch=2.5", "expected an int"),
        ("batch=true", "expected an int"),
        ("batch=null", "expected an int"),
        ("batch=[1]", "expected an int"),
        ("batch=.inf", "expected an int"),
        ("epsilon=lots", "expected a float"),
        ("noise_sum_of_four=3", "expected a bool"),
        ("noise_sum_of_four=yes please", "expected a bool"),
        ("model.input_size=256", "expected a tuple"),
        ("model.input_size=[64, 60]", r"model\.input_size is \[64, 60\]: expected a height and a width, each a multiple of 8"),
        ("model.stage4_stride=3", r"model\.stage4_stride is 3: expected 1 or 2"),
        ("model.size=6m", "unknown TinyViT size"),
        ("model.norm=layer", "unknown normalisation"),
        ("data.name=", "'name' is None: expected a str"),
        ("data.name=''", r"data\.name is '': expected 'figures'"),
        ("data.recurring=ignore", r"unknown way to treat people who recur \(data\.recurring\)"),
        ("data.on_bad=ignore", r"unknown way to treat bad images \(data\.on_bad\)"),
        ("data.format=jpeg", "unknown dataset format"),
        ("data.strangers=[private]", r"unknown part \(data\.strangers\)"),
        ("view.name=blurr", "did you mean 'blur'"),
        ("private.optimiser=adamw", "unknown optimiser of the private half"),
        ("unit_gradient=median", "unknown unit gradient"),
        ("optimiser.average=1", r"optimiser\.average is 1\.0: expected a number from 0 to below 1"),
        ("augment.change.flip=2", "flip is 2.0: expected a share between 0 and 1"),
        ("view.options=3", "expected a dict"),
        ("method=dpsdg", "did you mean 'dpsgd'"),
        ("strategy=tops", "did you mean 'top'"),
        ("unit=person", "unknown unit"),
        ("accountant=gdp", "unknown accountant"),
        ("adjacency=replace", "did you mean 'replace-one'"),
        ("task=dance", "unknown task"),
        ("optimiser.name=adam", "did you mean 'adamw'"),
        ("optimiser.schedule=linear", "unknown schedule"),
        ("subspace.source=nowhere", "unknown subspace source"),
        ("epsilon=0", "epsilon"),
        ("epsilon=.nan", "epsilon"),
        ("delta=1", "delta"),
        ("clip_norm=0", "clip norm"),
        ("clip_norm=.nan", "clip norm"),
        ("epochs=0", "epochs"),
        ("epochs=.nan", "epochs"),
        ("batch=0", "batch"),
        ("public.raw_share=1.5", "raw_share"),
        ("public.raw_share=-0.1", "raw_share"),
    ],
)
def test_nonsense_is_refused(assignment: str, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        build_config({}, {}, [assignment])


@pytest.mark.parametrize(
    "assignment",
    [
        "epochs=.inf",
        "clip_norm=.inf",
        "model.input_size=[256]",
        "model.input_size=[256, 192, 3]",
        "model.input_size='25'",
        "data.name=[a, b]",
        "batch=[1",
        "subspace.dim=-1",
        "chunk=-1",
    ],
)
def test_nonsense_that_would_only_fail_later_is_refused_too(assignment: str) -> None:
    with pytest.raises(HalfmaskError):
        build_config({}, {}, [assignment])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "feature", "adjacency": "add-remove"}, "no meaning"),
        ({"method": "feature-projective", "adjacency": "add-remove"}, "no meaning"),
        ({"method": "public-only", "adjacency": "add-remove"}, "no meaning"),
        ({"method": "dpsgd", "adjacency": "replace-one", "accountant": "rdp"}, "RDP"),
    ],
)
def test_combinations_without_a_guarantee_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        build_config(settings, {})
    build_config({"method": "dpsgd", "adjacency": "add-remove"}, {})


def test_budgets_are_not_asked_of_methods_without_noise() -> None:
    for method in ("public-only", "non-private"):
        assert build_config({"method": method, "epsilon": 0}, {}).method == method


def declared() -> list[tuple[str, Setting]]:
    return [(name, said) for name, _, said in declared_in(RunConfig()) if said is not None]


def just_outside(said: Setting) -> list[float]:
    low, high = said.at_least, said.at_most
    outside = [bound for bound in (said.above, said.below) if bound is not None]
    return [*outside, *([low - 1] if low is not None else []), *([high + 1] if high is not None else [])]


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, said in declared() for value in just_outside(said)])
def test_every_bound_of_every_group_is_kept(name: str, value: float) -> None:
    with pytest.raises(HalfmaskError, match=rf"{name.rpartition('.')[2].replace('_', '.')} is -?\d"):
        build_config({}, {}, [f"{name}={value}"])


def test_every_setting_is_declared() -> None:
    assert [name for name, _, said in declared_in(RunConfig()) if said is None] == []
    assert all(said.meaning.endswith((".", "…")) for _, said in declared())


@pytest.mark.parametrize(("setting_", "method"), [("clip_norm=0", "non-private"), ("subspace.most=0", "dpsgd")])
def test_bounds_are_not_asked_of_methods_that_do_not_read_the_setting(setting_: str, method: str) -> None:
    build_config({"method": method}, {}, [setting_])
    with pytest.raises(HalfmaskError, match="expected a number"):
        build_config({"method": "projected"}, {}, [setting_])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["method=dpsgd", "private.residual=true"], "compares an image with its view, and method 'dpsgd' has none"),
        (["method=feature", "private.optimiser=sgd"], "works in the coordinates of a subspace"),
        (["method=projected", "subspace.views=3"], "asks for public views of private people"),
        (["subspace.views=3", "private.residual=true"], "the subspace of residuals needs raw people"),
        (["subspace.samples=0"], r"subspace\.samples \+ subspace\.views is 0: expected at least 1"),
        (["subspace.whiten=true"], r"needs subspace\.kind=layers"),
        (["private.residual=true", "augment.times=2", "augment.views=false"], r"set augment\.views to true"),
        (["strategy=top", "augment.times=6"], r"raise augment\.copies"),
        (["public.shared_batch=true", "public.first=1"], r"set public\.first to 0"),
        (["public.shared_batch=true", "unit=image"], "accounted for unit 'crop' alone"),
        (["method=dpsgd", "rehearsal=true"], "promises to hide them"),
        (["budget=0"], "epsilon is 0.0"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        build_config({}, {}, settings)


@dataclass(frozen=True)
class Lens:
    width: float = setting(1.0, "How wide.", above=0)


@dataclass(frozen=True)
class AgesData:
    name: str = setting("faces", "The folder.")
    youngest: int = setting(18, "Nobody below this age.", at_least=0, at_most=120)
    oldest: int = setting(90, "Nobody above this age.", at_least=0, at_most=120)
    lens: Lens = field(default_factory=Lens)

    def check(self, run: RunConfig) -> None:
        if self.youngest > self.oldest:
            raise HalfmaskError(f"data.youngest is {self.youngest} in the run of the task '{run.task}': expected at most data.oldest")


class Ages(base.Task):
    name = "ages"
    units = ("face", "subject")
    groups = {"data": AgesData}  # noqa: RUF012

    def loss(self, model: Any, batch: Any) -> Any:
        raise AssertionError("nothing is trained here")


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(base, "_TASKS", dict(base._TASKS))
    base.register(Ages)
    yield


def test_recipes_and_assignments_reach_the_groups_of_an_unseen_task(ages: None) -> None:
    recipe = {"task": "ages", "data": {"youngest": 30, "oldest": 60}, "optimiser": {"learning_rate": 0.5}}
    config = build_config(recipe, {"data": {"name": "mine"}}, ["data.oldest=70", "data.lens.width=2", "augment.times=1"])
    assert config.data == AgesData("mine", 30, 70, Lens(2.0))
    assert (config.model, config.augment, config.pretrain) == (ModelSettings(), ShowingSettings(times=1), PretrainSettings())
    assert config.unit == "face" and config.optimiser.learning_rate == 0.5
    assert build_config(yaml.safe_load(config.to_yaml()), {}) == config


@pytest.mark.parametrize("where", ["recipe", "flag", "--set"])
def test_the_task_is_found_wherever_it_is_named(ages: None, where: str) -> None:
    recipe = {"task": "ages" if where == "recipe" else "pose"}
    flags = {"task": "ages" if where == "flag" else None}
    config = build_config(recipe, flags, ["task=ages"] if where == "--set" else [])
    assert isinstance(config.data, AgesData) and config.task == "ages"


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("data.yuongest=3", r"unknown setting in --set data 'yuongest': did you mean 'youngest'\? known: lens, name, oldest, youngest"),
        ("data.private=3", "unknown setting in --set data 'private'"),
        ("data.lens.widht=3", "unknown setting in --set data lens 'widht'"),
        ("model.size=nano", "unknown setting in --set model 'size'"),
        ("augment.change.flip=0", "unknown setting in --set augment 'change'"),
        ("pretrain.small_share=1", "unknown setting in --set pretrain 'small_share'"),
        ("data.youngest=130", r"data\.youngest is 130: expected a number from 0 to 120"),
        ("data.lens.width=0", r"data\.lens\.width is 0\.0: expected a number greater than 0"),
        ("data.oldest=3", "data.youngest is 18 in the run of the task 'ages'"),
        ("unit=crop", "unknown unit 'crop'.*known: face, subject"),
        ("task=agse", "unknown task 'agse': did you mean 'ages'"),
        ("task=[ages]", "expected a str"),
    ],
)
def test_what_an_unseen_task_does_not_know_is_refused_in_one_line(ages: None, assignment: str, words: str) -> None:
    with pytest.raises(HalfmaskError, match=words) as refusal:
        build_config({"task": "ages"}, {}, [assignment])
    assert "\n" not in str(refusal.value)


def test_the_groups_of_one_task_do_not_serve_another(ages: None) -> None:
    with pytest.raises(HalfmaskError, match="data is a DataConfig and the task 'ages' has AgesData"):
        replace(RunConfig(), task="ages").checked()


def test_a_task_may_not_name_groups_that_nobody_reads(ages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ages, "groups", {"optimiser": AgesData})
    with pytest.raises(HalfmaskError, match="the task 'ages' names the groups optimiser: expected some of data, model, augment, pretrain"):
        RunConfig(task="ages")


def test_every_recipe_of_the_package_loads() -> None:
    assert "pose/pretrain" in recipe_names()
    for name in recipe_names():
        build_config(load_recipe(name), {}, [])


def test_recipes_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("batch: 3\ndata: {private: 7}\n")
    assert load_recipe(str(path)) == {"batch": 3, "data": {"private": 7}}
    path.write_text("")
    assert load_recipe(str(path)) == {} == load_recipe(None)
    for body, words in (("[1, 2]", "expected names and values"), ("a: [", "not valid YAML")):
        path.write_text(body)
        with pytest.raises(HalfmaskError, match=words):
            load_recipe(str(path))
    with pytest.raises(HalfmaskError, match="no recipe at"):
        load_recipe(str(tmp_path / "absent.yaml"))
    with pytest.raises(HalfmaskError, match="did you mean 'pose/pretrain'"):
        load_recipe("pose/pretrian")


def test_a_written_config_reads_back_the_same() -> None:
    config = build_config({}, {}, ["model.input_size=[64, 48]", "view.options={kernel: 9}", "insecure_seed=4"])
    assert build_config(yaml.safe_load(config.to_yaml()), {}) == config


def test_everything_wrong_with_the_settings_is_told_at_once() -> None:
    recipe = {"epochs": "many", "optimizer": {"name": "sgd"}, "data": {"nmae": 3}}
    with pytest.raises(HalfmaskError) as caught:
        build_config(recipe, {"batch": 0, "unit": "person", "strategy": "tap"}, ["clip_norm=-1", "nothing", "private.learning_rate=-2"])
    message = str(caught.value)
    assert message.startswith("9 things are wrong with the settings: (1) ")
    for words in (
        "'epochs' is 'many': expected a float",
        "unknown setting in recipe 'optimizer': did you mean 'optimiser'",
        "unknown setting in recipe data 'nmae': did you mean 'name'",
        "batch is 0: expected a number of at least 1",
        "unknown unit 'person': did you mean 'subject'",
        "unknown strategy 'tap'",
        "the clip norm is -1.0",
        "--set 'nothing': expected key=value",
        "private.learning_rate is -2.0",
    ):
        assert words in message, words


def test_one_mistake_is_told_in_its_own_words() -> None:
    with pytest.raises(HalfmaskError, match=r"^batch is 0: expected a number of at least 1$"):
        build_config({"batch": 0}, {})


@pytest.mark.parametrize(
    ("task", "said", "meant"), [("pose", "patient", "subject"), ("pose", "Photo", "image"), ("action", "film", "video")]
)
def test_units_by_what_others_call_them(task, said, meant) -> None:
    with pytest.raises(HalfmaskError, match=f"unknown unit '{said}': did you mean '{meant}'"):
        build_config({"task": task, "unit": said}, {})


def test_settings_by_their_keys() -> None:
    settings = {
        "optimiser.learning_rate": 0.5,
        "optimiser": {"momentum": 0.1},
        "view.options": {"kernel": 9},
        "data.name": "a: b #c",
        "even_so": True,
    }
    config = build_config({"optimiser": {"name": "sgd", "learning_rate": 1}, "data.private": 7}, {}, ["optimiser.momentum=0.9"], settings)
    assert (config.optimiser.learning_rate, config.optimiser.momentum, config.optimiser.name) == (0.5, 0.1, "sgd")
    assert config.view.options == {"kernel": 9} and config.data.name == "a: b #c" and config.data.private == 7 and config.even_so
    with pytest.raises(HalfmaskError, match="unknown setting in settings optimiser 'rate'"):
        build_config({}, {}, settings={"optimiser.rate": 1})
