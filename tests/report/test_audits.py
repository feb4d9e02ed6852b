"""Audits for reading: what was found, how sure it is, what it cannot see; and nothing about private people on a page for others."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np

from halfmask.report.audits import audit_section, audit_sections, pose_against_identity, write_audit

RATE = {"value": 0.25, "low": 0.2, "high": 0.3}
NOTES = {"confidence": "95 % intervals", "seed": 3, "cannot_see": ["<everything> else"]}
MODEL: dict[str, Any] = NOTES | {
    "audit": "model",
    "epsilon_claimed": 0.8,
    "delta": 1e-5,
    "at_chance": False,
    "results": [{"model": "this run: <b>", "attacks": {"loss": {"auc": RATE, "tpr@0.01": RATE}}}],
    "not_for_release": None,
}
VIEW: dict[str, Any] = NOTES | {
    "audit": "view",
    "subjects": 60,
    "pictures_to_learn_from": 400,
    "pictures_to_name": 120,
    "chance": 1 / 60,
    "rows": [
        {"view": "none", "strength": "", "identity": RATE},
        {"view": "blur", "strength": "kernel 25", "identity": RATE, "pose": {"pckh@0.5": 26.9, "people": 100}}
        | {"view_itself": {"psnr": 27.4, "ssim": 0.71}, "restored": {"psnr": 29.1, "ssim": 0.78}},
    ],
}
PLANTED: dict[str, Any] = NOTES | {
    "audit": "planted",
    "epsilon_claimed": 0.8,
    "delta": 1e-5,
    "members": 200,
    "planted": 100,
    "present": 47,
    "guesses": 50,
    "largest_provable": 2.6,
    "results": [
        {"model": "projected", "epsilon_claimed": 0.8, "lower_bound": 1.25, "withstood": False}
        | {"attacks": {"weights": {"auc": RATE, "right": 48, "guesses": 50, "lower_bound": 1.25}}}
    ],
}
CHECK = {"check": "noise-variance", "passed": False, "found": "0.06", "expected": "0.99 to 1.01", "sees": "noise"}
MECHANISM: dict[str, Any] = NOTES | {
    "audit": "mechanism",
    "epsilon_claimed": 1.0,
    "delta": 1e-6,
    "largest_provable": 3.3,
    "methods": [
        {"method": "dpsgd", "epsilon_claimed": 1.0, "lower_bound": 3.3, "passed": False, "checks": [CHECK]}
        | {"attacks": [{"name": "one step", "right": 200, "guesses": 200, "lower_bound": 3.3, "refused": "", "passed": False}]}
    ],
}


def test_sections_say_what_was_found_and_what_not() -> None:
    for body, words in (
        (MODEL, ["0.250 (0.200 to 0.300)", "25.0% (20.0% to 30.0%) at 1.0% false alarms", "told apart", "ε = 0.8"]),
        (MODEL | {"views_alone": RATE}, ["read nothing else is attacked by loss with an AUC of 0.250 (0.200 to 0.300)"]),
        (VIEW, ["blur kernel 25", "27.4 → 29.1 dB", "26.9", "chance is 1.7%"]),
        (MECHANISM, ["FAIL", "3.30", "noise-variance", "200 of 200 guesses right"]),
        (MECHANISM | {"settings": ["private.residual=true"]}, ["With private.residual=true"]),
        (PLANTED, ["48 of 50", "0.250 (0.200 to 0.300)", "47 are in", "FAIL", "prove at least 1.25"]),
    ):
        section = "\n".join(audit_section(body))
        for word in (*words, "95 % intervals", "Seed 3", "&lt;everything&gt; else"):
            assert word in section, word
        assert "<b>" not in section and "<everything>" not in section


def test_what_is_not_for_release_stays_on_its_own_page(tmp_path: Path) -> None:
    page = write_audit(tmp_path, MODEL | {"not_for_release": "about private people"})
    assert "Not for release" in page.read_text()
    assert audit_sections(tmp_path) == []
    assert stat.S_IMODE((tmp_path / "model.json").stat().st_mode) == 0o600 == stat.S_IMODE(page.stat().st_mode)


def test_a_page_with_private_findings_is_closed_whoever_wrote_it_before_or_after(tmp_path: Path) -> None:
    page = write_audit(tmp_path, MECHANISM)
    assert stat.S_IMODE(page.stat().st_mode) & 0o044
    for body in (MODEL | {"not_for_release": "about private people"}, VIEW):
        write_audit(tmp_path, body)
        assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_repetitions_show_their_spread() -> None:
    row = VIEW["rows"][1] | {"identity": RATE | {"spread": {"value": 0.021}}}
    section = "\n".join(audit_section(VIEW | {"runs": 3, "rows": [row]}))
    assert "25.0% (20.0% to 30.0%) ± 2.1%" in section and "Means over 3 trainings" in section


def test_a_page_gathers_the_audits_of_its_folder(tmp_path: Path) -> None:
    write_audit(tmp_path, VIEW, pose_against_identity(VIEW))
    page = write_audit(tmp_path, MECHANISM)
    text = page.read_text()
    assert text.index("Audit of the mechanism") < text.index("Audit of the view") and "data:image/png" in text
    written = json.loads((tmp_path / "view.json").read_text())
    assert written.pop("date").startswith("20") and written == json.loads(json.dumps(VIEW))
    assert len(audit_sections(tmp_path)) > 4 and audit_sections(tmp_path / "nowhere") == []


def test_the_chart_needs_the_pose() -> None:
    chart = pose_against_identity(VIEW)
    assert chart is not None and chart.dtype == np.uint8 and (chart != 255).any()
    assert pose_against_identity(VIEW | {"rows": VIEW["rows"][:1]}) is None


def test_a_section_opens_with_run_date_and_verdict_and_haste_has_a_banner(tmp_path: Path) -> None:
    opening = "\n".join(audit_section(MODEL | {"run": "runs/<first>", "date": "2026-01-02"})[:2])
    assert "runs/&lt;first&gt;, 2026-01-02: FAILED." in opening and "members and strangers were told apart" in opening
    assert "views of drawn people" in audit_section(VIEW)[1] and "--quick" not in "".join(audit_section(VIEW))
    hasty = audit_section(VIEW | {"quick": True})
    assert "--quick" in hasty[1] and 'class="remark"' in hasty[1]


def test_the_page_of_audits_is_as_wide_as_a_phone(tmp_path: Path, open_page: Any) -> None:
    write_audit(tmp_path, VIEW | {"quick": True}, pose_against_identity(VIEW))
    page = open_page(write_audit(tmp_path, MECHANISM), 390)
    assert page.sideways == 0 and page.problems == []
