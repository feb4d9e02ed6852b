"""Settings: who overrides whom, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from halfmask.errors import HalfmaskError
from halfmask.training.config import RunConfig, build_config, load_recipe, recipe_names
from halfmask.training.override import override


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
        ("batch=many", "expected a int"),
        ("batch=2.5", "expected a int"),
        ("batch=true", "expected a int"),
        ("batch=null", "expected a int"),
        ("batch=[1]", "expected a int"),
        ("batch=.inf", "expected a int"),
        ("epsilon=lots", "expected a float"),
        ("noise_sum_of_four=3", "expected a bool"),
        ("noise_sum_of_four=yes please", "expected a bool"),
        ("model.input_size=256", "expected a tuple"),
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


def test_every_recipe_of_the_package_loads() -> None:
    assert "pose/pretrain" in recipe_names()
    for name in recipe_names():
        override(RunConfig(), load_recipe(name), name).checked()


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
