"""The statement a run ends with: complete, readable by machines and people, and never rosier than the run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from halfmask.privacy.certificate import Certificate, promise_in

CONTRACT = {
    "unit",
    "adjacency",
    "epsilon",
    "delta",
    "accountant",
    "noise_multiplier",
    "sampling_rate",
    "steps",
    "clip_norm",
    "expected_batch",
    "public_assumptions",
    "noise_source",
    "unaccounted_reads",
    "ledger_total",
    "code_version",
}
CERTIFICATE = Certificate(
    method="feature",
    unit="subject",
    units=1234,
    adjacency="zero-out",
    epsilon={"zero-out": 0.8, "replace-one": 1.38},
    delta=1e-5,
    accountant="pld",
    noise_multiplier=1.04,
    sampling_rate=0.01,
    steps=50,
    planned_steps=100,
    clip_norm=0.1,
    expected_batch=12.34,
    public_assumptions=["the blurred crop", "keypoints"],
    noise_source="aes",
    ledger_total=1.16,
    dataset_fingerprint="f" * 32,
    dataset="clinic",
    run="ab12",
    run_name="first",
    weights_sha256="c" * 64,
)


def strict(text: str) -> dict:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_the_contract_is_kept() -> None:
    assert CERTIFICATE.to_json().keys() >= CONTRACT


@pytest.mark.parametrize(
    "certificate",
    [
        CERTIFICATE,
        replace(CERTIFICATE, epsilon={"zero-out": math.inf}, ledger_total=math.inf),
        replace(CERTIFICATE, unaccounted_reads=["looked at the loss"]),
        replace(CERTIFICATE, epsilon={"zero-out": 0.0}, noise_multiplier=0.0),
    ],
)
def test_the_files_are_written_and_strict(certificate: Certificate, tmp_path: Path) -> None:
    certificate.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.json", "certificate.md"]
    assert strict((tmp_path / "certificate.json").read_text()) == certificate.to_json()
    assert (tmp_path / "certificate.md").read_text() == certificate.to_markdown()


def test_infinity_is_a_word() -> None:
    body = replace(CERTIFICATE, epsilon={"zero-out": math.inf, "replace-one": 2.0}, ledger_total=math.inf).to_json()
    assert body["epsilon"] == {"zero-out": "infinity", "replace-one": 2.0} and body["ledger_total"] == "infinity"


def test_an_unaccounted_read_voids_the_promise() -> None:
    assert CERTIFICATE.guarantee == 0.8
    void = replace(CERTIFICATE, unaccounted_reads=["validation on private people"])
    assert void.guarantee == math.inf
    assert void.to_json()["epsilon"] == {"zero-out": "infinity", "replace-one": "infinity"}
    page = void.to_markdown()
    assert "no privacy guarantee" in page and "validation on private people" in page
    assert "0.8" not in page and "1.38" not in page


def test_no_noise_is_said_plainly() -> None:
    assert "no privacy guarantee" in replace(CERTIFICATE, epsilon={"zero-out": math.inf}).to_markdown()


def test_nothing_read_is_said_plainly() -> None:
    page = replace(CERTIFICATE, epsilon={"zero-out": 0.0}).to_markdown()
    assert "without reading the private part" in page and "no privacy guarantee" not in page


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        ("add-remove", "present or absent"),
        ("zero-out", "left out"),
        ("replace-one", "exchanged for any other"),
    ],
)
@pytest.mark.parametrize("unit", ["crop", "image", "subject"])
def test_the_promise_names_unit_and_adjacency(adjacency: str, words: str, unit: str) -> None:
    page = replace(CERTIFICATE, unit=unit, adjacency=adjacency, epsilon={adjacency: 0.8}).to_markdown()
    promise = promise_in(page)
    assert f"one {unit}" in promise and words in promise and "e^0.8" in promise and "1e-05" in promise
    assert f"| adjacency | {adjacency} |" in page and f"one {unit} (of 1,234)" in page


def test_the_page_lists_what_is_public_and_that_nothing_else_was_read() -> None:
    page = CERTIFICATE.to_markdown()
    assert "- the blurred crop\n- keypoints" in page
    assert page.rstrip().endswith("None.")
    assert "ε (replace-one) | 1.38" in page and "50 of 100 planned" in page


def test_what_is_not_protected_comes_first_and_words_are_explained() -> None:
    page = replace(CERTIFICATE, unit="crop", already_public=["ψ of every record: a blur"], cautions=["δ is large"]).to_markdown()
    order = [
        "# Privacy certificate",
        "## What is not protected",
        "- the blurred crop",
        "- for good, since an earlier run on these people: ψ of every record: a blur",
        "- somebody who has several crops, as a person",
        "- what holds of people in general",
        "**Caution:**",
        "- δ is large",
        "## What is promised",
        "Take any one crop",
        "| | |",
        "as if all had been fixed in advance",
        "## What the words mean",
        *(f"- **{word}**: " for word in ("ε (epsilon)", "δ (delta)", "zero-out", "ψ (psi)", "S_pub", "C", "q", "σ (sigma)")),
        "- **as if all had been fixed in advance**: ",
        "## Reads of private data outside the mechanism",
    ]
    places = [page.index(words) for words in order]
    assert places == sorted(places)
    words = page.partition("## What the words mean")[2].partition("\n## ")[0]
    assert all(line.startswith("- **") for line in words.strip().splitlines()), "a line each"
    # ψ and S_pub are said not to be used where nothing of the kind is public.
    assert words.count("(Not used by this method.)") == 2
    used = replace(CERTIFICATE, public_assumptions=["ψ of every private record: a blur", "S_pub: 100 records"]).to_markdown()
    assert "(Not used by this method.)" not in used
    assert "as a person" not in replace(CERTIFICATE, unit="patient").to_markdown()


def test_nothing_is_protected_where_there_is_no_bound() -> None:
    for void in (replace(CERTIFICATE, epsilon={"zero-out": math.inf}), replace(CERTIFICATE, statement="rehearsal")):
        page = void.to_markdown()
        assert "Nothing and nobody is protected by this statement" in page and "All of this is taken to be known" not in page


def test_the_promise_is_found_in_pages_of_any_version() -> None:
    assert promise_in(CERTIFICATE.to_markdown()).startswith("Take any one subject")
    assert promise_in("# Privacy certificate\n\nTake any one crop.\n\n| | |\n") == "Take any one crop."


def test_articles() -> None:
    page = replace(CERTIFICATE, unit="image", finer={"crop": 1.0}).to_markdown()
    assert "ε to one crop of an image | 1" in page and "a image" not in page


def test_the_promise_is_about_its_own_adjacency() -> None:
    assert replace(CERTIFICATE, adjacency="replace-one").guarantee == 1.38
