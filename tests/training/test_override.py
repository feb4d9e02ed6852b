"""Changing some values of nested dataclasses: what kinds become, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.training.override import override


@dataclass(frozen=True)
class Inner:
    share: float = 0.5
    weights: tuple[float, ...] = (1.0, 2.0)


@dataclass(frozen=True)
class Outer:
    count: int = 3
    word: str = "red"
    sides: tuple[int, int] = (4, 5)
    steps: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    anything: Any = None
    perhaps: float | None = None
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"count": 7.0}, "count", 7),
        ({"count": "8"}, "count", 8),
        ({"word": 5}, "word", "5"),
        ({"sides": [1, 2.0]}, "sides", (1, 2)),
        ({"steps": [1, 2]}, "steps", [1, 2]),
        ({"names": "one"}, "names", ["one"]),
        ({"names": ["one", 2]}, "names", ["one", "2"]),
        ({"options": {"a": [1]}}, "options", {"a": [1]}),
        ({"anything": [1, None]}, "anything", [1, None]),
        ({"perhaps": 1}, "perhaps", 1.0),
        ({"perhaps": None}, "perhaps", None),
        ({"inner": {"share": 1}}, "inner.share", 1.0),
        ({"inner": {"weights": [0.25, 3]}}, "inner.weights", (0.25, 3.0)),
    ],
)
def test_values_become_what_their_setting_is(changes: dict[str, Any], path: str, value: Any) -> None:
    found: Any = override(Outer(), changes, "recipe")
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value and type(found) is type(value)
    if isinstance(value, (list, tuple)):
        assert [type(one) for one in found] == [type(one) for one in value]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cuont": 3}, "unknown setting in recipe 'cuont': did you mean 'count'"),
        ({"inner": {"shaer": 3}}, "unknown setting in recipe inner 'shaer': did you mean 'share'"),
        ({"inner": 3}, "expected a group"),
        ({"count": 2.5}, "'count' is 2.5: expected an int"),
        ({"count": True}, "expected an int"),
        ({"word": None}, "'word' is None: expected a str"),
        ({"word": ["a"]}, "expected a str"),
        ({"sides": "45"}, "expected a tuple"),
        ({"sides": [4.5, 1]}, "expected a tuple"),
        ({"steps": ["many"]}, "expected a list"),
        ({"names": {"a": 1}}, "expected a list"),
        ({"perhaps": "perhaps"}, "expected a float"),
    ],
)
def test_other_kinds_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HalfmaskError, match=words):
        override(Outer(), changes, "recipe")


def test_what_is_not_named_stays_and_the_original_too() -> None:
    before = Outer(inner=Inner(share=0.1))
    after = override(before, {"inner": {"weights": [1]}}, "recipe")
    assert after == Outer(inner=Inner(share=0.1, weights=(1.0,)))
    assert before == Outer(inner=Inner(share=0.1))
