"""What a task must say and what it inherits: a loss is enough, and whatever cannot be answered for it says what to do."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import halfmask.tasks.base as base
from halfmask.data.prints import named_prints
from halfmask.data.records import Datasets, Records
from halfmask.data.tables import Arrays
from halfmask.errors import HalfmaskError
from halfmask.tasks.base import Task, register, task_named
from halfmask.tasks.pose import PoseTask
from halfmask.training.config import RunConfig, build_config
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare


class Ages(Task):
    """A task of a few lines."""

    name = "ages"

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"])[:, 0] - batch["age"]).square()


def people(count: int = 40, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(
        private=Arrays({"x": rng.random((count, 8), dtype=np.float32)}),
        targets=Arrays({"age": rng.random(count, dtype=np.float32)}),
        units={},
        own_unit="crop",
        key=f"people/{count}/{seed}",
        prints=named_prints([f"person {seed} {number}" for number in range(count)]),
    )


def datasets(private: Records, test: Records | None = None) -> Datasets:
    assert private.prints is not None
    return Datasets(private, None, test, "people", private.prints)


@pytest.fixture
def task() -> Ages:
    return Ages(build_config({}, {}))


# ---- names ---------------------------------------------------------------------------------------------------------------


def test_a_task_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_TASKS", dict(base._TASKS))
    assert task_named("pose") is PoseTask
    with pytest.raises(HalfmaskError, match="unknown task 'ages'"):
        task_named("ages")
    assert register(Ages) is Ages and task_named("ages") is Ages


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(HalfmaskError, match="unknown task 'pse': did you mean 'pose'"):
        task_named("pse")


def test_a_task_of_ours_is_read_when_it_is_asked_for() -> None:
    """Whoever trains something else does not wait for it, and whoever asks need not have imported it."""
    code = "import sys; from halfmask.tasks.base import task_named; assert 'halfmask.tasks.pose' not in sys.modules; "
    subprocess.run([sys.executable, "-c", code + "assert task_named('pose').name == 'pose'"], check=True)


def test_a_task_without_a_loss_is_none() -> None:
    with pytest.raises(TypeError, match="loss"):
        type("Empty", (Task,), {})(None)


# ---- what it inherits ----------------------------------------------------------------------------------------------------


def test_the_public_loss_is_the_loss(task: Ages) -> None:
    model, batch = nn.Linear(8, 1), people().batch(np.arange(3))
    assert torch.equal(task.view_loss(model, batch), task.loss(model, batch))


def test_it_has_nothing_that_it_does_not_say(task: Ages) -> None:
    model, records = nn.Linear(8, 1), people()
    assert task.lower(model) is None and task.view() is None and task.post_processing(model) is None
    assert task.pictures(model, records) is None and task.public_facts(datasets(records)) == [] and task.numbers == 0
    before = [parameter.clone() for parameter in model.parameters()]
    task.prepare(model, None)
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda task: task.load(), "'ages' has no datasets of its own: give it records"),
        (lambda task: task.load_test(), "'ages' has no datasets of its own"),
        (lambda task: task.build(datasets(people())), "'ages' has no network of its own: give it a model"),
        (lambda task: task.open(Path("run/model.safetensors")), r"load run/model\.safetensors into your own model"),
        (lambda task: task.trainable(nn.Linear(8, 1), "top"), "'ages' knows no strategy 'top': use full"),
        (lambda task: task.change(people(), {}, torch.zeros(0)), r"'ages' has no random changes: set augment\.times to 0"),
        (lambda task: task.calibrate(nn.Linear(8, 1), {}), r"'ages' cannot be calibrated: set private\.calibrate to false"),
    ],
)
def test_what_it_cannot_answer_says_what_to_do(task: Ages, ask: Callable[[Ages], Any], message: str) -> None:
    with pytest.raises(HalfmaskError, match=message):
        ask(task)


def test_everything_trains(task: Ages) -> None:
    model = nn.Linear(8, 1)
    for strategy in ("full", "scratch"):
        task.trainable(model, strategy)
        assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_people_it_is_judged_on_are_its_test_people(task: Ages, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = people(5, seed=1)
    monkeypatch.setattr(Ages, "load", lambda self, report=None: datasets(people(), judged))
    assert task.load_test() is judged
    monkeypatch.setattr(Ages, "load", lambda self, report=None: datasets(people()))
    with pytest.raises(HalfmaskError, match="nobody to judge the model on"):
        task.load_test()


def test_it_is_judged_by_its_mean_loss(task: Ages) -> None:
    """Over everyone alike, though they come sixty-four at a time."""
    model, records = nn.Linear(8, 1), people(70)
    scores = task.score(model, records)
    expected = task.loss(model, records.batch(np.arange(70))).mean().detach()
    assert scores.metrics == {"loss": pytest.approx(float(expected), rel=1e-5)}
    assert scores.parts == {} and scores.table == ""
    assert math.isnan(task.score(model, people(0)).metrics["loss"])


class Shut(Arrays):
    """Tells its shapes and shows nobody."""

    def rows(self, index: np.ndarray) -> dict[str, np.ndarray]:
        pytest.fail("a private record was read")


def test_noise_to_try_a_loss_on_has_the_shapes_of_records_and_none_of_their_values(task: Ages) -> None:
    kinds = {"x": np.float32, "pixel": np.uint8, "seen": bool, "class": np.int64, "half": np.float64}
    table = Shut({name: np.full((6, 2, 3), 7, kind) for name, kind in kinds.items()})
    records = Records(private=table, targets=Shut({"age": np.full(6, 7, np.float32)}), units={}, key="shut")
    found = task.sample(nn.Linear(8, 1), records)
    assert {name: value.numpy().dtype for name, value in found.items()} == kinds | {"age": np.float32}
    assert found["x"].shape == (4, 2, 3) and found["age"].shape == (4,)
    assert found["x"].unique().numel() == 24 and found["pixel"].unique().numel() > 12, "records that differ, or coupling goes unseen"
    assert found["seen"].unique().numel() == 2, "not all the same, or a loss that counts them in its batch looks apart"
    assert found["class"].unique().tolist() == [0, 1], "and labels that most losses have"
    assert found["seen"].flatten(1).any(1).all() and not found["seen"].flatten(1).all(1).any(), "masks leave something, and hide something"
    again = task.sample(nn.Linear(8, 1), records)
    assert all(torch.equal(found[name], again[name]) for name in found)
    several = task.samples(nn.Linear(8, 1), records)
    assert len(several) == 3 and torch.equal(several[0]["x"], found["x"])
    assert all(not torch.equal(several[0][name], one[name]) for one in several[1:] for name in found), "drawn differently"


@pytest.mark.usefixtures("quick_accounting", "one_thread")
def test_a_task_of_a_few_lines_is_trained_with_privacy(tiny_config: Callable[..., RunConfig], tmp_path: Path, fresh_home: Path) -> None:
    """Its loss goes through the clip and the ledger like any other."""
    config = tiny_config(strategy="full", insecure_seed=3)
    model = nn.Linear(8, 1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    setup = prepare(config, Progress(), datasets(people()), model, task=Ages(config))
    trainer = Trainer(setup, RunFolder.create(tmp_path / "run", config), Progress())
    trainer.train()
    assert all(not torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert sum(spend.steps for spend in setup.account.ledger.spends()) == setup.steps == 2
    batch, units = trainer.noised.shown(setup.private, np.arange(5), torch.arange(5), torch.ones(5), 0)
    tighter = replace(trainer.noised, mechanism=replace(trainer.noised.mechanism, clip_norm=1e-3))
    clipped = tighter.clipped(batch, units)
    assert len(clipped.norms) == 5 and float(clipped.flat().norm()) <= 5e-3  # type: ignore[union-attr]
