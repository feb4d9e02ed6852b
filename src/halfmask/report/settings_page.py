"""The page of every setting, made from what is declared of each: `python -m halfmask.report.settings_page > docs/settings.md`."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from halfmask.settings import Setting, groups_in, setting_of
from halfmask.training.config import RunConfig, load_recipe, recipe_names, task_groups, task_units

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list", tuple: "a list"}
_KINDS |= {dict: "names and values"}
_ASKED_OF = {"noised": "asked of methods that add noise", "projected": "asked of methods with a subspace"}


@dataclass(frozen=True)
class Entry:
    """What the page says of one setting.

    Attributes:
        task: whose setting it is; empty for one that all tasks share.
    """

    task: str
    key: str
    meaning: str
    default: Any
    expected: str

    def row(self) -> str:
        """As a row of a Markdown table."""
        default = f"`{json.dumps(self.default, ensure_ascii=False)}`" if self.default not in (None, "") else "–"
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{self.key}`", self.meaning, default, self.expected)) + " |"


def entries(group: Any, name: str = "", task: str = "") -> list[Entry]:
    """What is to be said of the settings of one group, without those of the groups in it."""
    hints = typing.get_type_hints(type(group))
    found = []
    for one in fields(group):
        declared = setting_of(one)
        if declared is not None:
            # As declared, where a run fills it in by what its task is.
            default = one.default if one.default is not MISSING else getattr(group, one.name)
            key = f"{name}.{one.name}" if name else one.name
            found.append(Entry(task, key, declared.meaning, default, _expected(declared, hints[one.name])))
    return found


def _expected(declared: Setting, hint: Any) -> str:
    optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kind = next(option for option in typing.get_args(hint) if option is not type(None)) if optional else hint
    kind = typing.get_origin(kind) or kind
    words = declared.words() or _KINDS.get(kind, "anything")
    known = declared.known()
    if known is not None and not declared.expected:
        words = ", ".join(f"`{value}`" for value in known)
    if kind is int:
        words = words.replace("a number", "a whole number", 1)
    if kind is list and declared.words():
        words = f"a list of {words}"
    return words + (" or nothing" if optional else "") + (f" ({_ASKED_OF[declared.asked_of]})" if declared.asked_of else "")


def task_names() -> list[str]:
    """The tasks that the package has recipes for."""
    return sorted({load_recipe(name).get("task", RunConfig.task) for name in recipe_names()})


def all_entries() -> list[Entry]:
    """Every setting of every task; those that all tasks share stand first, once."""
    return [entry for task, name, group in _sections() for entry in entries(group, name, task)]


def _sections() -> Iterator[tuple[str, str, Any]]:
    run = RunConfig()
    theirs = task_groups(run.task)
    for name, group in groups_in(run):
        if name.partition(".")[0] not in theirs:
            yield "", name, group
    for task in task_names():
        for own in theirs:
            for name, group in groups_in(getattr(RunConfig(task=task), own), own):
                yield task, name, group


def settings_page() -> str:
    """The whole page, as Markdown."""
    lines = [
        "# Settings",
        "",
        "Everything that a run can be told, in a recipe (`optimiser: {learning_rate: 0.1}`) or on the command line",
        "(`--set optimiser.learning_rate=0.1`), with what it is if nobody says anything. Defaults give way to the recipe, the recipe to",
        "flags, and flags to `--set`. `halfmask recipes show NAME` prints a recipe with every setting resolved.",
        "",
        "This page is made from the declarations that the refusals are made from:",
        "`python -m halfmask.report.settings_page > docs/settings.md`.",
    ]
    chapter = ""
    for task, name, group in _sections():
        if task != chapter:
            chapter = task
            units = ", ".join(f"`{unit}`" for unit in task_units(task))
            lines += ["", f"## Of the task `{task}`", "", f"Units that it can protect, the finest first: {units}."]
        lines += ["", f"{'###' if task else '##'} {f'`{name}`' if name else 'The run'}", "", _about(group)]
        if found := entries(group, name, task):
            lines += ["", "| setting | meaning | default | expected |", "|---|---|---|---|", *(entry.row() for entry in found)]
    return "\n".join(lines) + "\n"


def _about(group: Any) -> str:
    assert is_dataclass(group)
    return inspect.cleandoc(type(group).__doc__ or "").split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    print(settings_page(), end="")
