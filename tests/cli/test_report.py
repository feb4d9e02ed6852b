"""`halfmask report` and `halfmask certificate pdf`, through the real command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def test_a_page_of_a_run(halfmask, trained, tmp_path) -> None:
    out = tmp_path / "pages" / "report.html"
    result = halfmask("report", trained[0], "--out", out, "--pictures", 1)
    assert result.code == 0, result.err
    assert f"page: {out} (1 run, " in result.out.replace("\n", " ")
    page = out.read_text()
    for word in ("feature-projective: pose on figures", "What is promised", "data:image/webp", "raw", "public view (blur)", "One seed"):
        assert word in page, word
    assert "Everything ever run on these people" in page, "the ledger is at hand"
    again = halfmask("report", trained[0], "--out", out)
    assert "is there already" in again.error and out.read_text() == page
    assert "is a folder" in halfmask("report", trained[0], "--out", tmp_path).error


def test_a_page_is_written_where_the_data_is_not(halfmask, trained, tmp_path) -> None:
    run = Path(shutil.copytree(trained[0], tmp_path / "run"))
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("name: figures", f"name: {tmp_path / 'gone'}"))
    result = halfmask("report", run, "--out", tmp_path / "report.html")
    assert result.code == 0 and "without pictures" in result.err
    assert "data:image/webp" not in (tmp_path / "report.html").read_text()


def test_mistakes(halfmask, tmp_path) -> None:
    assert "no folder at" in halfmask("report", tmp_path / "nowhere", "--out", tmp_path / "a.html").error
    (tmp_path / "empty").mkdir()
    assert "there is no run in" in halfmask("report", tmp_path / "empty", "--out", tmp_path / "a.html").error
    assert not (tmp_path / "a.html").exists()


def test_a_certificate_for_paper(halfmask, trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("halfmask.report.certificate_page.shutil.which", lambda name: None)
    out = tmp_path / "paper.pdf"
    result = halfmask("certificate", "pdf", trained[0], "--out", out)
    assert result.code == 0 and (tmp_path / "paper.html").is_file()
    digest = json.loads((trained[0] / "certificate.json").read_text())["weights_sha256"]
    assert digest in (tmp_path / "paper.html").read_text()
    assert "is there already" in halfmask("certificate", "pdf", trained[0], "--out", out).error
    assert halfmask("certificate", "pdf", trained[0], "--out", out, "--force").code == 0
