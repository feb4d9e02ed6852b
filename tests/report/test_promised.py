"""The top of a report: the promise, every ε, what is public, what is left, what attacks found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.report import write_run, write_sweep

from halfmask.report.gather import gather
from halfmask.report.promised import places_of_audits, promise, promised

VIEW = {
    "audit": "view",
    "confidence": "95 % intervals",
    "seed": 0,
    "cannot_see": [],
    "subjects": 60,
    "pictures_to_learn_from": 400,
    "pictures_to_name": 120,
    "chance": 1 / 60,
    "rows": [
        {"view": "blur", "strength": "kernel 25, sigma 10", "identity": {"value": 0.25, "low": 0.2, "high": 0.3}},
        {"view": "blur", "strength": "kernel 97, sigma 40", "identity": {"value": 0.05, "low": 0.01, "high": 0.1}},
    ],
}
BODY = {"epsilon": {"zero-out": 0.8, "replace-one": 1.38}, "adjacency": "zero-out", "unit": "crop", "delta": 1e-5}


@pytest.mark.parametrize(
    "change, words",
    [
        ({}, "about any one crop (as it was, or with its private part left out), it is at most e^0.8 = 2.23 times as likely"),
        ({"epsilon": {"zero-out": "infinity"}}, "no privacy guarantee"),
        ({"epsilon": {"zero-out": 0.0}}, "No private part of any record was read"),
        ({"statement": "rehearsal", "epsilon": {"zero-out": None}}, "Nothing is promised: this was a rehearsal"),
    ],
    ids=str,
)
def test_the_promise_is_one_sentence(change: dict, words: str) -> None:
    assert words in promise(BODY | change)


def test_without_a_certificate_nothing_is_promised() -> None:
    assert promise({}).startswith("Nothing is promised")


def test_every_epsilon_stands_under_what_is_promised(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("non-private", "public-only", "dpsgd", "feature"), (0.2, 0.8), (0.1, 1.0), ("top",), (0, 1))
    found = "\n".join(promised(gather([tmp_path]), []))
    for word in (
        "ε, add-remove",
        "ε, zero-out",
        "ε, replace-one",
        "no meaning",
        "∞",
        ">0.2<",
        ">0.8<",
        "What is public",
        "every hyper-parameter",
    ):
        assert word in found, word
    assert "is not read here" in found and "ε = 4.2" in found
    assert "Nothing here was audited" in found and "was not audited" in found


def test_noise_that_promises_nothing_is_said_before_anything_else(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="dpsgd")
    body = json.loads((folder / "certificate.json").read_text())
    (folder / "certificate.json").write_text(json.dumps(body | {"epsilon": dict.fromkeys(body["epsilon"], "infinity")}))
    found = "\n".join(promised(gather([folder]), []))
    assert "nothing is promised (ε = ∞)" in found and found.index("nothing is promised") < found.index('class="promise"')


def test_one_seed_few_test_records_and_haste_are_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", method="feature")
    log = (folder / "log.jsonl").read_text()
    (folder / "log.jsonl").write_text(log.replace('"test_records": 500', '"test_records": 60'))
    found = "\n".join(promised(gather([folder]), [VIEW | {"quick": True}]))
    assert "One seed" in found and "60 test records" in found and "--quick" in found
    assert "30 of 120 pictures right, 25.0% (20.0% to 30.0%)" in found and "kernel 97" not in found
    (folder / "log.jsonl").write_text(log)
    write_run(tmp_path / "other", method="feature", seed=1)
    calm = "\n".join(promised(gather([tmp_path]), [VIEW]))
    assert "One seed" not in calm and "test records" not in calm and "--quick" not in calm


def test_audits_are_looked_for_with_the_sweep_and_with_each_run(tmp_path: Path) -> None:
    write_sweep(tmp_path / "all" / "sweep", ("dpsgd",), (0.2,), (1.0,), ("top",))
    runs = gather([tmp_path / "all"])
    assert [place.name for place in places_of_audits([tmp_path / "all"], runs)] == ["all", "sweep", runs[0].folder.name]
    assert places_of_audits([runs[0].folder], runs) == [runs[0].folder], "nothing outside what was asked for"
