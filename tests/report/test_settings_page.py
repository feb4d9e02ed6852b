"""The page of every setting: it is what the declarations give, and leaves none of them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from halfmask.report import settings_page
from halfmask.report.settings_page import all_entries, entries
from halfmask.settings import declared_in, setting
from halfmask.tasks import base
from halfmask.training.config import RunConfig, build_config

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_committed_page_is_what_the_declarations_give() -> None:
    assert PAGE.read_text() == settings_page.settings_page(), "run: python -m halfmask.report.settings_page > docs/settings.md"


def test_every_key_of_a_run_stands_on_the_page_once() -> None:
    text = settings_page.settings_page()
    for task in settings_page.task_names():
        told = [entry.key for entry in all_entries() if entry.task in ("", task)]
        assert sorted(told) == sorted(name for name, _, _ in declared_in(RunConfig(task=task)))
        shared, _, own = text.partition(f"## Of the task `{task}`")
        pages = shared.partition("## Of the task")[0] + own.partition("## Of the task")[0]
        assert all(pages.count(f"| `{key}` |") == 1 for key in told)


def test_every_default_can_be_set() -> None:
    """What the page calls a default is one: setting it changes nothing."""
    for entry in all_entries():
        if entry.default not in (None, ""):
            value = str(list(entry.default)) if isinstance(entry.default, tuple) else entry.default
            task = entry.task or "pose"
            assert build_config({"task": task}, {}, [f"{entry.key}={value}"]) == RunConfig(task=task), entry.key


@dataclass(frozen=True)
class Lens:
    """What it looks through."""

    width: float = setting(1.0, "How wide, a|b.", above=0, asked_of="noised")


@dataclass(frozen=True)
class AgesData:
    """Which faces to use.

    More than fits on the page.
    """

    youngest: int = setting(18, "Nobody below.", at_least=0)
    kinds: list[str] = setting(["a"], "Some kinds.", one_of=("a", "b"))
    note: str | None = setting(None, "A note.")
    lens: Lens = field(default_factory=Lens)


class Ages(base.Task):
    name = "ages"
    units = ("face", "subject")
    groups = {"data": AgesData}  # noqa: RUF012

    def loss(self, model: Any, batch: Any) -> Any:
        raise AssertionError("nothing is trained here")


def test_a_row_says_key_meaning_default_and_range() -> None:
    assert [entry.row() for entry in (*entries(AgesData(), "data"), *entries(Lens(), "data.lens"))] == [
        "| `data.youngest` | Nobody below. | `18` | a whole number of at least 0 |",
        '| `data.kinds` | Some kinds. | `["a"]` | a list of `a`, `b` |',
        "| `data.note` | A note. | – | text or nothing |",
        "| `data.lens.width` | How wide, a\\|b. | `1.0` | a number greater than 0 (asked of methods that add noise) |",
    ]


def test_a_task_of_its_own_has_a_chapter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_TASKS", dict(base._TASKS))
    base.register(Ages)
    monkeypatch.setattr(settings_page, "task_names", lambda: ["pose", "ages"])
    text = settings_page.settings_page()
    pose, ages = text[text.index("## Of the task `pose`") :].split("## Of the task `ages`")
    assert "`model.size`" in pose and "`model.size`" not in ages
    assert "Units that it can protect, the finest first: `face`, `subject`." in ages
    assert "### `data`\n\nWhich faces to use.\n\n|" in ages and "### `data.lens`\n\nWhat it looks through." in ages
    assert "### `model`\n\nThe network: nothing of it can be set.\n\n### `augment`" in ages
