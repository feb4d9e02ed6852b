"""The published setting: its recipes can be planned, and a step of the published size can be taken, on a tiny tree of CAD-60's layout."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from halfmask.models.posegan import PoseGAN
from halfmask.training.config import RunConfig, build_config, load_recipe, recipe_names
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.plan import plan_run
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "fresh_home")
ACTIVITIES = ("talking on the phone", "drinking water", "opening pill container", "writing on whiteboard", "still")
RECIPES = [name for name in recipe_names() if name.startswith("generate/paper/")]


@pytest.fixture
def tree(tmp_path: Path, photo, person) -> Path:
    """Four people, five activities, three frames each, with joints."""
    place = tmp_path / "cad60"
    joints = person(16)
    for number, name in enumerate((f"Person{n}", activity) for n in range(1, 5) for activity in ACTIVITIES):
        folder = place / name[0] / name[1]
        for frame in range(3):
            photo(folder / f"RGB_{frame}.png", seed=10 * number + frame)
        columns, values = [], []
        for joint in (0, 6, 7, 8, 9):
            columns += [f"{_NAMES[joint]}_x", f"{_NAMES[joint]}_y"]
            values += [f"{joints[joint, 0]:.1f}", f"{joints[joint, 1]:.1f}"]
        rows = [",".join([f"RGB_{frame}.png", *values]) for frame in range(3)]
        (folder / "joints.csv").write_text("\n".join([",".join(["file", *columns]), *rows]))
    return place


_NAMES = {0: "right_ankle", 6: "pelvis", 7: "thorax", 8: "upper_neck", 9: "head_top"}


def config_of(name: str, tree: Path, *settings: str) -> RunConfig:
    return build_config(load_recipe(name), {"insecure_seed": 1}, [f"data.name={tree}", "data.workers=1", *settings])


def test_what_was_published_is_in_each_of_them() -> None:
    assert len(RECIPES) == 6
    epsilons = set()
    for name in RECIPES:
        config = build_config(load_recipe(name), {})
        model, optimiser = config.model, config.optimiser
        noised = config.method == "dpsgd"
        assert config.batch == 10 and config.unit == "image" and config.method in ("dpsgd", "non-private")
        assert not noised or (config.clip_norm, config.delta) == (1.0, 1e-5)
        assert (optimiser.learning_rate, model.generator_rate, optimiser.name, model.generator_optimiser) == (8e-7, 8e-7, "sgd", "sgd")
        assert (model.critic_steps, model.limit, model.bound, model.clip, model.size) == (
            5,
            0.01,
            "weights",
            "pair",
            "paper",
        )
        assert model.generator_batch == 10 and not model.conditional and optimiser.momentum == 0 and not model.average
        epsilons |= {config.epsilon if noised else math.inf} if config.data.name == "cad60" else set()
        assert config.data.name == "market1501" or [one.replace("_", " ") for one in config.data.actions] == list(ACTIVITIES[:4])
    assert epsilons == {0.8, 1, 5, 20, math.inf}, "the published 10⁶ promises nothing"


@pytest.mark.parametrize("name", [name for name in RECIPES if "cad60" in name])
def test_it_can_be_planned(tree: Path, name: str) -> None:
    # The size of the networks changes nothing that is planned, but for the time it takes to look at them.
    found = plan_run(config_of(name, tree, "model.size=small"), Progress())
    assert not found.problems, found.problems
    # Two thirds of four people's four activities; the last picture of each is kept out to be named.
    assert found.facts["private_records"] == 4 * 4 * 2 and found.facts["expected_batch"] == 10
    assert "non-private" in name or found.facts["noise_multiplier"] > 0


def test_a_step_of_the_published_size(tree: Path, tmp_path: Path) -> None:
    """A smaller picture than the recipe's, for time: the widths are the published ones."""
    config = config_of(
        "generate/paper/cad60-epsilon-1", tree, "data.height=32", "data.width=16", "batch=2", "epochs=0.06", "model.critic_steps=1"
    )
    trainer = Trainer(prepare(config, Progress()), RunFolder.create(tmp_path / "run", config), Progress())
    model = trainer.setup.model
    assert isinstance(model, PoseGAN) and trainer.setup.steps == 1
    assert [layer.out_channels for layer in model.critic.layers] == [64, 128, 256, 512]
    assert [layer.out_channels for layer in model.generator.decoder.down] == [128, 256, 384, 512, 640]
    # The appearance, 128 numbers, and a heatmap for each joint.
    assert model.generator.decoder.down[0].in_channels == 128 + 16
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    trainer.train()
    after = model.state_dict()
    assert all(torch.isfinite(weight).all() for weight in after.values())
    assert float(np.abs(after["critic.head.weight"].numpy()).max()) <= 0.01 + 1e-7
    assert any(not torch.equal(before[name], after[name]) for name in after if name.startswith("generator."))
