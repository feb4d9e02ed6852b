"""The calculator, through the real command."""

from __future__ import annotations

import json

import pytest

import halfmask as library

PLAN = ("--delta", "4e-5", "--size", "22146", "--batch", "256", "--epochs", "25")


def body(result) -> dict[str, float]:
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.parametrize(("adjacency", "accountant", "sigma"), [("replace-one", "pld", 4.4790), ("zero-out", "rdp", 2.5906)])
def test_noise_for_a_budget(halfmask, adjacency: str, accountant: str, sigma: float) -> None:
    answer = body(halfmask("account", "--epsilon", "0.8", *PLAN, "--adjacency", adjacency, "--accountant", accountant, "--json"))
    assert answer["noise_multiplier"] == pytest.approx(sigma, rel=5e-3)
    assert answer["epsilon"] <= 0.8
    assert answer["steps"] == 2163 and answer["sampling_rate"] == pytest.approx(256 / 22146) and answer["delta"] == 4e-5


def test_budget_of_a_noise(halfmask) -> None:
    answer = body(halfmask("account", "--noise-multiplier", "2.3773", *PLAN, "--json"))
    assert answer["epsilon"] == pytest.approx(0.8, rel=5e-3)


def test_the_command_and_the_library_say_the_same(halfmask) -> None:
    more = ("--units-per-image", "2", "--shared-batch", "--accountant", "rdp")
    answer = body(halfmask("account", "--noise-multiplier", "3", *PLAN, *more, "--json"))
    plan = {"units": 22146, "batch": 256, "epochs": 25, "delta": 4e-5, "accountant": "rdp"}
    assert answer == library.account(**plan, noise_multiplier=3, units_per_image=2, shared_batch=True)
    # No noise: infinite, which JSON has a word for and no number.
    assert body(halfmask("account", "--noise-multiplier", "0", *PLAN, "--json"))["epsilon"] == "infinity"


def test_the_cost_of_a_shared_batch(halfmask) -> None:
    mistake = ("account", "--noise-multiplier", "1.0384", "--delta", "4e-5", "--size", "22146", "--batch", "32", "--steps", "17302")
    answer = body(halfmask(*mistake, "--accountant", "rdp", "--shared-batch", "--json"))
    assert answer["epsilon_shared_batch"] == pytest.approx(35.1, rel=0.02)
    assert "epsilon_image" not in answer


def test_the_cost_of_several_people_in_an_image(halfmask) -> None:
    answer = body(halfmask("account", "--noise-multiplier", "4", *PLAN, "--units-per-image", "3", "--json"))
    assert 2 * answer["epsilon"] < answer["epsilon_image"] < 5 * answer["epsilon"]
    shown = halfmask("account", "--noise-multiplier", "4", *PLAN, "--units-per-image", "3")
    assert "an image with 3 units" in shown.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*PLAN,), "--epsilon"),
        (("--epsilon", "0.8", "--noise-multiplier", "1", *PLAN), "not both"),
        (("--epsilon", "-1", *PLAN), "greater than 0"),
        (("--epsilon", "0.8", *PLAN, "--steps", "5"), "not both"),
        (("--epsilon", "0.8", *PLAN, "--adjacency", "replace-one", "--accountant", "rdp"), "RDP"),
        (("--epsilon", "0.8", *PLAN, "--adjacency", "replace"), "replace-one"),
        (("--epsilon", "0.8", "--delta", "2", "--size", "100", "--batch", "10", "--epochs", "1"), "delta"),
        (("--epsilon", "0.8", "--delta", "1e-5", "--size", "100", "--batch", "200", "--epochs", "1"), "between 1 and 100"),
        (("--noise-multiplier", "1", *PLAN, "--units-per-image", "2", "--adjacency", "replace-one"), "groups of units"),
    ],
)
def test_mistakes(halfmask, arguments: tuple[str, ...], words: str) -> None:
    assert words in halfmask("account", *arguments).error
