"""Recipes by name: the list, and one of them with everything that it leaves unsaid."""

from __future__ import annotations

import json

import pytest
import yaml

from halfmask.cli.recipes import description, opening_comment
from halfmask.report.settings_page import settings_page
from halfmask.training.config import RunConfig, build_config, load_recipe, recipe_names


def test_the_list(halfmask) -> None:
    shown = halfmask("recipes")
    listed = {entry["name"]: entry["about"] for entry in json.loads(halfmask("recipes", "--json").out)}
    assert shown.code == 0 and list(listed) == recipe_names()
    assert [line.split()[0] for line in shown.out.splitlines()] == recipe_names()
    assert listed["pose/figures"].startswith("Private pose estimation on the embedded world")
    for name, about in listed.items():
        assert about[0].isupper() and about.endswith("."), f"{name} is described by less than a sentence: {about}"


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_with_every_default_and_can_be_run_as_shown(halfmask, name: str) -> None:
    shown, resolved = halfmask("recipes", "show", name), build_config(load_recipe(name), {})
    assert shown.code == 0, shown.err
    body = yaml.safe_load(shown.out)
    assert body == resolved.plain() and body.keys() == RunConfig().plain().keys()
    # Groups are those of its task.
    own = {
        "pose": ("augment", "change"),
        "face": ("augment", "shift"),
        "action": ("pretrain", "joints"),
        "generate": ("pretrain", "encoder"),
    }
    assert [task for task, (group, key) in own.items() if key in body[group]] == [body["task"]]
    assert build_config(body, {}) == resolved
    assert json.loads(halfmask("recipes", "show", name, "--json").out) == body


def test_its_own_comment_stands_first(halfmask) -> None:
    lines = halfmask("recipes", "show", "pose/best").out.splitlines()
    assert lines[0].startswith("# What helped, put together") and lines[1].startswith("# coordinates") and lines[2] == "task: pose"
    assert opening_comment("# One.\n# Two.\na: 1\n# Three.\n") == "# One.\n# Two.\n"
    assert opening_comment("a: 1\n# Later.\n") == "" == opening_comment("")
    assert (
        description("# One (et al. (2024), at σ = 0.5,\n# of two lines). Two.\na: 1\n") == "One (et al. (2024), at σ = 0.5, of two lines)."
    )
    assert description("a: 1\n# Later.\n") == "" and description("# No end") == "No end"


def test_paths_and_assignments_are_resolved_as_for_a_run(halfmask, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("# Mine: :smile: [bold]\nbatch: 3\n")
    shown = halfmask("recipes", "show", path, "--set", "epochs=2")
    assert shown.out.startswith("# Mine: :smile: [bold]\ntask: pose\n")
    body = yaml.safe_load(shown.out)
    assert (body["batch"], body["epochs"], body["clip_norm"]) == (3, 2.0, RunConfig().clip_norm)
    assert "did you mean 'pose/best'" in halfmask("recipes", "show", "pose/bset").error
    assert "expected a number of at least 1" in halfmask("recipes", "show", path, "--set", "batch=0").error


def test_every_setting_is_told(halfmask) -> None:
    assert halfmask("recipes", "settings").out == settings_page()
    told = {entry["key"]: entry for entry in json.loads(halfmask("recipes", "settings", "--json").out)}
    assert told["batch"] == {
        "task": "",
        "key": "batch",
        "meaning": "The expected number of units in a step, B̄.",
        "default": 64,
        "expected": "a whole number of at least 1",
    }
    assert (told["augment.change.flip"]["task"], told["augment.change.flip"]["default"]) == ("pose", 0.5)
