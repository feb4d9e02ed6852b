"""What an audit found as one table and a few sentences: the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfmask.report.tradeoff_tables import facts, places_table

Body = Mapping[str, Any]
Row = Sequence[str]


@dataclass(frozen=True)
class Summary:
    """An audit in short.

    Attributes:
        lines: what to read before the table.
        failures: what refutes a promise; nothing, if all is well.
    """

    head: Row
    rows: Sequence[Row]
    lines: list[str]
    failures: list[str]


def summary(body: Body) -> Summary:
    """The audit's file in short."""
    return _MAKERS[body["audit"]](body)


def _mechanism(body: Body) -> Summary:
    rows, failures = [], []
    for method in body["methods"]:
        entries = [*method["attacks"], *method["checks"]]
        passed = f"{sum(entry['passed'] for entry in entries)} of {len(entries)}"
        rows.append((method["method"], f"{method['epsilon_claimed']:g}", f"{method['lower_bound']:.2f}", passed, word(method)))
        for attack in method["attacks"]:
            if not attack["passed"]:
                said = attack["refused"] or f"proves ε ≥ {attack['lower_bound']:.2f}"
                failures.append(f"{method['method']}: {attack['name']}: {said}")
        for check in method["checks"]:
            if not check["passed"]:
                failures.append(f"{method['method']}: {check['check']}: {check['found']}; expected {check['expected']}")
    lines = [
        f"Claimed: ε = {body['epsilon_claimed']:g} at δ = {body['delta']:g}. A lower bound above the claim, or one failed check, refutes "
        f"it. No attack of this size can prove more than {body['largest_provable']:g}."
    ]
    if body.get("settings"):
        lines.append(f"With {', '.join(body['settings'])}.")
    return Summary(("method", "ε claimed", "proven at least", "passed", "result"), rows, lines, failures)


def _loss(body: Body) -> Summary:
    rows = [(check["check"], check["found"], check["expected"], word(check)) for check in body["checks"]]
    failures = [f"{check['check']}: {check['found']}; expected {check['expected']}" for check in body["checks"] if not check["passed"]]
    lines = [
        f"The loss and network of task '{body['task']}', {body['trained_numbers']:,} numbers, by the {body['path']} path: real steps on "
        "noise in the shape of its records. One failed check refutes the promise."
    ]
    return Summary(("check", "found", "expected", "result"), rows, lines, failures)


def _masks(body: Body) -> Summary:
    rows = [(check["check"], check["found"], check["expected"], word(check)) for check in body["checks"]]
    failures = [f"{check['check']}: {check['found']}; expected {check['expected']}" for check in body["checks"] if not check["passed"]]
    lines = [
        f"Method '{body['method']}' of task '{body['task']}', which protects {body['protects']}: clips of noise with masks, from stored "
        "pixels to the gradient. What must not change must not change by one bit."
    ]
    return Summary(("check", "found", "expected", "result"), rows, lines, failures)


def _model(body: Body) -> Summary:
    rows = []
    for result in body["results"]:
        for attack, found in result["attacks"].items():
            rates = {name: found[name] for name in found if name.startswith("tpr@")}
            caught = "; ".join(f"{percent(value)} at {float(name[4:]):.1%} false alarms" for name, value in rates.items())
            rows.append((result["model"], attack, interval(found["auc"]), caught or "too few strangers"))
    verdict = "Chance is inside every interval of this run." if body["at_chance"] else "Members and strangers of this run are told apart."
    lines = [f"{_promise(body)} {verdict}"]
    if body.get("views_alone"):
        lines.append(
            "The method does not protect views and labels: a model that read nothing else is attacked by loss with an AUC of "
            f"{interval(body['views_alone'])}."
        )
    lines += ["Chance is an AUC of 0.5, and as many caught as falsely accused."]
    return Summary(("model", "attack", "AUC (95 %)", "members caught (95 %)"), rows, lines, [])


def _identity(body: Body) -> Summary:
    rows = [(result["model"], percent(result["members"]), percent(result["strangers"])) for result in body["results"]]
    memory = body["memory"]
    found = f"{100 * memory['value']:+.1f} points ({100 * memory['low']:+.1f} to {100 * memory['high']:+.1f})"
    verdict = "no memory is seen" if memory["low"] <= 0 else "the network knows its members better than strangers"
    lines = [
        f"{_promise(body)} Photographs of {body['people']} people of each group, named by their nearest neighbour; chance is "
        f"{body['chance']:.1%}.",
        f"Members beyond strangers, beyond the public start: {found}: {verdict}.",
    ]
    return Summary(("features of", "members named (95 %)", "strangers named (95 %)"), rows, lines, [])


def _planted(body: Body) -> Summary:
    rows, failures = [], []
    for result in body["results"]:
        claim = result["epsilon_claimed"]
        for attack, found in result["attacks"].items():
            right = f"{found['right']} of {found['guesses']}"
            named = "∞" if claim is None else f"{claim:g}"
            rows.append((result["model"], named, attack, interval(found["auc"]), right, f"{found['lower_bound']:.2f}"))
        if not result["withstood"]:
            failures.append(f"{result['model']}: ε = {claim:g} was claimed, and the planted prove at least {result['lower_bound']:.2f}")
    planted = body.get("planted_are", "people with another's joints")
    lines = [
        f"{_promise(body)} {body['planted']} {planted} were planted among {body['members']} by fair coins "
        f"({body['present']} are in), and the recipe was trained anew.",
        f"Chance is an AUC of 0.5 and half of the guesses right. {body['guesses']} guesses prove at most {body['largest_provable']:g}.",
    ]
    return Summary(("model", "ε claimed", "attack", "AUC (95 %)", "guessed right", "proven at least"), rows, lines, failures)


def _inversion(body: Body) -> Summary:
    rows = []
    for column in body["columns"]:
        control = column["without_the_person"]
        beside = "—" if control is None else f"{control['psnr']:.1f} dB, {control['ssim']:.3f}"
        rows.append((column["release"], f"{column['psnr']:.1f} dB", f"{column['ssim']:.3f}", beside))
    lines = [f"Network: {body['network']}. One step on one person; δ = {body['delta']:g}."]
    return Summary(("release", "PSNR", "SSIM", "the same without the person"), rows, lines, [])


def _view(body: Body) -> Summary:
    rows = []
    for row in body["rows"]:
        before, after = row.get("view_itself"), row.get("restored")
        psnr = f"{before['psnr']:.1f} → {after['psnr']:.1f}{_spread(after, 'psnr', '.1f')} dB" if before and after else "—"
        ssim = f"{before['ssim']:.3f} → {after['ssim']:.3f}{_spread(after, 'ssim', '.3f')}" if before and after else "—"
        pose = f"{row['pose']['pckh@0.5']:.1f}{_spread(row['pose'], 'pckh@0.5', '.1f')}" if "pose" in row else "—"
        who = percent(row["identity"]) + _spread(row["identity"], "value", ".1%")
        rows.append((f"{row['view']} {row['strength']}".strip(), who, psnr, ssim, pose))
    lines = [
        f"{body['pictures_to_name']} pictures of {body['subjects']} people, named by a network that learnt from "
        f"{body['pictures_to_learn_from']} others; chance is {body['chance']:.1%}. Restored: from the view to a network's guess."
    ]
    if body.get("runs", 1) > 1:
        lines.append(f"Means over {body['runs']} trainings of each network; ± is the standard deviation over them.")
    return Summary(("view", "named right (95 %)", "PSNR", "SSIM", "PCKh@0.5 on views"), rows, lines, [])


def _tradeoff(body: Body) -> Summary:
    head, rows = places_table(body)
    return Summary(head, rows, facts(body), [])


_MAKERS: dict[str, Callable[[Body], Summary]] = {
    "mechanism": _mechanism,
    "loss": _loss,
    "masks": _masks,
    "model": _model,
    "identity": _identity,
    "planted": _planted,
    "inversion": _inversion,
    "view": _view,
    "tradeoff": _tradeoff,
}


def _promise(body: Body) -> str:
    claim = body["epsilon_claimed"]
    return f"Promised: ε = {claim:g} at δ = {body['delta']:g}." if claim else "Promised: nothing by noise."


def _spread(body: Body, name: str, form: str) -> str:
    """How far repetitions of a number lie apart, if there were any."""
    return f" ± {body['spread'][name]:{form}}" if "spread" in body else ""


def word(entry: Body) -> str:
    """Whether a check passed."""
    return "pass" if entry["passed"] else "FAIL"


def interval(value: Body) -> str:
    """A number with its interval."""
    return f"{value['value']:.3f} ({value['low']:.3f} to {value['high']:.3f})"


def percent(value: Body) -> str:
    """A share with its interval."""
    return f"{value['value']:.1%} ({value['low']:.1%} to {value['high']:.1%})"
