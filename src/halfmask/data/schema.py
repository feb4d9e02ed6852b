"""The JSON schema of `annotations.json`: package data that any tool can read, and what `halfmask data inspect` holds a file against.

Reading a dataset does not go through it: a schema takes a millisecond a record, and every command would wait for that. The reader's own
checks (`halfmask.data.folder_checks`) refuse all that it refuses, and more; a test holds the two against each other.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def folder_schema() -> dict[str, Any]:
    """The schema of `annotations.json`, as JSON Schema (draft 2020-12)."""
    body: dict[str, Any] = json.loads(resources.files("halfmask.data").joinpath("schemas/annotations.schema.json").read_text("utf-8"))
    return body


def schema_problems(body: Any) -> list[tuple[int | None, str]]:
    """All that the schema finds wrong with a file: the record it is in (None outside of all), and where and what, values included.

    For the data's holder alone: see `halfmask.data.files`.
    """
    # Imported here: no other command needs it.
    from jsonschema import Draft202012Validator

    found = []
    for error in Draft202012Validator(folder_schema()).iter_errors(body):
        path = list(error.absolute_path)
        record = path[1] if len(path) > 1 and path[0] == "records" and isinstance(path[1], int) else None
        place = "/".join(map(str, path[2:] if record is not None else path))
        message = error.message if len(error.message) <= 160 else f"{error.message[:159]}…"
        found.append((record, f"{place}: {message}" if place else message))
    return sorted(found, key=lambda one: (-1 if one[0] is None else one[0], one[1]))
