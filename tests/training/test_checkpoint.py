"""What a checkpoint holds, name by name: it lies in the run folder, so nothing may be in it that is not public or released anyway.

Who was in the last private batch, its size or its gradients would be easy to keep here, and no one would look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from halfmask.training.checkpoint import plan_facts
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.optimise import Optimiser
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")

# Every name and its kind; weights and their moments, of which there are as many as the model has, are `*`. The optimiser's settings, whose
# names come from torch, are compared with those of a fresh one.
EVERY = {
    "run": "str",
    "behind": "list",
    "plan/dataset": "str",
    "plan/set of annotations": "str",
    "plan/number of units": "int",
    "plan/number of steps": "int",
    "plan/sampling rate": "float",
    "plan/noise multiplier": "float",
    "begun": "bool",
    "step": "int",
    "public_batches": "int",
    "clip_norms/*": "float",
    "model/*": "Tensor",
    "optimiser/average": "NoneType",
    "samplers/view/queue": "Tensor",
    "samplers/view/generator": "Tensor",
    "samplers/raw/queue": "Tensor",
    "samplers/raw/generator": "Tensor",
    "samplers/shuffle/queue": "Tensor",
    "samplers/shuffle/generator": "Tensor",
    "samplers/basis/queue": "Tensor",
    "samplers/basis/generator": "Tensor",
}
SGD = {"optimiser/torch/state/*/momentum_buffer": "Tensor"}
ADAMW = {
    "optimiser/torch/state/*/step": "Tensor",
    "optimiser/torch/state/*/exp_avg": "Tensor",
    "optimiser/torch/state/*/exp_avg_sq": "Tensor",
}


def leaves(value: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All that is in a checkpoint, with the names that lead to it."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*names, name if isinstance(name, str) else "*"))
    elif isinstance(value, (list, tuple)) and value:
        for inner in value:
            yield from leaves(inner, (*names, "*"))
    else:
        yield names, value


def kinds(state: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for names, value in leaves(state):
        if names[:3] == ("optimiser", "torch", "param_groups"):
            continue
        weights = next((start for start in (("model",), ("optimiser", "average")) if names[: len(start)] == start != names), None)
        name = "/".join(names if weights is None else (*weights, "*"))
        assert found.setdefault(name, type(value).__name__) == type(value).__name__, name
    return found


def checkpoint_of(config: RunConfig, folder: Path, kind: type[Trainer] = Trainer) -> tuple[Trainer, dict[str, Any]]:
    trainer = kind(prepare(config, Progress()), RunFolder.create(folder, config), Progress())
    trainer.train()
    return trainer, torch.load(folder / "checkpoint" / "state.pt", weights_only=True)


def holds_nothing_else(trainer: Trainer, state: dict[str, Any], expected: dict[str, str]) -> bool:
    """The names, and that what may be long is as long as something public is."""
    if kinds(state) != expected:
        return False
    parameters, setup = list(trainer.engine.parameters.values()), trainer.setup
    torch_state = state["optimiser"]["torch"]
    (group,) = torch_state["param_groups"]
    (fresh,) = Optimiser(setup.config.optimiser, trainer.engine.parameters, setup.steps).torch.state_dict()["param_groups"]
    shapes = {name: tensor.shape for name, tensor in setup.model.state_dict().items()}
    queues = {"view": setup.private, "shuffle": setup.private, "basis": setup.private, "raw": setup.raw_public}
    return (
        {name: tensor.shape for name, tensor in state["model"].items()} == shapes
        and group | {"lr": fresh["lr"]} == fresh | {"params": list(range(len(parameters)))}
        and group["lr"] == trainer.optimiser.learning_rate
        and all(
            tensor.shape in (parameters[number].shape, torch.Size([]))
            for number, moments in torch_state["state"].items()
            for tensor in moments.values()
        )
        and state["clip_norms"] == list(trainer.noised.clip_norms)
        and (state["step"], state["begun"], len(bytes.fromhex(state["run"]))) == (setup.steps, True, 8)
        and state["public_batches"] == (setup.steps * setup.config.public.steps if setup.method.view else 0)
        and all(len(state["samplers"][name]["queue"]) <= len(people or ()) for name, people in queues.items())
        and all(torch.equal(state["samplers"][name]["queue"], sampler._queue) for name, sampler in trainer.samplers.items())
    )


CASES = {
    "dpsgd": ("dpsgd", (), EVERY | SGD),
    "feature-projective": ("feature-projective", ("private.follow=0.5",), EVERY | SGD),
    "own coordinates": (
        "projected",
        ("private.optimiser=adam", "subspace.dim=4"),
        EVERY | {"optimiser/torch/state": "dict"},
    ),
    "adamw, average": (
        "feature",
        ("optimiser.name=adamw", "optimiser.average=0.9", "augment.times=2"),
        {n: k for n, k in EVERY.items() if n != "optimiser/average"} | ADAMW | {"optimiser/average/*": "Tensor"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_holds_what_is_listed_and_nothing_else(case: str, tiny_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    method, settings, expected = CASES[case]
    trainer, state = checkpoint_of(tiny_config(*settings, method=method), tmp_path / "run")
    assert kinds(state) == expected
    assert holds_nothing_else(trainer, state, expected)


class KeepsTheBatch(Trainer):
    """The members of the last private batch, under a name of their own."""

    def save_checkpoint(self) -> None:
        super().save_checkpoint()
        self._rewrite(lambda state: state | {"batch": self.noised.poisson.draw()})

    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.folder.save_checkpoint(change(self.folder.load_checkpoint()))


class KeepsItInASampler(KeepsTheBatch):
    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        def hide(state: dict[str, Any]) -> dict[str, Any]:
            state["samplers"]["view"]["last"] = self.noised.poisson.draw()
            return state

        super()._rewrite(hide)


class KeepsItInTheOptimiser(KeepsTheBatch):
    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        def hide(state: dict[str, Any]) -> dict[str, Any]:
            state["optimiser"]["torch"]["param_groups"][0]["params"] += self.noised.poisson.draw().tolist()
            return state

        super()._rewrite(hide)


class KeepsItInTheClipNorms(KeepsTheBatch):
    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super()._rewrite(lambda state: state | {"clip_norms": [*state["clip_norms"], float(len(self.noised.poisson.draw()))]})


class KeepsItsSizeInACounter(KeepsTheBatch):
    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super()._rewrite(lambda state: state | {"public_batches": 1000 + len(self.noised.poisson.draw())})


@pytest.mark.parametrize("fault", [KeepsTheBatch, KeepsItInASampler, KeepsItInTheOptimiser, KeepsItInTheClipNorms, KeepsItsSizeInACounter])
def test_a_batch_that_is_kept_is_seen(fault: type[Trainer], tiny_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    trainer, state = checkpoint_of(tiny_config(), tmp_path / "run", fault)
    assert not holds_nothing_else(trainer, state, EVERY | SGD)


def test_a_run_does_not_go_on_with_other_units(tiny_config: Callable[..., RunConfig], fresh_home: Path) -> None:
    """The same people and joints, as many subjects, and one picture given to somebody else."""
    setup = prepare(tiny_config(unit="subject", batch=2), Progress())
    subjects = np.array(setup.private.subjects)
    sizes = {one: (subjects == one).sum() for one in subjects}
    large = next(one for one, size in sizes.items() if size > 1)
    subjects[np.flatnonzero(subjects == large)[0]] = next(one for one in sizes if one != large)
    moved = replace(setup, private=setup.private.changed(subjects=subjects))
    before, after = plan_facts(setup), plan_facts(moved)
    assert {name for name in before if before[name] != after[name]} == {"set of annotations"}
