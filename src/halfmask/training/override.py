"""Changing some values of nested dataclasses, as recipes, flags and `--set` ask: unknown names and wrong kinds are refused."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from halfmask.errors import HalfmaskError, unknown_name

_Config = typing.TypeVar("_Config")


def override(config: _Config, changes: Mapping[str, Any], where: str) -> _Config:
    """A copy of a (nested) dataclass with some values changed; unknown names and wrong kinds are refused."""
    assert is_dataclass(config)
    known = {f.name: f for f in fields(config)}
    hints = typing.get_type_hints(type(config))
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise unknown_name(f"setting in {where}", str(name), known)
        current = getattr(config, name)
        if is_dataclass(current):
            if not isinstance(value, Mapping):
                raise HalfmaskError(f"{where}: '{name}' is {value!r}: expected a group of settings")
            values[name] = override(current, value, f"{where} {name}")
        else:
            values[name] = _coerce(f"{where}: '{name}'", hints[name], value)
    return typing.cast(_Config, replace(typing.cast(Any, config), **values))


def _coerce(place: str, hint: Any, value: Any) -> Any:
    options = (
        typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, getattr(__import__("types"), "UnionType", None)) else (hint,)
    )
    if value is None and type(None) in options:
        return None
    kind = next(option for option in options if option is not type(None))
    origin = typing.get_origin(kind) or kind
    try:
        if origin is bool:
            if not isinstance(value, bool):
                raise ValueError
            return value
        if origin in (int, float):
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if origin is int and number != int(number):
                raise ValueError
            return origin(number)
        if origin is tuple:
            return tuple(int(v) for v in value)
        if origin is dict:
            return dict(value)
        if origin is list:
            return [str(v) for v in ([value] if isinstance(value, str) else value)]
        if isinstance(value, (list, dict)):
            raise ValueError
        return str(value)
    except (TypeError, ValueError, OverflowError):
        raise HalfmaskError(f"{place} is {value!r}: expected a {getattr(origin, '__name__', origin)}") from None
