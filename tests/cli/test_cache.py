"""`halfmask cache`: private copies are shown and deleted, and the memory of what was spent is not."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from halfmask.data.store import cached
from halfmask.privacy.ledger import Ledger


@pytest.fixture
def home(tmp_path: Path, shared_home: Path, trained, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the private storage of a finished run, with an audit beside it."""
    copy = Path(shutil.copytree(shared_home, tmp_path / "home"))
    monkeypatch.setenv("HALFMASK_HOME", str(copy))
    (copy / "audits" / "run").mkdir(parents=True, exist_ok=True)
    (copy / "audits" / "run" / "audit.json").write_text("{}")
    return copy


def remembered(home: Path) -> dict[str, bytes]:
    """Everything that tells what was spent, and on whom."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file() and "cache" not in path.parts}


def arrays(home: Path) -> list[Path]:
    return sorted((home / "cache").rglob("*.npy"))


def test_show_says_what_lies_where(halfmask, home) -> None:
    body = json.loads(halfmask("cache", "show", "--json").out)
    assert body["home"] == str(home)
    kinds = {kind["kind"]: kind for kind in body["kinds"]}
    assert {"records", "views", "audits", "ledgers", "key"} <= kinds.keys()
    entries = len(list((home / "cache/records").iterdir()))
    assert kinds["records"]["entries"] == entries > 0 and kinds["records"]["place"] == str(home / "cache/records")
    on_disk = sum(path.stat().st_size for path in (home / "cache/records").rglob("*.npy"))
    assert on_disk <= kinds["records"]["bytes"] < on_disk + entries * 100_000
    assert kinds["records"]["oldest"] <= kinds["records"]["newest"]
    assert not kinds["ledgers"]["can_be_cleared"] and not kinds["key"]["can_be_cleared"] and kinds["records"]["can_be_cleared"]
    shown = halfmask("cache", "show").out
    assert f"records: crops of people, private ones among them, with their joints: {home / 'cache/records'}" in shown and "never" in shown


def test_clear_deletes_arrays_and_keeps_what_was_spent(halfmask, home) -> None:
    before, spent = remembered(home), {path.stem: Ledger(path.stem).spends() for path in (home / "ledgers").glob("*.jsonl")}
    assert arrays(home) and any(name.endswith(".records") for name in before) and any(spent.values())
    result = halfmask("cache", "clear", "--yes")
    assert result.code == 0, result.err
    assert not arrays(home)
    assert [list(kind.iterdir()) for kind in (home / "cache").iterdir()] == [[]] * len(list((home / "cache").iterdir()))
    assert remembered(home) == before
    assert {name: Ledger(name).spends() for name in spent} == spent
    assert "deleted" in result.out and "MiB" in result.out
    assert "left ledgers: they are the memory of what was spent" in result.out
    assert "left key: without it" in result.out and "left audits: deleted only by name" in result.out


def test_one_kind_alone(halfmask, home) -> None:
    others = [path for path in arrays(home) if "views" not in path.parts]
    body = json.loads(halfmask("cache", "clear", "views", "--yes", "--json").out)
    assert list(body["deleted"]) == ["views"] and body["deleted"]["views"]["bytes"] > 0
    assert arrays(home) == others and body["left"]["records"] == "not asked for"
    assert halfmask("cache", "clear", "audits", "--yes").code == 0
    assert not list((home / "audits").iterdir()) and arrays(home) == others


@pytest.mark.parametrize("kind", ["ledgers", "key", "other"])
def test_what_was_spent_cannot_be_named(halfmask, home, kind) -> None:
    before = remembered(home)
    assert "are never deleted here" in halfmask("cache", "clear", kind, "--yes").error
    assert remembered(home) == before and arrays(home)


def test_unknown_kinds(halfmask, home) -> None:
    assert "did you mean 'records'?" in halfmask("cache", "clear", "record", "--yes").error
    assert "unknown kind" in halfmask("cache", "clear", "../ledgers", "--yes").error
    assert arrays(home)


def test_it_asks_first(halfmask, home, monkeypatch: pytest.MonkeyPatch) -> None:
    before = arrays(home)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert "nobody is there to be asked: add --yes" in halfmask("cache", "clear").error
    assert arrays(home) == before
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr(typer, "confirm", lambda text, err: asked.append(text) or False)
    assert "nothing was deleted" in halfmask("cache", "clear").err
    assert arrays(home) == before and "of records (" in asked[0] and "ledgers" not in asked[0]
    monkeypatch.setattr(typer, "confirm", lambda text, err: True)
    assert halfmask("cache", "clear").code == 0 and not arrays(home)


def test_stale_drafts_go_and_fresh_ones_stay(halfmask, home) -> None:
    stale, fresh = home / "cache/records/draft-stale", home / "cache/records/draft-fresh"
    for draft in (stale, fresh):
        draft.mkdir()
        (draft / "images.npy").write_bytes(bytes(5000))
    past = time.time() - 4000
    os.utime(stale / "images.npy", (past, past))
    os.utime(stale, (past, past))
    assert json.loads(halfmask("cache", "show", "--json").out)["drafts"]["entries"] == 2
    result = halfmask("cache", "clear", "views", "--yes")
    assert not stale.exists() and fresh.exists()
    assert "deleted 1 stale drafts" in result.out and "left 1 drafts" in result.out


def test_nothing_to_delete_is_no_mistake(halfmask, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "new"))
    assert json.loads(halfmask("cache", "show", "--json").out)["kinds"] == []
    result = halfmask("cache", "clear")
    assert result.code == 0 and "nothing to delete" in result.err


def test_files_that_are_not_ours_stay(halfmask, home) -> None:
    mine = [home / "cache/records/notes.records", home / "notes.txt"]
    for path in mine:
        path.write_text("mine")
    outside = home.parent / "outside"
    (outside / "folder").mkdir(parents=True)
    (home / "cache/linked").symlink_to(outside)
    (home / "cache/records/linked").symlink_to(outside)
    halfmask("cache", "clear", "--yes")
    assert all(path.read_text() == "mine" for path in mine) and (outside / "folder").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an open file may not be deletable")
def test_a_process_with_an_entry_open_goes_on_and_the_next_builds_it_anew(halfmask, home) -> None:
    held = cached("kind", "key", lambda: {"a": np.arange(50_000)})
    assert halfmask("cache", "clear", "--yes").code == 0
    assert held["a"].sum() == 49_999 * 25_000
    assert cached("kind", "key", lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]


def test_help_says_what_stays(halfmask) -> None:
    assert "Ledgers, keys" in halfmask("cache", "clear", "--help").out
