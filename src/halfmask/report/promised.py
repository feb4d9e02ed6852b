"""The top of a report: what is promised in one sentence, ε under every adjacency, what is public, what is left, and what attacks found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.privacy.adjacency import Adjacency
from halfmask.report.audit_tables import Body
from halfmask.report.gather import DONE, NOTHING, OWN_VIEWS, STOPPED, TRAINING, ReportRun
from halfmask.report.markup import folded, listed, strong, table, text
from halfmask.report.remainder import number, told
from halfmask.report.verdicts import QUICK, Verdict, given_away, verdict
from halfmask.views import make_view

_CHANGES = {
    "add-remove": "present or absent",
    "zero-out": "as it was, or with its private part left out",
    "replace-one": "as it was, or with its private part exchanged for any other",
}
# The one that certificates are made for by default first: on a phone it is seen without scrolling.
_ADJACENCIES = (Adjacency.ZERO_OUT.value, Adjacency.REPLACE_ONE.value, Adjacency.ADD_REMOVE.value)
# With fewer test records than this a page says that there are few.
FEW = 200


def promise(certificate: Mapping[str, Any]) -> str:
    """What a certificate promises, in one sentence."""
    if not certificate:
        return "Nothing is promised yet: there is no certificate."
    if certificate.get("statement") == "rehearsal":
        return "Nothing is promised: this was a rehearsal, with public views in the place of private images."
    epsilon = certificate["epsilon"].get(certificate["adjacency"])
    if epsilon is None or epsilon == "infinity":
        return "This model carries no privacy guarantee (ε = ∞): handle it like the private data itself."
    if float(epsilon) == 0:
        return "No private part of any record was read: the model reveals nothing about it beyond what is assumed public."
    factor = math.exp(min(float(epsilon), 50))
    return (
        f"Whatever anyone concludes from this model about any one {certificate['unit']} ({_CHANGES[certificate['adjacency']]}), it is at "
        f"most e^{number(epsilon)} = {factor:.3g} times as likely in the one case as in the other, except with probability "
        f"{float(certificate['delta']):g}, provided that what is listed as public is public."
    )


def promised(runs: Sequence[ReportRun], audits: Sequence[Body], remark: str = "") -> list[str]:
    """The section.

    Args:
        remark: what the reader of a comparison must know about the sum of its parts.
    """
    certified = [run for run in runs if run.certificate]
    parts = ['<section id="promise"><h2>What is promised</h2>', *_banners(runs, audits), f'<p class="promise">{text(_opening(runs))}</p>']
    if certified:
        parts.append(_epsilons(certified))
    if remark:
        parts.append(f'<p class="remark">{text(remark)}</p>')
    for title, name in (("Cautions", "cautions"), ("Reads of private data outside the mechanism", "unaccounted_reads")):
        lines = _by_method(certified, name)
        parts += [f"<h3>{title}</h3>", listed(lines)] if lines else []
    public = _by_method(certified, "public_assumptions") + _by_method(certified, "already_public", "public for good since earlier runs: ")
    if public:
        parts.append(folded("What is public, so that nothing protects it", listed(public), opened=len(runs) == 1))
    parts += ["<h3>What is left</h3>", *(f"<p>{text(line)}</p>" for line in _left(certified))] if certified else []
    return [*parts, *_attacks(runs, audits), "</section>"]


def _opening(runs: Sequence[ReportRun]) -> str:
    if len(runs) == 1:
        return promise(runs[0].certificate)
    bounds = [run.bound for run in runs if run.bound is not None]
    noised = sorted(bound for bound in bounds if 0 < bound < math.inf)
    free, boundless = bounds.count(0.0), bounds.count(math.inf)
    units = dict.fromkeys(run.certificate["unit"] for run in runs if run.certificate)
    words = [f"{len(runs)} models, and a promise for each by itself"]
    if noised:
        span = number(noised[0]) if noised[0] == noised[-1] else f"{number(noised[0])} to {number(noised[-1])}"
        words.append(f"{len(noised)} promise{'s' * (len(noised) == 1)} any one {' or '.join(units)} a bound of ε = {span}")
    words += [f"{free} read{'s' * (free == 1)} nothing private"] * bool(free)
    words += [f"{boundless} promise{'s' * (boundless == 1)} nothing (ε = ∞)"] * bool(boundless)
    return "; ".join(words) + ". Whoever sees several of them is promised only what they cost together."


def _epsilons(runs: Sequence[ReportRun]) -> str:
    """Every ε, under every adjacency; runs that promise the same are one row."""
    known = [name for name in _ADJACENCIES if any(name in run.certificate["epsilon"] for run in runs)]
    groups: dict[tuple[str, ...], list[ReportRun]] = {}
    for run in runs:
        body = run.certificate
        cells = [number(body["epsilon"].get(name)) if name in body["epsilon"] else "no meaning" for name in known]
        asked = "—" if run.epsilon is None else f"{run.epsilon:g}"
        larger = [f"{number(each['epsilon'])} to one {name} of up to {each['most']}" for name, each in body.get("coarser", {}).items()]
        larger += [f"{number(cost)} to one {name} of it" for name, cost in body.get("finer", {}).items()]
        whom = f"one {body['unit']} of {int(body['units']):,}"
        groups.setdefault((run.method, *cells, asked, f"{float(body['delta']):g}", whom, "; ".join(larger) or "—"), []).append(run)
    head = ("method", *(f"ε, {name}" for name in known), "ε asked for", "δ", "protected", "ε to other units", "runs")
    rows = [(*key, str(len(members))) for key, members in groups.items()]
    # A column that says nothing of any run is left out.
    kept = [place for place, name in enumerate(head) if name != "ε to other units" or any(row[place] != "—" for row in rows)]
    return table([head[place] for place in kept], [[row[place] for place in kept] for row in rows], "ε of every run under each adjacency")


def _by_method(runs: Sequence[ReportRun], name: str, before: str = "") -> list[str]:
    """Lines of certificates, each once, with the methods that say it where not all do."""
    said: dict[str, list[str]] = {}
    for run in runs:
        for line in run.certificate.get(name, []):
            said.setdefault(line, []).append(run.method)
    everyone = {run.method for run in runs}
    return [
        f"{before}{line}" + ("" if set(methods) == everyone else f" ({', '.join(dict.fromkeys(methods))})")
        for line, methods in said.items()
    ]


def _left(runs: Sequence[ReportRun]) -> list[str]:
    """What ledgers say, once for each dataset; of several runs on one, the last was certified with the longest ledger."""
    last: dict[str, ReportRun] = {}
    for run in runs:
        dataset = str(run.certificate.get("dataset_fingerprint"))
        if dataset not in last or run.certificate.get("ledger_lines", 0) >= last[dataset].certificate.get("ledger_lines", 0):
            last[dataset] = run
    return [line for run in last.values() for line in told(run.certificate)]


def _attacks(runs: Sequence[ReportRun], audits: Sequence[Body]) -> list[str]:
    parts = ["<h3>What attacks found</h3>"]
    if audits:
        parts.append(verdict_table([verdict(body) for body in audits]))
    else:
        parts.append("<p>Nothing here was audited: 'halfmask audit' attacks a run, its mechanism, or a view.</p>")
    views = list(dict.fromkeys(view for run in runs if (view := _view_of(run)) is not None))
    lines = [line for view in views for line in given_away(audits, *view)]
    if lines:
        parts += ["<h3>How many secrets of private people ψ gives away</h3>", listed(lines)]
    elif views:
        parts.append(
            f"<p>How much the public view ({text(', '.join(f'{n} {s}'.strip() for n, s in views))}) gives away was not audited.</p>"
        )
    return parts


def verdict_table(found: Iterable[Verdict]) -> str:
    """Audits with their verdicts, and how sure those are."""
    rows = [(one.audit, one.word, one.line, one.sure, one.run or "—", one.date or "—") for one in found]
    return table(("audit", "verdict", "found", "how sure", "of", "date"), rows, "Audits and their verdicts", words=True)


def _view_of(run: ReportRun) -> tuple[str, str] | None:
    """A run's view and its strength, in the words of audits of views."""
    if run.view is None:
        return None
    if run.task in OWN_VIEWS:
        return OWN_VIEWS[run.task], ""
    chosen = run.config.get("view") or {}
    try:
        view = make_view(str(chosen.get("name")), dict(chosen.get("options") or {}))
    except (HalfmaskError, TypeError, AttributeError):
        return None
    # Switches of a view are no strength of it.
    numbers = {one.name: value for one in fields(view) if type(value := getattr(view, one.name)) in (int, float)}
    return str(chosen["name"]), ", ".join(f"{name} {value:g}" for name, value in numbers.items())


def _banners(runs: Sequence[ReportRun], audits: Sequence[Body]) -> list[str]:
    """What a reader must know before anything else."""
    lines = [QUICK.replace("Made", "An audit here was made")] if any(body.get("quick") for body in audits) else []
    for state, words in (
        (TRAINING, "still training: what is said of it holds for as far as it has come"),
        (STOPPED, "stopped before its end"),
        (NOTHING, "came to nothing: its scores are no result"),
    ):
        there = sum(run.state == state for run in runs)
        if there:
            lines.append(words.capitalize() + "." if len(runs) == 1 else f"{there} of {len(runs)} runs: {words}.")
    void = sum(run.noised and run.bound == math.inf for run in runs)
    if void:
        which = "This run" if len(runs) == 1 else f"{void} of {len(runs)} runs"
        lines.append(
            f"**{which} added noise, and nothing is promised (ε = ∞).** The ε of charts and tables is what was asked for, not what holds."
        )
    if any(run.certificate.get("statement") == "rehearsal" for run in runs):
        lines.append("Rehearsals are among these runs: they show what views alone would give, and promise nothing.")
    seeds = {run.seed for run in runs if run.state == DONE}
    if len(seeds) == 1:
        lines.append("One seed: how much another run would differ is not known.")
    few = [count for run in runs if (count := run.judged_on) is not None and count < FEW]
    if few:
        lines.append(f"Judged on {min(few):,} test records: with so few, differences of a few points may be chance.")
    return [f'<p class="remark" role="note">{strong(line)}</p>' for line in lines]


def places_of_audits(folders: Sequence[Path], runs: Sequence[ReportRun]) -> list[Path]:
    """Where audits of these runs lie: in what was asked for, in sweeps below it, and in the runs."""
    asked = [folder.resolve() for folder in folders]
    sweeps = [run.folder.parent.parent for run in runs if run.folder.parent.name == "runs"]
    inside = [place for place in sweeps if any(place.resolve().is_relative_to(one) for one in asked)]
    return list(dict.fromkeys([*folders, *inside, *(run.folder for run in runs)]))
