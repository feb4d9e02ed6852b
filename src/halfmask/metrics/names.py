"""What the metrics are called, in what unit they are, which way they are better, and which of a model's are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# One pair for each way of scoring poses: the number a table is sorted by, and the one beside it.
HEADLINES: tuple[tuple[str, str], ...] = (("pckh@0.5", "pckh@0.1"), ("pck@0.2", "pck@0.5"), ("ap", "ar"))
_PERCENT = "%"
# Words in the name of a metric of which nothing is declared that say: the less, the better.
_LOSSES = {"loss", "error", "errors", "mse", "rmse", "mae"}
_PRECISION = re.compile(r"(ap|ar)(50|75|-m|-l)?")


@dataclass(frozen=True)
class MetricInfo:
    """What readers must know of a metric.

    Attributes:
        printed: its name in tables and charts; its own name if empty.
        unit: what stands behind the number: `%` for those that go from 0 to 100, `°`, `% of face size`.
        higher_is_better: False for errors and losses.
        digits: how many are printed after the point; None for four in all.
    """

    printed: str = ""
    unit: str = ""
    higher_is_better: bool = True
    digits: int | None = None


_DECLARED: dict[str, MetricInfo] = {}


def declare(metrics: Mapping[str, MetricInfo]) -> None:
    """Make metrics known by their names, for whatever prints them. A name declared again means what was declared last."""
    _DECLARED.update(metrics)


def about(name: str) -> MetricInfo:
    """What is known of a metric: what its task declared; the same of its parts (`name/part`); else what its name tells."""
    whole = name.partition("/")[0]
    if whole in _DECLARED:
        return _DECLARED[whole]
    if any(whole in pair for pair in HEADLINES) or "@" in whole or _PRECISION.fullmatch(whole):
        return MetricInfo(_pose_name(whole), _PERCENT, digits=1)
    return MetricInfo(higher_is_better=not _LOSSES & set(re.split(r"[^a-z]+", whole.lower())))


def headline(names: Iterable[str]) -> tuple[str, str]:
    """The two numbers to show of a model, by the metrics it was scored with: of a task that is not known here the first two, or the first
    twice where there is one.
    """
    known = list(dict.fromkeys(names))
    if not known:
        return HEADLINES[0]
    return _pose_pair(known) or (known[0], known[1] if len(known) > 1 else known[0])


def has_headline(names: Iterable[str]) -> bool:
    """Whether two of these are known to stand for all: those of poses."""
    return _pose_pair(list(names)) is not None


def shown(names: Iterable[str]) -> list[str]:
    """The numbers that stand for a model in tables and on pages: of poses the two of the headline, of other tasks every metric whole."""
    known = list(dict.fromkeys(names))
    pair = _pose_pair(known)
    if pair is not None:
        return [name for name in pair if name in known]
    return [name for name in known if "/" not in name] or known


def is_percentage(name: str) -> bool:
    """Whether a metric is one of those that go from 0 to 100."""
    return about(name).unit == _PERCENT


def printed(name: str) -> str:
    """A metric's name as tables print it: `PCKh@0.5`, `PCK@0.2`, `AP`."""
    return about(name).printed or name


def with_unit(name: str) -> str:
    """The name with its unit, for an axis or a list: `PCKh@0.5 (%)`, `landmark error (% of face size, lower is better)`."""
    info = about(name)
    words = [info.unit] * bool(info.unit) + ["lower is better"] * (not info.higher_is_better)
    return printed(name) + (f" ({', '.join(words)})" if words else "")


def value_with_unit(name: str, text: str) -> str:
    """A formatted value with its unit, for a line of text: `3.2 % of face size`, `4.1°`. Percentages stand without, as they always did."""
    unit = about(name).unit
    if not unit or unit == _PERCENT:
        return text
    return f"{text}{unit}" if unit == "°" else f"{text} {unit}"


def _pose_pair(known: list[str]) -> tuple[str, str] | None:
    return next((pair for pair in HEADLINES if pair[0] in known and pair[0] not in _DECLARED), None)


def _pose_name(name: str) -> str:
    if "@" in name:
        return name.replace("pckh", "PCKh").replace("pck@", "PCK@")
    return name.upper()
