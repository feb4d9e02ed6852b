"""`halfmask certificate verify`, through the real command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def own(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "copy"))


def change_a_byte(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(bytes(body))


def test_a_finished_run_is_what_it_says(halfmask, trained) -> None:
    result = halfmask("certificate", "verify", trained[0])
    assert result.code == 0, result.out + result.err
    for words in ("ok     weights: SHA-256", "ok     chain:", "ok     steps:", "ok     numbers:", "ok     ε (zero-out): "):
        assert words in result.out
    assert "DIFFERS" not in result.out


def test_a_changed_byte_of_the_weights_is_seen(halfmask, own) -> None:
    change_a_byte(own / "model.safetensors")
    for more in ((), ("--weights-only",)):
        result = halfmask("certificate", "verify", own, *more)
        assert result.code == 2 and "DIFFERS weights" in result.out and "certified" in result.out


def test_for_programs(halfmask, own) -> None:
    good = halfmask("certificate", "verify", own, "--json")
    assert good.code == 0 and all(check["passed"] for check in json.loads(good.out))
    change_a_byte(own / "model.safetensors")
    bad = halfmask("certificate", "verify", own, "--json")
    assert bad.code == 2 and [check["check"] for check in json.loads(bad.out) if not check["passed"]] == ["weights"]


def test_a_model_with_its_certificate_wherever_they_lie(halfmask, own, tmp_path) -> None:
    model, paper = own.rename(tmp_path / "sent") / "model.safetensors", tmp_path / "paper.json"
    (tmp_path / "sent" / "certificate.json").rename(paper)
    assert halfmask("certificate", "verify", model, paper).code == 0
    assert "name its certificate.json too" in halfmask("certificate", "verify", model).error
    body = json.loads(paper.read_text())
    paper.write_text(json.dumps(body | {"steps": 1}))
    assert halfmask("certificate", "verify", model, paper).code == 2


def test_where_the_ledger_is_not_at_hand(halfmask, own, fresh_home) -> None:
    result = halfmask("certificate", "verify", own)
    assert result.code == 2 and "no ledger of this dataset" in result.out and "--weights-only" in result.out
    result = halfmask("certificate", "verify", own, "--weights-only")
    assert result.code == 0 and "ok     weights" in result.out and "chain" not in result.out


def test_what_is_missing_is_one_line(halfmask, own, tmp_path) -> None:
    (own / "certificate.json").write_text("{")
    assert "is not JSON" in halfmask("certificate", "verify", own).error
    (own / "certificate.json").write_text("{}")
    assert "lacks weights_sha256" in halfmask("certificate", "verify", own).error
    (own / "certificate.json").unlink()
    assert "no certificate at" in halfmask("certificate", "verify", own).error
    shutil.copy(own / "checkpoint/state.pt", tmp_path / "certificate.json")
    assert "is not JSON" in halfmask("certificate", "verify", own, tmp_path / "certificate.json").error
