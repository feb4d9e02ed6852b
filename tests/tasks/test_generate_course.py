"""A generator that came to nothing is seen, by what it draws; one that learns, or has not begun to, is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.models.posegan import PoseGAN
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.verification import verify_certificate
from halfmask.tasks.generate_course import Course
from halfmask.tasks.generate_halves import GeneratorSteps
from halfmask.tasks.generate_poses import Poses
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.course import Diverged
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.runs import came_to_nothing, open_run
from halfmask.training.setup import Setup, prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread")
SMALL = (
    "data.private=24",
    "data.public=60",
    "data.public_skip=0",
    "data.test=8",
    "data.height=32",
    "data.width=32",
    "model.weights=null",
    "model.generator_batch=4",
    "model.average=0",
    "batch=8",
    "epochs=2",
)


def config_of(*settings: str, **flags: object) -> RunConfig:
    return build_config(load_recipe("generate/critic"), {"even_so": True, **flags}, [*SMALL, *settings])


@pytest.fixture
def setup() -> Setup:
    return prepare(config_of(method="public-only"), Progress())


class Drawing(nn.Module):
    """A generator that draws as a test says, from noise and heatmaps."""

    def __init__(self, how: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.how, self.weight = how, nn.Parameter(torch.zeros(1))

    def forward(self, z: Tensor, heatmaps: Tensor) -> Tensor:
        pictures = self.how(z, heatmaps)
        return pictures.expand(len(z), 3, *heatmaps.shape[2:])


def by_both(z: Tensor, heatmaps: Tensor) -> Tensor:
    return torch.tanh(0.5 * z[:, :1, None, None] + heatmaps.sum(1, keepdim=True) - 0.5)


FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "whatever the noise": lambda z, maps: by_both(torch.zeros_like(z), maps),
    "whatever the pose": lambda z, maps: by_both(z, torch.zeros_like(maps)),
    "grey": lambda z, maps: 1e-4 * by_both(z, maps),
    "black or white": lambda z, maps: by_both(z, maps).sign(),
    "nothing": lambda z, maps: by_both(z, maps) * float("nan"),
}


def course_of(setup: Setup, drawing: Callable[[Tensor, Tensor], Tensor]) -> Course:
    """Of a run that began with such a generator."""
    assert isinstance(setup.model, PoseGAN)
    setup.model.generator = Drawing(drawing)  # type: ignore[assignment]
    return Course(setup, Poses(setup.private, setup.config.model, 0))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_way_to_come_to_nothing_is_seen(setup: Setup, fault: str) -> None:
    course = course_of(setup, by_both)
    course.check(Drawing(by_both), "now")  # type: ignore[arg-type]
    words = {"grey": "the same picture", "nothing": "the same picture"}.get(fault, fault)
    with pytest.raises(Diverged, match=f"{words}.* now") as stopped:
        course.check(Drawing(FAULTS[fault]), "now")  # type: ignore[arg-type]
    assert "model.generator_rate" in stopped.value.advice


def test_weights_that_are_no_numbers_are_seen(setup: Setup) -> None:
    course, spoilt = course_of(setup, by_both), Drawing(by_both)
    with torch.no_grad():
        spoilt.weight.fill_(float("inf"))
    with pytest.raises(Diverged, match="no longer finite"):
        course.check(spoilt, "now")  # type: ignore[arg-type]


def test_whoever_has_not_begun_is_left_alone_and_held_to_what_it_reaches(setup: Setup) -> None:
    """An untrained generator draws grey: that is where it begins, and where it must not end once it drew more."""
    begun: list[Callable[[Tensor, Tensor], Tensor]] = [FAULTS["grey"], lambda z, maps: 2 * FAULTS["grey"](z, maps)]
    course = course_of(setup, begun[0])
    for drawing in begun:
        course.check(Drawing(drawing), "now")  # type: ignore[arg-type]
    course.check(Drawing(by_both), "now")  # type: ignore[arg-type]
    again = course_of(setup, begun[0])
    again.check(Drawing(begun[0]), "now")  # type: ignore[arg-type]
    # A run that goes on remembers what it had reached.
    again.restore(course.state())
    for one in (course, again):
        with pytest.raises(Diverged, match="the same picture"):
            one.check(Drawing(begun[0]), "later")  # type: ignore[arg-type]


def test_one_that_loses_it_little_by_little_is_held_to_the_best_it_did(setup: Setup) -> None:
    course = course_of(setup, by_both)
    course.check(Drawing(lambda z, maps: 0.3 * by_both(z, maps)), "now")  # type: ignore[arg-type]
    with pytest.raises(Diverged, match="the same picture"):
        course.check(Drawing(lambda z, maps: 0.04 * by_both(z, maps)), "later")  # type: ignore[arg-type]


def test_one_that_draws_half_as_differently_is_left_alone(setup: Setup) -> None:
    course_of(setup, by_both).check(Drawing(lambda z, maps: 0.3 * by_both(z, maps)), "now")  # type: ignore[arg-type]


def test_nobody_private_is_looked_at(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup.private.private, "rows", lambda rows: pytest.fail("a private picture was read"))
    course_of(setup, by_both).check(Drawing(by_both), "now")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("model.clip=pair", "model.bound=weights"),
        ("model.average=0.5",),
        ("model.critic=means", "batch=24", "epochs=1", "model.generator_steps=25"),
    ],
    ids=["real", "pair", "average", "means"],
)
def test_an_ordinary_run_ends_as_a_result(settings: tuple[str, ...], tmp_path: Path) -> None:
    folder = run_training(config_of(*settings, "model.critic_steps=1"), tmp_path / "run")
    last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["interrupted"], came_to_nothing(folder)) == ("end", False, "") and isinstance(
        open_run(folder).model, PoseGAN
    )


@pytest.mark.parametrize(
    ("method", "often"), [("dpsgd", 1), ("dpsgd", 1000), ("public-only", 1)], ids=["on the way", "at the end", "public"]
)
def test_a_rate_from_which_no_generator_comes_back_is_no_result(
    method: str, often: int, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfmask.tasks.generate_halves._LOOKED_AT", often)
    folder = tmp_path / "run"
    config = config_of("model.generator_rate=3", "model.critic_steps=2", "model.generator_optimiser=adam", method=method)
    with pytest.raises(Diverged, match=r"generator.*model\.generator_rate") as stopped:
        run_training(config, folder)
    taken = 2 if often == 1 else 6
    assert ("after step 2" if often == 1 else "at the end") in str(stopped.value)
    assert all(check.passed for check in verify_certificate(folder / "model.safetensors", folder / "certificate.json"))
    body = json.loads((folder / "certificate.json").read_text())
    assert body["steps"] == taken and body["planned_steps"] == 6
    if method == "dpsgd":
        # What was paid stays paid, and no more.
        assert f"{6 - taken} of 6 steps were not spent" in str(stopped.value)
        assert sum(spend.steps for spend in Ledger(body["dataset_fingerprint"]).spends()) == taken
        assert 0 < body["epsilon"]["zero-out"] <= 1
    assert json.loads((folder / "log.jsonl").read_text().splitlines()[-1])["interrupted"] is True
    with pytest.raises(HalfmaskError, match=r"came to nothing .*no result"):
        open_run(folder)


def test_it_is_looked_at_every_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("halfmask.tasks.generate_halves._LOOKED_AT", 2)
    monkeypatch.setattr(Course, "check", lambda self, generator, when: looked.append(when))
    run_training(config_of("model.critic_steps=1", method="public-only"), tmp_path / "run")
    assert looked == ["after step 2", "after step 4", "after step 6", "at the end"]


def test_what_is_released_is_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    def check(self: Course, generator: nn.Module, when: str) -> None:
        seen.append(next(generator.parameters()).detach().numpy().copy())

    monkeypatch.setattr(Course, "check", check)
    made: list[GeneratorSteps] = []
    real = GeneratorSteps.__init__
    monkeypatch.setattr(GeneratorSteps, "__init__", lambda self, setup: made.append(self) or real(self, setup))
    run_training(config_of("model.critic_steps=1", "model.average=0.9", method="public-only"), tmp_path / "run")
    (steps,) = made
    assert np.array_equal(seen[-1], next(steps.model.generator.parameters()).detach().numpy())
