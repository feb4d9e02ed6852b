"""What a plan costs, asked from Python: the command's numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

import halfmask
from halfmask.errors import HalfmaskError
from halfmask.privacy.accounting import SampledGaussian, epsilon

PLAN: dict[str, Any] = {"units": 3000, "batch": 100, "epochs": 3, "delta": 1e-5}


def test_noise_for_a_budget_and_back() -> None:
    found = halfmask.account(3000, 100, 3, 0.8, 1e-5)
    assert found["steps"] == 90 and found["sampling_rate"] == 100 / 3000 and found["epsilon"] <= 0.8
    assert (found["adjacency"], found["accountant"], found["delta"]) == ("zero-out", "pld", 1e-5)
    back = halfmask.account(**PLAN, noise_multiplier=found["noise_multiplier"])
    assert back == found
    assert back["epsilon"] == epsilon([SampledGaussian(found["noise_multiplier"], 100 / 3000, 90)], 1e-5)


def test_steps_in_the_place_of_epochs() -> None:
    plan = PLAN | {"epochs": None, "accountant": "rdp", "noise_multiplier": 2.0}
    assert halfmask.account(**plan, steps=90) == halfmask.account(**plan | {"epochs": 3})
    assert halfmask.account(**plan, steps=91)["epsilon"] > halfmask.account(**plan, steps=90)["epsilon"]


def test_mistakes_cost_more_and_no_noise_costs_everything() -> None:
    found = halfmask.account(**PLAN, accountant="rdp", noise_multiplier=2.0, units_per_image=3, shared_batch=True)
    assert found["epsilon"] < found["epsilon_image"] and found["epsilon"] < found["epsilon_shared_batch"]
    assert found["units_per_image"] == 3
    assert math.isinf(halfmask.account(**PLAN, noise_multiplier=0.0)["epsilon"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "either epsilon"),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "not both"),
        ({"epsilon": 1.0, "steps": 3}, "either epochs or steps"),
        ({"epsilon": 1.0, "epochs": None}, "either epochs or steps"),
        ({"epsilon": 1.0, "epochs": 0}, "epochs is 0: expected a number greater than 0"),
        ({"epsilon": 1.0, "epochs": math.inf}, "epochs is inf"),
        ({"epsilon": 1.0, "epochs": None, "steps": 0}, "steps is 0"),
        ({"epsilon": 1.0, "batch": 0.5}, "expected between 1 and 3000"),
        ({"epsilon": 1.0, "batch": 3001}, "expected between 1 and 3000"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta is 1.0"),
        ({"epsilon": 1.0, "adjacency": "replace"}, "did you mean 'replace-one'"),
    ],
)
def test_plans_that_mean_nothing_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        halfmask.account(**PLAN | changes)
