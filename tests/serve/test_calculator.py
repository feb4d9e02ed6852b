from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from halfmask.cli.app import main
from halfmask.errors import HalfmaskError
from halfmask.privacy.costs import account
from halfmask.serve.calculator import Plan, _cost, numbers, parse, work

FORM = {"size": "300", "batch": "100", "epochs": "1", "epsilon": "2", "delta": "1e-5", "adjacency": "zero-out", "unit": "crop"}


@pytest.fixture(autouse=True)
def quick(quick_accounting: None) -> Iterator[None]:
    """Coarse accountants, for the page and for the command; what they said is forgotten before others use finer ones."""
    yield
    numbers.cache_clear()
    _cost.cache_clear()


def printed(command: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command.split()[1:], "--json"])
    return json.loads(out.getvalue())


@pytest.mark.parametrize(
    "changes",
    [{"adjacency": "replace-one"}, {"units_per_image": "2"}, {"batch": "33.5", "delta": "0.00012345"}],
)
def test_the_numbers_are_those_of_the_command(client: Any, changes: dict[str, str]) -> None:
    query = "&".join(f"{name}={value}" for name, value in (FORM | changes).items())
    first, *points = client.get(f"/api/account?{query}").lines()
    assert first["account"] == printed(first["command"])
    assert first["warnings"] == []
    assert {point["curve"] for point in points} == {"noise", "course"}


def test_the_curves_are_of_the_same_function() -> None:
    plan = parse(FORM)
    first, *points = [piece() for piece in work(plan)]
    sigma = first["account"]["noise_multiplier"]
    noise = {point["x"]: point["epsilon"] for point in points if point["curve"] == "noise"}
    course = {point["x"]: point["epsilon"] for point in points if point["curve"] == "course"}
    assert noise[sigma] == course[max(course)] == first["account"]["epsilon"]
    for x, found in noise.items():
        assert found == account(300, 100, 1, None, 1e-5, "zero-out", "pld", x)["epsilon"]
    for x, found in course.items():
        assert found == account(300, 100, None, None, 1e-5, "zero-out", "pld", sigma, steps=round(x * 3))["epsilon"]
    assert list(noise.values()) == sorted(noise.values(), reverse=True) and list(course.values()) == sorted(course.values())


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(HalfmaskError) as error:
        parse({"size": "many", "batch": "10", "epsilon": "1", "delta": "1e-5", "colour": "red"})
    assert str(error.value) == "colour is not asked for; size is 'many': expected a number; epochs is missing"
    with pytest.raises(HalfmaskError) as error:
        parse(FORM | {"delta": "2", "epsilon": "0", "unit": "person"})
    assert all(word in str(error.value) for word in ("delta is 2", "epsilon is 0", "unit is 'person'"))


def test_what_would_take_too_long_is_for_the_terminal() -> None:
    with pytest.raises(HalfmaskError, match=r"more than 500,000 steps.*halfmask account --size 1000000"):
        parse(FORM | {"size": "1000000", "batch": "1"})


def test_a_delta_that_promises_nothing_is_warned_of() -> None:
    first = next(work(parse(FORM | {"delta": "0.01"})))()
    assert "publishing one crop outright" in first["warnings"][0]


def test_no_bound_is_a_word() -> None:
    """JSON has no infinity."""
    plan = Plan(100, 100, 1, 900.0, 1e-300)
    with contextlib.suppress(HalfmaskError):
        for piece in work(plan):
            body = json.loads(json.dumps(piece(), allow_nan=False))
            assert body.get("epsilon") != math.inf
