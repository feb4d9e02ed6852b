"""Recipes that name a whole table: methods, budgets, clip norms, and blocks of rows that differ in other settings.

    compare:
      published: {file: pose_mpii.csv, table: 6, title: "MPII Results: Feature Projective DP"}
      methods: [feature-projective]
      epsilons: [0.2, 0.4, 0.6, 0.8]
      blocks:
        - {name: Finetuning, clip_norms: [0.01, 0.1, 1.0], settings: {strategy: finetune}}

`halfmask compare` runs every cell; every other command takes the recipe for what it says without its `compare`. What a block does not say
of methods, ε or clip norms the group does, and what neither says is the recipe's. A block is a sweep of its own, in a folder of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError, Problems, unknown_name
from halfmask.gradients.mechanism import method_named
from halfmask.training.config import STRATEGIES, load_whole_recipe
from halfmask.training.override import nested
from halfmask.training.sweep import SWEPT, PlannedRun, expand, plan_sweep

_LISTS = {"methods": str, "epsilons": (int, float), "clip_norms": (int, float)}
_GROUP, _BLOCK, _PUBLISHED = ("published", "blocks", *_LISTS), ("name", "data", "settings", *_LISTS), ("file", "table", "title")


@dataclass(frozen=True)
class Block:
    """Rows of a table that share their settings.

    Attributes:
        name: what stands above them.
        methods, epsilons, clip_norms: what they are of; empty for the recipe's.
        settings: what they have in common, by key.
        data: the kind of data that a paper says they are of, where it has several.
    """

    name: str
    methods: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    clip_norms: tuple[float, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""

    @property
    def slug(self) -> str:
        """The name of the block's folder."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "block"


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        published: where the same table is in the literature: the `file` and the `table` in `halfmask.report.published`, and its `title`.
    """

    blocks: tuple[Block, ...]
    published: Mapping[str, Any] = field(default_factory=dict)


def load_grid(recipe: str) -> Grid | None:
    """The table that a recipe names; None where it names a run alone."""
    body = load_whole_recipe(recipe).get("compare")
    return None if body is None else read_grid(body, recipe)


def read_grid(body: Any, recipe: str) -> Grid:
    """A `compare` group, after telling all that is wrong with it."""
    problems = Problems()
    where = f"'compare' of {recipe}"
    if not isinstance(body, Mapping):
        raise HalfmaskError(f"{where} is {body!r}: expected a group with {', '.join(_GROUP)}")
    _known(body, _GROUP, where, problems)
    published = body.get("published", {})
    if not isinstance(published, Mapping):
        raise HalfmaskError(f"{where}: 'published' is {published!r}: expected a group with {', '.join(_PUBLISHED)}")
    _known(published, _PUBLISHED, f"'published' in {where}", problems)
    listed = body.get("blocks", [{"name": "All"}])
    if not isinstance(listed, list) or not listed or not all(isinstance(one, Mapping) for one in listed):
        raise HalfmaskError(f"{where}: 'blocks' is {listed!r}: expected a list of groups with {', '.join(_BLOCK)}")
    blocks = []
    for number, one in enumerate(listed, 1):
        place = f"block {number} in {where}"
        _known(one, _BLOCK, place, problems)
        lists = {name: _list(name, one.get(name, body.get(name, [])), place, problems) for name in _LISTS}
        settings = one.get("settings", {})
        if not isinstance(settings, Mapping):
            problems.add(f"{place}: 'settings' is {settings!r}: expected settings by their keys")
            settings = {}
        blocks.append(Block(str(one.get("name", f"Block {number}")), **lists, settings=dict(settings), data=str(one.get("data", ""))))
    if len({block.slug for block in blocks}) < len(blocks):
        problems.add(f"{where}: two blocks have one name: expected each its own")
    problems.raise_if_any(where)
    return Grid(tuple(blocks), dict(published))


def of_strategies(strategies: Sequence[str]) -> Grid:
    """A table with a block for each strategy, for a recipe that names none."""
    for name in strategies:
        if name not in STRATEGIES:
            raise unknown_name("strategy", name, STRATEGIES)
    return Grid(tuple(Block(name, settings={"strategy": name}) for name in dict.fromkeys(strategies)))


def narrowed(
    grid: Grid,
    methods: Sequence[str] | None = None,
    epsilons: Sequence[float] | None = None,
    clip_norms: Sequence[float] | None = None,
    strategies: Sequence[str] | None = None,
) -> Grid:
    """Some of a table's cells. A value that none of its cells has is refused; lists that it leaves open are filled."""
    wanted = {"methods": methods, "epsilons": epsilons, "clip_norms": clip_norms}
    blocks = list(grid.blocks)
    if strategies is not None:
        known = [str(block.settings.get("strategy")) for block in blocks if "strategy" in block.settings]
        for name in strategies:
            if name not in known:
                raise unknown_name("strategy of this table", name, known)
        blocks = [block for block in blocks if block.settings.get("strategy") in strategies]
    for name, values in wanted.items():
        if values is None:
            continue
        known = list(dict.fromkeys(one for block in blocks for one in getattr(block, name)))
        absent = next((one for one in values if known and one not in known), None)
        if absent is not None:
            raise HalfmaskError(f"{absent} is not among the {name.replace('_', ' ')} of this table: it has {', '.join(map(str, known))}")
        blocks = [_with(block, name, values) for block in blocks]
    kept = tuple(block for block in blocks if not any(wanted[name] is not None and not getattr(block, name) for name in wanted))
    if not kept:
        raise HalfmaskError("no row of the table has all that was asked for: ask for less, or for another table")
    return replace(grid, blocks=kept)


def _with(block: Block, name: str, values: Sequence[Any]) -> Block:
    own: tuple[Any, ...] = getattr(block, name)
    bare = bool(block.methods) and all(method_named(one).private != "noised" for one in block.methods)
    # What is left open is filled; and rows without noise, which know neither ε nor clip norm, stay whatever is asked of others.
    kept: dict[str, Any] = {name: tuple(values) if not own or (bare and name != "methods") else tuple(one for one in own if one in values)}
    return replace(block, **kept)


def plan_block(
    block: Block, recipe: Mapping[str, Any], seeds: Sequence[int], assignments: list[str], out: Path, default: Mapping[str, Any]
) -> list[PlannedRun]:
    """The runs of a block.

    Args:
        default: `methods`, `epsilons` and `clip_norms` where the block is silent.
    """
    for assignment in assignments:
        name = assignment.partition("=")[0].strip()
        if name in block.settings:
            raise HalfmaskError(f"--set {name}=… would override what is compared: the blocks of this table differ in it")
    lists = {name: list(getattr(block, name) or default[name]) for name in _LISTS}
    cells = expand(lists["methods"], lists["epsilons"], lists["clip_norms"], seeds)
    swept = [name for name in block.settings if name in SWEPT]
    if swept:
        raise HalfmaskError(f"block '{block.name}' sets {', '.join(swept)}: expected it among methods, epsilons and clip_norms")
    return plan_sweep(nested({**nested(recipe), **block.settings}), cells, assignments, out / block.slug)


def _known(body: Mapping[str, Any], names: Sequence[str], where: str, problems: Problems) -> None:
    for name in body:
        if name not in names:
            problems.add(str(unknown_name(f"name in {where}", str(name), names)))


def _list(name: str, values: Any, where: str, problems: Problems) -> tuple[Any, ...]:
    kind: Any = _LISTS[name]
    if not isinstance(values, list) or not all(isinstance(one, kind) and not isinstance(one, bool) for one in values):
        problems.add(f"{where}: '{name}' is {values!r}: expected a list of {'names' if kind is str else 'numbers'}")
        return ()
    if kind is not str:
        return tuple(float(one) for one in values)
    for one in values:
        with problems.gathered():
            method_named(one)
    return tuple(values)
