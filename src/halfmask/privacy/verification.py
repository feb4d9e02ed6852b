"""Holding a certificate against what it certifies: the weights, the ledger, and the ledger's chain."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.account import account_of
from halfmask.privacy.accounting import epsilon
from halfmask.privacy.adjacency import Adjacency
from halfmask.privacy.ledger import Ledger
from halfmask.privacy.spends import Spend, epsilon_in_turn, plans_of

# Written with all its digits, so what differs by more was changed.
_SAME = 1e-9


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    check: str
    passed: bool
    found: str


def verify_certificate(model: Path, certificate: Path, weights_only: bool = False) -> list[Check]:
    """Everything that can be checked of a certificate; nothing is taken on trust but the accountant."""
    body = _read(certificate)
    checks = [_weights(model, body)]
    if not weights_only:
        checks += _ledger(body)
    return checks


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text())
    except FileNotFoundError:
        raise HalfmaskError(f"no certificate at {path}: a run that is going on, or was stopped before its end, has none") from None
    except ValueError:
        raise HalfmaskError(f"{path} is not JSON: expected the certificate.json that a run wrote") from None
    wanted = (
        "weights_sha256",
        "dataset_fingerprint",
        "run",
        "epsilon",
        "steps",
        "ledger_lines",
        "ledger_hash",
        "statement",
        "composed_with",
        "date",
    )
    missing = [name for name in wanted if not isinstance(body, dict) or name not in body]
    if missing:
        raise HalfmaskError(f"{path} lacks {', '.join(missing)}: expected the certificate.json that a run wrote, of this version")
    return dict(body)


def _weights(model: Path, body: dict[str, Any]) -> Check:
    if not model.is_file():
        raise HalfmaskError(f"no weights at {model}: give the folder of a run, or the model file that the certificate is about")
    found = hashlib.sha256(model.read_bytes()).hexdigest()
    same = found == body["weights_sha256"]
    return Check("weights", same, f"SHA-256 {found[:16]}…" if same else f"SHA-256 {found[:16]}…, certified {body['weights_sha256'][:16]}…")


def _ledger(body: dict[str, Any]) -> list[Check]:
    if int(body["ledger_lines"]) < 1:
        return [Check("ledger", False, "it names no line of a ledger, and every run writes some before it begins")]
    ledger = Ledger(str(body["dataset_fingerprint"]))
    try:
        count = ledger.verify()
        lines = ledger.lines()
    except HalfmaskError as error:
        return [Check("chain", False, str(error))]
    if not count:
        return [Check("ledger", False, "there is no ledger of this dataset in $HALFMASK_HOME: verify where it is, or add --weights-only")]
    place = int(body["ledger_lines"])
    same = count >= place and lines[place - 1]["hash"] == body["ledger_hash"]
    found = (
        f"{count} lines, intact" if same else f"{count} lines, and not those that were certified ({place}): it was cut back or exchanged"
    )
    checks = [Check("chain", same, found)]
    own = [Spend.from_json(line) for line in lines[:place] if line["kind"] == "spend" and line["run"] == body["run"]]
    later = [line for line in lines[place:] if line.get("run") == body["run"] and line["kind"] == "spend"]
    checks.append(Check("steps", not later, f"{len(later)} later payments by this run" if later else "none was paid for later"))
    checks.append(_released(lines[:place], bool(own), body))
    return checks + _numbers(own, body) + _headline(ledger, own, lines[:place], body)


def _headline(ledger: Ledger, own: list[Spend], lines: list[dict[str, Any]], body: dict[str, Any]) -> list[Check]:
    """Where the weights go on from those of earlier runs: ε of all of them together, which is what the certificate begins with."""
    known = {run for line in lines if line["kind"] == "model" and line["run"] == body["run"] for run in line["behind"]} - {body["run"]}
    named = set(body["composed_with"])
    if body["statement"] == "rehearsal" or not (known or named):
        return []
    account = account_of(ledger)
    books = [lines, *(other.lines() for other in (account.related() if account else []))]
    # A run behind this one may have gone on since, into weights that these do not come from.
    before = [line for book in books for line in book if line["kind"] == "spend" and line["time"] <= body["date"]]
    behind = [Spend.from_json(line) for line in before if line["run"] in known | named and line["run"] != body["run"]]
    if not {spend.run for spend in behind} <= named:
        return [Check("runs behind", False, "the weights come from more runs on these people than it names")]
    found = []
    for name, claimed in body["epsilon"].items():
        stated = math.inf if claimed == "infinity" else float(claimed or 0)
        bound = epsilon_in_turn([*behind, *own], str(body["unit"]), float(body["delta"]), Adjacency(name))
        fits = stated >= bound * (1 - _SAME)
        cost = f"{stated:.4g} is stated, and with the runs behind it the ledger's steps cost {bound:.4g}"
        found.append(Check(f"ε with the runs behind ({name})", fits, f"{stated:.4g}" if fits else cost))
    return found


def _released(lines: list[dict[str, Any]], spent: bool, body: dict[str, Any]) -> Check:
    """Whether the ledger knows these weights as that run's: a digest in a certificate is only as good as the hand that wrote it."""
    runs = {line["run"] for line in lines if line["kind"] == "model" and line["weights_sha256"] == body["weights_sha256"]}
    if runs - {body["run"]}:
        return Check("released", False, "the ledger knows these weights as another run's")
    known = bool(runs) or not spent
    return Check("released", known, "by this run" if known else "the ledger does not know these weights as this run's")


def _numbers(own: list[Spend], body: dict[str, Any]) -> list[Check]:
    if not own:
        # A run that ended before its first step has read nothing, and says so.
        read = body["statement"] == "certificate" and body["noise_multiplier"] != 0 and body["steps"] != 0
        return [Check("numbers", not read, "the ledger has no step of this run" if read else "nothing private was read")]
    if body["statement"] != "certificate":
        return [Check("numbers", False, f"it is called a {body['statement']}, and the ledger has steps of this run on private people")]
    told = {name: body[name] for name in ("steps", "sampling_rate", "noise_multiplier", "unit", "units", "visible_batches")}
    last = own[-1]
    kept = {"steps": sum(spend.steps for spend in own)} | {name: getattr(last, name) for name in told if name != "steps"}
    wrong = sorted(name for name in told if told[name] != kept[name])
    checks = [
        Check("numbers", not wrong, f"{', '.join(wrong)} are not the ledger's" if wrong else "steps, q, σ, unit and N are the ledger's")
    ]
    # Where there are runs behind this one, `epsilon` is that of all together: see `_headline`.
    for name, claimed in (body["own_epsilon"] if body["composed_with"] and body["own_epsilon"] else body["epsilon"]).items():
        stated = math.inf if claimed == "infinity" else float(claimed)
        bound = math.inf
        if not any(spend.unbounded for spend in own):
            accountant = body["accountant"] if body["accountant"] in ("pld", "rdp") else "pld"
            bound = epsilon(plans_of(own, Adjacency(name)), float(body["delta"]), accountant)
        fits = stated >= bound * (1 - _SAME)
        checks.append(
            Check(f"ε ({name})", fits, f"{stated:.4g}" if fits else f"{stated:.4g} is stated, and the ledger's steps cost {bound:.4g}")
        )
    return checks
