"""Changing some values of nested dataclasses, as recipes, flags and `--set` ask: unknown names and wrong kinds are refused."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from halfmask.errors import HalfmaskError, Problems, unknown_name
from halfmask.words import a_or_an

_Config = typing.TypeVar("_Config")


def override(config: _Config, changes: Mapping[str, Any], where: str, problems: Problems | None = None) -> _Config:
    """A copy of a (nested) dataclass with some values changed, by name or, in a group, by `group.name`.

    Args:
        problems: where unknown names and wrong kinds are noted, to be refused with others; without it they are refused here.
    """
    assert is_dataclass(config)
    found = Problems() if problems is None else problems
    known = {f.name: f for f in fields(config)}
    hints = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    for name, value in nested(changes).items():
        with found.gathered():
            if name not in known:
                raise unknown_name(f"setting in {where}", str(name), known)
            current = getattr(config, name)
            if not is_dataclass(current):
                values[name] = _coerce(f"{where}: '{name}'", hints[name], value)
            elif isinstance(value, Mapping):
                values[name] = override(current, value, f"{where} {name}", found)
            else:
                raise HalfmaskError(f"{where}: '{name}' is {value!r}: expected a group of settings")
    if problems is None:
        found.raise_if_any(f"the settings in {where}")
    return typing.cast(_Config, replace(typing.cast(Any, config), **values))


def nested(changes: Mapping[Any, Any]) -> dict[Any, Any]:
    """`{"optimiser.learning_rate": 0.1}` as the groups that it means; what comes later overrules what came before.

    >>> nested({"optimiser": {"name": "sgd"}, "optimiser.learning_rate": 0.1})
    {'optimiser': {'name': 'sgd', 'learning_rate': 0.1}}
    """
    whole: dict[Any, Any] = {}
    for key, value in changes.items():
        name, dot, rest = key.partition(".") if isinstance(key, str) else (key, "", "")
        inner = {rest: value} if dot else value
        before = whole.get(name)
        whole[name] = nested({**before, **inner}) if isinstance(before, Mapping) and isinstance(inner, Mapping) else inner
    return whole


def _coerce(place: str, hint: Any, value: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    kind = next(option for option in options if option is not type(None))
    origin = typing.get_origin(kind) or kind
    try:
        return _convert(origin, typing.get_args(kind), value)
    except (TypeError, ValueError, OverflowError):
        raise HalfmaskError(f"{place} is {value!r}: expected {a_or_an(getattr(origin, '__name__', str(origin)))}") from None


def _convert(kind: Any, inner: tuple[Any, ...], value: Any) -> Any:
    """The value as the kind that its setting has, or a `ValueError`: a word that is no number is never taken for one."""
    if kind is Any:
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError
        return value
    if kind in (int, float):
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
        if kind is int and number != int(number):
            raise ValueError
        return kind(number)
    if kind is dict:
        return dict(value)
    if kind in (tuple, list):
        # One word will do for a list of words, and must not become a list of letters.
        several = [value] if kind is list and isinstance(value, str) else value
        if isinstance(several, (str, Mapping)):
            raise ValueError
        member = inner[0] if inner else str
        return kind(_convert(typing.get_origin(member) or member, typing.get_args(member), one) for one in several)
    if value is None or isinstance(value, (list, dict)):
        raise ValueError
    return str(value)
