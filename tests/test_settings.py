"""What is declared of a setting decides what is refused, and in which words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.settings import Setting, check_settings, declared_in, groups_in, setting


@dataclass(frozen=True)
class Inner:
    share: float = setting(0.5, "A share.", at_least=0, at_most=1)
    kinds: list[str] = setting([], "Some kinds.", one_of=("a", "b"))


@dataclass(frozen=True)
class Outer:
    number: int = setting(3, "A number.", at_least=1, at_most=16)
    word: str = setting("red", "A word.", one_of=("red", "blue"), called="colour")
    scale: float = setting(1.0, "A scale.", above=0, asked_of="noised")
    plain: bool = setting(False, "A switch.")
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("declared", "right", "wrong", "words"),
    [
        ({"at_least": 0}, [0, 3.5, 1e9], [-1, float("nan"), float("inf")], "a number of at least 0"),
        ({"above": 0}, [1e-9], [0, -1, float("inf")], "a number greater than 0"),
        ({"at_least": 0, "at_most": 1}, [0, 1, 0.3], [-0.1, 1.1, float("nan")], "a share between 0 and 1"),
        ({"at_least": 0, "below": 1}, [0, 0.99], [1, -0.1], "a number from 0 to below 1"),
        ({"above": 0, "at_most": 9}, [0.1, 9], [0, 9.1], "a number from above 0 to 9"),
        ({"below": 2}, [-5, 1], [2], "a number less than 2"),
        ({"at_most": 2}, [-5, 2], [2.1], "a number of at most 2"),
        ({"one_of": (1, 2)}, [1, 2], [3], "1 or 2"),
        ({"one_of": lambda: (1, 2, 4)}, [4], [3], "1, 2 or 4"),
        ({"fits": str.islower, "expected": "small letters"}, ["a"], ["A", ""], "small letters"),
        ({}, [float("inf"), -1, "x", None, [1]], [], ""),
    ],
)
def test_values_are_refused_in_the_words_of_the_declaration(declared: dict, right: list, wrong: list, words: str) -> None:
    made = Setting("What it means.", **declared)
    assert made.words() == words
    for value in (None, *right):
        made.check("a.b", value)
    for value in wrong:
        with pytest.raises(HalfmaskError, match=rf"^a\.b is .*: expected {words}$"):
            made.check("a.b", value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Outer(number=0), r"^data\.number is 0: expected a number from 1 to 16$"),
        (Outer(word="rid"), r"^unknown colour 'rid': did you mean 'red'\? known: blue, red$"),
        (Outer(inner=Inner(share=2)), r"^data\.inner\.share is 2: expected a share between 0 and 1$"),
        (Outer(inner=Inner(kinds=["a", "c"])), r"^unknown data\.inner\.kinds 'c'"),
    ],
)
def test_groups_in_groups_are_checked_under_their_keys(settings: Any, words: str) -> None:
    check_settings(Outer(), "data.")
    with pytest.raises(HalfmaskError, match=words):
        check_settings(settings, "data.")


def test_some_bounds_matter_to_some_methods_alone() -> None:
    check_settings(Outer(scale=0), asked=())
    for asked in (None, ("noised",)):
        with pytest.raises(HalfmaskError, match="scale is 0"):
            check_settings(Outer(scale=0), asked=asked)


def test_every_setting_and_every_group_is_found() -> None:
    found = {name: (value, declared.meaning) for name, value, declared in declared_in(Outer(), "x.") if declared}
    assert list(found) == ["x.number", "x.word", "x.scale", "x.plain", "x.inner.share", "x.inner.kinds"]
    assert found["x.inner.share"] == (0.5, "A share.")
    assert [(name, type(one)) for name, one in groups_in(Outer(), "x")] == [("x", Outer), ("x.inner", Inner)]


def test_no_two_groups_share_a_list() -> None:
    Inner().kinds.append("a")
    assert Inner().kinds == []
