from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halfmask.serve.folder import ServedFolder
from halfmask.serve.live import Watch
from halfmask.serve.report import Report


def report_of(root: Path) -> Report:
    folder = ServedFolder(root)
    return Report(folder, Watch(folder))


def test_it_is_made_again_only_when_something_has_changed(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "runs" / "one", ended=False)
    report = report_of(tmp_path / "runs")
    first, main = report.page(), report.main()
    assert report.page() is first and report.main()["main"] is main["main"]
    run.log("epoch", step=8, epoch=2.0, public_loss=5.1, epsilon=0.5, learning_rate=0.1)
    assert report.page() is not first
    assert report.main()["version"] != main["version"] and report.main()["version"] in report.page()


def test_private_storage_is_not_touched(tmp_path: Path, make_run: Callable[..., Any], serve: Callable[..., Any], fresh_home: Path) -> None:
    """A report made on the command line looks into ledgers; what is served does not, nor does a model that looks at a picture."""
    make_run(tmp_path / "runs" / "one")
    with serve(tmp_path / "runs") as client:
        for path in ("/", "/api/report", "/api/live", "/look"):
            assert client.get(path).status == 200
    assert not fresh_home.exists()


def test_a_broken_run_does_not_end_the_server(tmp_path: Path, make_run: Callable[..., Any], serve: Callable[..., Any]) -> None:
    run = make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "runs" / "two", ended=False)
    (run.path / "metrics.json").write_text("nonsense")
    with serve(tmp_path / "runs") as client:
        page = client.get("/")
        assert page.status == 200 and "Nothing to report yet" in page.body.decode() and "leave the folder out" in page.body.decode()
        assert "leave the folder out" in client.get("/api/report").json()["main"]
        assert [one["name"] for one in client.get("/api/live").json()["runs"]] == ["one", "two"]


def test_a_fault_of_ours_does_not_end_the_server(
    tmp_path: Path, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise KeyError("epsilon")

    monkeypatch.setattr("halfmask.report.build.report_page", fails)
    make_run(tmp_path / "runs" / "one")
    assert "could not be made (KeyError)" in report_of(tmp_path / "runs").page()
    assert "Traceback" in capfd.readouterr().err


def test_only_runs_are_looked_at_where_a_link_leads_out(tmp_path: Path, make_run: Callable[..., Any]) -> None:
    make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "runs" / "two")
    report = report_of(tmp_path / "runs")
    assert report._folders() == [(tmp_path / "runs").resolve()]
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "runs" / "audit").mkdir()
    (tmp_path / "runs" / "audit" / "model.json").symlink_to(tmp_path / "secret.json")
    assert [path.name for path in report._folders()] == ["one", "two"]


def test_only_runs_are_looked_at_beside_private_storage(
    tmp_path: Path, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "runs" / "one")
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / "runs" / "home"))
    assert [path.name for path in report_of(tmp_path / "runs")._folders()] == ["one"]
