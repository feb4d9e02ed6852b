"""What an audit found in one line: passed, failed, or measured; and what a view gave away where it was attacked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.report.audit_tables import Body, percent, summary
from halfmask.report.gather import is_own

PASSED, FAILED, MEASURED = "passed", "FAILED", "measured"
QUICK = "Made with --quick: a few people and little training, for trying the command. These are no numbers to rely on."


@dataclass(frozen=True)
class Verdict:
    """An audit in a line.

    Attributes:
        word: `passed`, `FAILED`, or `measured` for an audit that has no promise to refute.
        line: the one-line verdict.
        sure: how sure it is.
        run, date: what was audited, and when; empty where an older file does not say.
    """

    audit: str
    word: str
    line: str
    sure: str
    run: str = ""
    date: str = ""
    quick: bool = False


def verdict(body: Body) -> Verdict:
    """What an audit's file says, in a line."""
    word, line = _WORDS.get(body["audit"], _measured)(body)
    run, date = (str(body.get(name) or "") for name in ("run", "date"))
    return Verdict(str(body["audit"]), word, line, str(body["confidence"]), run, date, bool(body.get("quick")))


def audits_in(folders: Iterable[Path]) -> list[Body]:
    """The files of all audits of these folders that are for release."""
    found: dict[Path, Body] = {}
    for folder in folders:
        for path in sorted(folder.glob("audit/*.json")):
            if not is_own(path) or path.parent.is_symlink():
                continue
            try:
                body = json.loads(path.read_text())
            except ValueError:
                raise HalfmaskError(
                    f"{path} is not JSON: expected what 'halfmask audit' wrote; make the audit again, or remove it"
                ) from None
            if isinstance(body, dict) and "audit" in body and "confidence" in body and not body.get("not_for_release"):
                found[path.resolve()] = body
    return list(found.values())


def given_away(bodies: Sequence[Body], view: str, strength: str) -> list[str]:
    """How much of who people are a view gives away, by each audit of it; of other strengths where this one was not tried."""
    lines = []
    for body in (one for one in bodies if one["audit"] == "view"):
        rows = [row for row in body["rows"] if row["view"] == view]
        rows = [row for row in rows if row["strength"] == strength] or rows
        for row in rows:
            asked = int(body["pictures_to_name"])
            named = round(row["identity"]["value"] * asked)
            whose = "drawn people" if body.get("dataset", "figures") == "figures" else f"people of {body['dataset']}"
            lines.append(
                f"{view} {row['strength']}".strip() + f": an attacker who knows other views of {body['subjects']} {whose} named "
                f"{named} of {asked} pictures right, {percent(row['identity'])}; chance is {body['chance']:.1%}."
            )
    return lines


def _checked(entries: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    failed = [entry for entry in entries if not entry["passed"]]
    if failed:
        names = ", ".join(dict.fromkeys(str(entry.get("check") or entry.get("name")) for entry in failed))
        return FAILED, f"{len(failed)} of {len(entries)} checks failed: {names}"
    return PASSED, f"all {len(entries)} checks and attacks were withstood"


def _mechanism(body: Body) -> tuple[str, str]:
    return _checked([entry for method in body["methods"] for entry in (*method["attacks"], *method["checks"])])


def _checks(body: Body) -> tuple[str, str]:
    return _checked(body["checks"])


def _model(body: Body) -> tuple[str, str]:
    if body["at_chance"]:
        return PASSED, "members could not be told from strangers: chance is inside every interval"
    return FAILED, "members and strangers were told apart"


def _identity(body: Body) -> tuple[str, str]:
    memory = body["memory"]
    found = f"{100 * memory['value']:+.1f} points ({100 * memory['low']:+.1f} to {100 * memory['high']:+.1f})"
    if memory["low"] <= 0:
        return PASSED, f"no memory of members is seen: {found} beyond strangers and the public start"
    return FAILED, f"the network knows its members better than strangers, by {found}"


def _planted(body: Body) -> tuple[str, str]:
    refuted = [result for result in body["results"] if not result["withstood"]]
    if refuted:
        return FAILED, "; ".join(summary(body).failures)
    return PASSED, f"{body['planted']} planted people were looked for, and prove nothing beyond what was promised"


def _measured(body: Body) -> tuple[str, str]:
    return MEASURED, f"{len(summary(body).rows)} rows; it measures, and has no promise to refute"


_WORDS = {"mechanism": _mechanism, "loss": _checks, "masks": _checks, "model": _model, "identity": _identity, "planted": _planted}
