"""What noise leaves of a signal, told from public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from halfmask.errors import HalfmaskError
from halfmask.gradients.mechanism import method_named
from halfmask.tasks.action import ActionTask
from halfmask.tasks.base import Task
from halfmask.tasks.pose import PoseTask
from halfmask.training import setup as preparation
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.prospects import DOUBTFUL, HOPELESS, Prospect, check_prospect, suggested_batch
from halfmask.views import Blur, Framewise, Tokens, View

PROSPECT = Prospect(1000, "crop", batch=50.0, steps=400, noise_multiplier=2.0, coordinates=10_000, projected=("projected",))


def with_signal(signal: float) -> Prospect:
    return replace(PROSPECT, noise_multiplier=PROSPECT.noise_multiplier * PROSPECT.signal / signal)


def test_the_best_case_is_measured_in_units_of_the_noise() -> None:
    """People whose gradients all agree, each as long as the clip norm: drawn, and compared."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 2.0, (400, 10_000)).sum(0)
    mean = np.linalg.norm(noise)
    assert PROSPECT.signal == pytest.approx(400 * 50.0 / mean, rel=0.05)
    assert PROSPECT.step_signal == pytest.approx(50.0 / np.linalg.norm(rng.normal(0, 2.0, 10_000)), rel=0.05)


def test_as_many_coordinates_as_are_affordable_drown_the_signal_no_more() -> None:
    at_most = replace(PROSPECT, coordinates=PROSPECT.affordable)
    assert at_most.signal == pytest.approx(1, rel=1e-3) and replace(at_most, coordinates=2 * at_most.coordinates).signal < 1


def test_without_noise_nothing_is_drowned() -> None:
    exact = replace(PROSPECT, noise_multiplier=0.0)
    assert exact.signal == math.inf and exact.affordable == exact.coordinates and check_prospect(exact, False) is None


def test_hopeless_plans_are_refused_and_doubtful_ones_remarked_on() -> None:
    with pytest.raises(HalfmaskError, match="this plan cannot work") as refused:
        check_prospect(with_signal(0.99 * HOPELESS), even_so=False)
    for words in ("1,000 crops", "10,000 coordinates", "--method projected", "--batch", "--epsilon", "more people", "--even-so"):
        assert words in str(refused.value)
    assert "10,000 coordinates" in (check_prospect(with_signal(0.99 * HOPELESS), even_so=True) or "")
    assert "10,000 coordinates" in (check_prospect(with_signal(1.01 * HOPELESS), even_so=False) or "")
    assert "10,000 coordinates" in (check_prospect(with_signal(0.99 * DOUBTFUL), even_so=False) or "")
    assert check_prospect(with_signal(1.01 * DOUBTFUL), even_so=False) is None


@pytest.mark.parametrize(
    ("task", "method", "view", "expected"),
    [
        (PoseTask, "dpsgd", Blur(), "projected feature-projective"),
        (PoseTask, "feature", Blur(), "feature-projective"),
        (PoseTask, "feature-projective", Blur(), ""),
        (ActionTask, "dpsgd", Tokens(), "projected feature-projective masked-projective"),
        (ActionTask, "feature", Tokens(), "feature-projective masked-projective"),
        (ActionTask, "feature", Framewise(Blur()), "feature-projective"),
        (ActionTask, "masked", Tokens(), "masked-projective"),
        (ActionTask, "masked-projective", Tokens(), ""),
    ],
)
def test_advice_names_the_methods_that_fit(task: type[Task], method: str, view: View, expected: str) -> None:
    """No less of what is public than the method has that was asked for, and no mask where nothing divides a record."""
    found = preparation.with_subspace(method_named(method), task(None), view)
    assert found == tuple(expected.split())
    said = replace(PROSPECT, projected=found).advice()
    assert f"--method {' or '.join(found)}," in said if found else "--method" not in said
    assert "subspace.dim" in said


@pytest.mark.parametrize("method, coordinates", [("dpsgd", None), ("projected", 8)])
def test_what_is_noised_is_counted(
    method: str, coordinates: int | None, tiny_config: Callable[..., RunConfig], quick_accounting: None, fresh_home: object
) -> None:
    setup = preparation.prepare(tiny_config(method=method), Progress(), planning=True)
    trained = sum(parameter.numel() for parameter in setup.model.parameters() if parameter.requires_grad)
    instead = () if coordinates else ("projected", "feature-projective")
    assert setup.prospect == Prospect(40, "crop", 8.0, 2, setup.noise_multiplier, coordinates or trained, instead)
    assert trained > 1000


@pytest.mark.parametrize(("units", "epochs", "planned", "expected"), [(3000, 3, 100, 450), (15, 25, 4, 15), (1, 1, 1, 1), (40, 0.1, 8, 8)])
def test_a_suggested_batch_leaves_steps_to_learn_in(units: int, epochs: float, planned: int, expected: int) -> None:
    assert suggested_batch(units, epochs, planned) == expected
