from __future__ import annotations

import pytest

from halfmask.errors import HalfmaskError
from halfmask.report.published import rows as published
from halfmask.training.config import build_config, load_recipe, recipe_names
from halfmask.training.grids import load_grid, narrowed, of_strategies, plan_block, read_grid

NAMED = [name for name in recipe_names() if load_grid(name) is not None]
DEFAULT = {"methods": ["dpsgd"], "epsilons": [0.8], "clip_norms": [0.1]}


def test_the_recipes_of_papers_name_tables() -> None:
    assert {f"pose/paper/table{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 10)} <= set(NAMED)
    assert {"action/paper/table1", "action/paper/table2"} <= set(NAMED)
    assert load_grid("pose/figures") is None
    assert "compare" not in load_recipe("pose/paper/table6"), "the recipe is one of a run, too"


@pytest.mark.parametrize("name", [name for name in NAMED if name.startswith("pose/paper/")])
def test_a_table_of_the_pose_paper_has_the_rows_that_are_printed_and_no_others(name, tmp_path) -> None:
    grid, body = load_grid(name), load_recipe(name)
    planned = [
        (block.settings["strategy"], run.combination.method, run.combination.clip_norm, run.combination.epsilon)
        for block in grid.blocks
        for run in plan_block(block, body, [0], [], tmp_path, DEFAULT)
    ]
    printed = [
        (
            row["strategy"],
            row["method"],
            float(row["clip_norm"]) if row["clip_norm"] else None,
            float(row["epsilon"]) if row["epsilon"] else None,
        )
        for row in published(grid.published["file"])
        if row["table"] == str(grid.published["table"])
    ]
    assert sorted(map(str, planned)) == sorted(map(str, printed)) and len(set(planned)) == len(planned)
    dataset = {row["dataset"] for row in published(grid.published["file"])}
    assert dataset == {{"mpii": "MPII", "humanart": "Human-Art"}[body["data"]["name"]]}
    config = build_config(body, {})
    assert (config.delta, config.epochs, config.model.input_size) == (4e-5, 25, (256, 192))
    assert config.view.options == {"kernel": 25, "sigma": 10} and not config.public.shared_batch


def test_blocks_have_settings_and_folders_of_their_own(tmp_path) -> None:
    grid = load_grid("pose/paper/table6")
    first, _, last = ([*plan_block(block, load_recipe("pose/paper/table6"), [0, 1], [], tmp_path, DEFAULT)] for block in grid.blocks)
    assert (
        len(first) == 24 and {run.config.strategy for run in first} == {"finetune"} and {run.config.model.norm for run in last} == {"group"}
    )
    assert first[0].folder == tmp_path / "finetuning/runs/feature-projective-eps0.2-clip0.01-seed0"
    assert last[0].folder.parent == tmp_path / "training-from-scratch/runs"
    with pytest.raises(HalfmaskError, match="--set strategy=… would override what is compared"):
        plan_block(grid.blocks[0], load_recipe("pose/paper/table6"), [0], ["strategy=top"], tmp_path, DEFAULT)


def test_some_of_a_table() -> None:
    grid = load_grid("pose/paper/table8")
    some = narrowed(grid, epsilons=[0.8], clip_norms=[1.0])
    # Training from scratch is not printed at C = 1.
    assert [block.name for block in some.blocks] == ["Finetuning", "Finetuning from scratch"]
    assert all(block.epsilons == (0.8,) and block.clip_norms == (1.0,) for block in some.blocks)
    assert [block.name for block in narrowed(grid, strategies=["scratch"]).blocks] == ["Training from scratch"]
    rows = narrowed(load_grid("pose/paper/table1"), methods=["public-only"])
    assert [block.name for block in rows.blocks] == [
        "Finetuning on Public features",
        "Finetuning from scratch on Public features",
        "Training from scratch on Public features",
    ]
    for wrong, message in (
        ({"epsilons": [0.7]}, "0.7 is not among the epsilons of this table: it has 0.2, 0.4, 0.6, 0.8"),
        ({"strategies": ["top"]}, "unknown strategy of this table 'top'"),
        ({"methods": ["feature"]}, "feature is not among the methods"),
        ({"clip_norms": [1.0], "strategies": ["scratch"]}, "is not among the clip norms"),
    ):
        with pytest.raises(HalfmaskError, match=message):
            narrowed(grid, **wrong)


def test_strategies_of_a_recipe_that_names_no_table() -> None:
    grid = of_strategies(["top", "full"])
    assert [(block.name, block.settings) for block in grid.blocks] == [("top", {"strategy": "top"}), ("full", {"strategy": "full"})]
    assert narrowed(grid, epsilons=[0.5]).blocks[0].epsilons == (0.5,)
    with pytest.raises(HalfmaskError, match="unknown strategy 'tap': did you mean 'top'"):
        of_strategies(["tap"])


def test_all_that_is_wrong_with_a_table_is_told() -> None:
    body = {
        "method": ["dpsgd"],
        "epsilons": 0.2,
        "published": {"number": 3},
        "blocks": [{"name": "a", "methods": ["dpsdg"]}, {"name": "A", "settings": 3, "clips": [1]}],
    }
    with pytest.raises(HalfmaskError) as caught:
        read_grid(body, "mine.yaml")
    for words in (
        "unknown name in 'compare' of mine.yaml 'method': did you mean 'methods'",
        "'epsilons' is 0.2: expected a list of numbers",
        "unknown name in 'published'",
        "unknown method 'dpsdg'",
        "'settings' is 3",
        "'clips': did you mean 'clip_norms'",
        "two blocks have one name",
    ):
        assert words in str(caught.value)
    for wrong in (3, {"blocks": {}}, {"blocks": [3]}, {"published": 3}):
        with pytest.raises(HalfmaskError, match="expected a"):
            read_grid(wrong, "mine.yaml")
