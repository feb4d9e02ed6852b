from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.errors import HalfmaskError
from halfmask.serve.answers import Refused
from halfmask.serve.folder import ServedFolder


def a_run(path: Path, body: str = "method: dpsgd\n") -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(body)
    (path / "metrics.json").write_text("{}")
    return path


def test_runs_are_named_by_their_place(tmp_path: Path) -> None:
    for name in ("b", "sweep/runs/one", "sweep/runs/two", "a"):
        a_run(tmp_path / "runs" / name)
    (tmp_path / "runs" / "empty").mkdir()
    assert list(ServedFolder(tmp_path / "runs").runs()) == ["a", "b", "sweep/runs/one", "sweep/runs/two"]


def test_one_run_can_be_served_itself(tmp_path: Path) -> None:
    folder = ServedFolder(a_run(tmp_path / "alone"))
    assert list(folder.runs()) == ["alone"]
    assert folder.read("metrics.json") == (b"{}", "application/json")


def test_tables_of_a_comparison_can_be_read(tmp_path: Path) -> None:
    a_run(tmp_path / "sweep" / "runs" / "one")
    (tmp_path / "sweep" / "results.csv").write_text("a,b")
    folder = ServedFolder(tmp_path)
    with pytest.raises(Refused):
        folder.read("sweep/results.csv")
    (tmp_path / "sweep" / "results.json").write_text("{}")
    assert folder.read("sweep/results.csv")[0] == b"a,b"


def test_a_link_inside_the_folder_may_be_followed_to_a_file_of_the_same_name(tmp_path: Path) -> None:
    one, two = a_run(tmp_path / "runs" / "one"), a_run(tmp_path / "runs" / "two")
    (two / "metrics.json").unlink()
    (two / "metrics.json").symlink_to(one / "metrics.json")
    (one / "unsafe_diagnostics.jsonl").write_text("{}")
    (one / "log.jsonl").symlink_to(one / "unsafe_diagnostics.jsonl")
    folder = ServedFolder(tmp_path / "runs")
    assert list(folder.runs()) == ["one", "two"] and folder.read("two/metrics.json")[0] == b"{}"
    with pytest.raises(Refused):
        folder.read("one/log.jsonl")


def test_private_storage_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "runs" / "home"
    monkeypatch.setenv("HALFMASK_HOME", str(home))
    kept = a_run(home / "ledgers")
    run = a_run(tmp_path / "runs" / "one")
    folder = ServedFolder(tmp_path / "runs")
    assert list(folder.runs()) == ["one"]
    with pytest.raises(Refused):
        folder.read("home/ledgers/metrics.json")
    (run / "metrics.json").unlink()
    (run / "metrics.json").symlink_to(kept / "metrics.json")
    assert folder.scan() == ({}, ["one"])
    with pytest.raises(Refused):
        folder.read("one/metrics.json")
    for place in (home, home / "ledgers"):
        with pytest.raises(HalfmaskError, match="private storage"):
            ServedFolder(place)


def test_to_keep_away_from_private_storage_makes_none(tmp_path: Path, fresh_home: Path) -> None:
    a_run(tmp_path / "runs" / "one")
    ServedFolder(tmp_path / "runs").scan()
    assert not fresh_home.exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HalfmaskError, match="no folder at"):
        ServedFolder(tmp_path / "runs")


def test_a_large_file_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ServedFolder(a_run(tmp_path / "one"))
    monkeypatch.setattr("halfmask.serve.folder._LARGEST", 1)
    with pytest.raises(Refused) as refused:
        folder.read("metrics.json")
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "name", ["/etc/passwd.json", "../one/metrics.json", "metrics.json\0", "metrics", "", "model.safetensors", "a/../metrics.json"]
)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused):
        ServedFolder(a_run(tmp_path / "one")).read(name)


def test_what_a_run_keeps_to_itself_is_not_its_to_show(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    """Every file that a run writes is released, or cannot be read here."""
    path = make_run(tmp_path / "run").path
    make_run(tmp_path / "other").log_unsafe(private_loss=1.0)
    folder = ServedFolder(tmp_path)
    for file in (tmp_path / "other").rglob("*"):
        name = file.relative_to(tmp_path).as_posix()
        if file.name in ("config.yaml", "log.jsonl", "metrics.json", "certificate.json", "certificate.md"):
            assert folder.read(name)[0] == file.read_bytes()
        else:
            with pytest.raises(Refused):
                folder.read(name)
    assert path.is_dir()
