"""The JSON schema says what the reader refuses: neither lets pass what the other would not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from halfmask.data.export import export_figures
from halfmask.data.files import Complaints
from halfmask.data.folder_checks import FIELDS, check_entries, unknown_fields
from halfmask.data.schema import folder_schema, schema_problems
from halfmask.data.skeleton import MPII

SOUND = {
    "image": "images/a.jpg",
    "split": "private",
    "box": [10, 20.5, 40, 50],
    "joints": [[20.0, 30, 2]] * 16,
    "head_box": [20, 20, 10, 12],
    "subject": 7,
}


def refused(entry: object, version: object = None) -> bool:
    complaints = Complaints(Path("annotations.json"), "record", Path())
    check_entries([entry], version, complaints)
    return bool(complaints)


def without(name: str) -> dict:
    return {key: value for key, value in SOUND.items() if key != name}


def test_the_schema_is_one_and_knows_every_field() -> None:
    schema = folder_schema()
    Draft202012Validator.check_schema(schema)
    record = schema["$defs"]["record"]
    assert tuple(record["properties"]) == FIELDS
    assert all(name in record["properties"]["joints"]["description"] for name in MPII.names)


@pytest.mark.parametrize("entry", [SOUND, without("head_box"), without("subject"), SOUND | {"note": "mine"}, SOUND | {"subject": "x"}])
def test_what_both_let_pass(entry) -> None:
    assert schema_problems({"records": [entry]}) == [] and not refused(entry)


@pytest.mark.parametrize(
    "entry, place",
    [
        (3, ""),
        *((without(name), "") for name in ("image", "split", "box", "joints")),
        (SOUND | {"image": ""}, "image"),
        (SOUND | {"split": "train"}, "split"),
        (SOUND | {"box": [1, 2, 3]}, "box"),
        (SOUND | {"box": [1, 2, 0, 3]}, "box/2"),
        (SOUND | {"box": ["1", 2, 3, 4]}, "box/0"),
        (SOUND | {"box": [True, 2, 3, 4]}, "box/0"),
        (SOUND | {"head_box": [1, 2, 3, -4]}, "head_box/3"),
        (SOUND | {"head_box": None}, "head_box"),
        (SOUND | {"joints": [[1, 2, 2]] * 15}, "joints"),
        (SOUND | {"joints": [[1, 2, 2]] * 15 + [[1, 2, 7]]}, "joints/15/2"),
        (SOUND | {"joints": [[1, 2, 2]] * 15 + [[1, "2", 2]]}, "joints/15/1"),
        (SOUND | {"joints": [[1, 2]] * 16}, "joints/0"),
        (SOUND | {"subject": None}, "subject"),
        (SOUND | {"subject": [1]}, "subject"),
    ],
)
def test_what_both_refuse(entry, place) -> None:
    found = schema_problems({"records": [SOUND, entry]})
    assert found and all(number == 1 for number, _ in found) and any(text.startswith(place) for _, text in found)
    assert refused(entry)


def test_versions() -> None:
    for version, fine in ((2, True), (1, False), ("2", False)):
        assert (schema_problems({"version": version, "records": [SOUND]}) == []) is fine
        assert refused(SOUND, version) is not fine


def test_what_is_exported_is_as_the_schema_says(tmp_path) -> None:
    export_figures(tmp_path, {"private": 3, "test": 2})
    body = json.loads((tmp_path / "annotations.json").read_text())
    assert body["version"] == 2 and schema_problems(body) == []


def test_fields_that_mean_nothing() -> None:
    assert unknown_fields([SOUND | {"headbox": 1}, SOUND | {"headbox": 2, "note": 1}, 3]) == {"headbox": 2, "note": 1}
