"""One declaration for each setting: its default, what it means and what it may be.

A group of settings is a frozen dataclass whose fields come from `setting`. The refusals (`check_settings`) and the page docs/settings.md
are both made from that one line, so that neither can say what the other does not. What concerns several settings at once is a method
`check(run)` of the group.

>>> @dataclass(frozen=True)
... class Faces:
...     youngest: int = setting(18, "Nobody below this age.", at_least=0, at_most=120)
>>> check_settings(Faces(youngest=-1), "data.")
Traceback (most recent call last):
halfmask.errors.HalfmaskError: data.youngest is -1: expected a number from 0 to 120
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any

from halfmask.errors import HalfmaskError, Problems, unknown_name

_DECLARED = "halfmask setting"


@dataclass(frozen=True)
class Setting:
    """What is declared of a setting.

    Attributes:
        meaning: what it is for, in a sentence or two.
        at_least, at_most, above, below: its bounds, those two included and these two not.
        one_of: the values it may have; of a list, the values its members may have. A function where they may become more.
        fits: tells whether a value will do, where bounds cannot.
        expected: what is expected, in words, where `fits` or somebody else decides.
        called: what messages call it; by default its key.
        asked_of: the kind of method that the bounds matter to (`noised`, `projected`); empty for all.
    """

    meaning: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    one_of: Iterable[Any] | Callable[[], Iterable[Any]] | None = None
    fits: Callable[[Any], bool] | None = None
    expected: str = ""
    called: str = ""
    asked_of: str = ""

    def known(self) -> tuple[Any, ...] | None:
        """The values it may have, if they can be listed."""
        if self.one_of is None:
            return None
        return tuple(self.one_of() if callable(self.one_of) else self.one_of)

    def words(self) -> str:
        """What is expected; empty where any value of its kind will do."""
        if self.expected:
            return self.expected
        known = self.known()
        if known is not None:
            *others, last = map(str, known)
            return f"{', '.join(others)} or {last}" if others else last
        if (self.at_least, self.at_most) == (0, 1):
            return "a share between 0 and 1"
        low, high = self.at_least if self.above is None else self.above, self.at_most if self.below is None else self.below
        if low is not None and high is not None:
            return f"a number from {'above ' * (self.above is not None)}{low:g} to {'below ' * (self.below is not None)}{high:g}"
        if low is not None:
            return f"a number greater than {low:g}" if self.above is not None else f"a number of at least {low:g}"
        if high is not None:
            return f"a number less than {high:g}" if self.below is not None else f"a number of at most {high:g}"
        return ""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not what is expected. Nothing at all is refused where its kind is: see `halfmask.training.override`."""
        if value is None:
            return
        known = self.known()
        for one in value if isinstance(value, list) else (value,):
            if known is not None and one not in known:
                if isinstance(one, str):
                    raise unknown_name(self.called or name, one, map(str, known))
                raise self._refusal(name, one)
        if not self._within(value) or not (self.fits is None or self.fits(value)):
            raise self._refusal(name, value)

    def _within(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self._bounded:
            return True
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def _bounded(self) -> bool:
        return any(bound is not None for bound in (self.at_least, self.at_most, self.above, self.below))

    def _refusal(self, name: str, value: Any) -> HalfmaskError:
        shown = list(value) if isinstance(value, tuple) else repr(value) if isinstance(value, str) else value
        return HalfmaskError(f"{self.called or name} is {shown}: expected {self.words()}")


def setting(default: Any, meaning: str, **declared: Any) -> Any:
    """A field of a group: its default, its meaning, and what else `Setting` declares.

    A list or a mapping is copied for each group, so that no two share one.
    """
    metadata = {_DECLARED: Setting(meaning, **declared)}
    if isinstance(default, (list, dict)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def setting_of(one: Field[Any]) -> Setting | None:
    """What was declared of a field, if it came from `setting`."""
    return one.metadata.get(_DECLARED)


def declared_in(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any, Setting | None]]:
    """Every setting of a group and of the groups in it: its key, its value, and what was declared of it."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        if is_dataclass(value):
            yield from declared_in(value, f"{prefix}{one.name}.")
        else:
            yield prefix + one.name, value, setting_of(one)


def check_settings(settings: Any, prefix: str = "", asked: Collection[str] | None = None) -> None:
    """Refuse every value of a group, or of the groups in it, that is not what was declared.

    Args:
        prefix: what stands before the names of settings in messages.
        asked: the kinds that the method is of; None to ask for everything.
    """
    problems = Problems()
    note_problems(settings, problems, prefix, asked)
    problems.raise_if_any("the settings")


def note_problems(settings: Any, problems: Problems, prefix: str = "", asked: Collection[str] | None = None) -> None:
    """The same for whoever has more to say before anything is refused."""
    for name, value, declared in declared_in(settings, prefix):
        if declared is not None and (not declared.asked_of or asked is None or declared.asked_of in asked):
            with problems.gathered():
                declared.check(name, value)


def groups_in(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """A group and those in it, each with its name."""
    yield name, settings
    for one in fields(settings):
        value = getattr(settings, one.name)
        if is_dataclass(value):
            yield from groups_in(value, f"{name}.{one.name}" if name else one.name)
