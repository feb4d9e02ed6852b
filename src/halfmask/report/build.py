"""The report: one page for one run or for many, of any task, that stands alone.

It is made of released files, and of what ledgers say is left. Charts are drawn by plotly's script, which is inside the page, once; the page
may run that and its own, and talk to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from halfmask.errors import HalfmaskError
from halfmask.report.audits import audit_sections
from halfmask.report.drawn import as_script, chart_data, summaries
from halfmask.report.gather import ReportRun, gather
from halfmask.report.markup import asset, document, folded, markdown, style, table, text
from halfmask.report.numbers import numbers, parts
from halfmask.report.promised import places_of_audits, promised
from halfmask.report.tradeoff_tables import PUBLISHED, SOURCE
from halfmask.report.verdicts import audits_in
from halfmask.tasks.base import task_named

# Plotly's bundle for lines and bars: a browser reads it in a third of the time that the whole one takes.
_PLOTLY = "plotly-basic.min.js"
_SECTIONS = {
    "promise": "What is promised",
    "tradeoff": "Score against ε",
    "numbers": "The numbers",
    "training": "Training",
    "pictures": "Pictures",
    "audits": "Audits",
    "certificates": "Certificates",
}


def report_page(folders: Sequence[Path], *, live: bool = False, pictures: str = "", drawings: str = "") -> str:
    """The whole page of the runs at or below these folders.

    Args:
        live: the page is served: it may ask its own server for more, and `window.halfmaskRefresh` takes a newer `report_main` in.
        pictures: what models make of test records, from `halfmask.report.picture_rows`.
        drawings: what a task draws of its scores besides.
    """
    main = report_main(folders, pictures=pictures, drawings=drawings)
    skip = '<a class="skip" href="#promise">To what is promised</a>'
    title = f"Report: {', '.join(folder.resolve().name for folder in folders[:3])}"
    return document(title, style(), f"{skip}\n{main}", (asset(_PLOTLY), asset("report.js")), live)


def report_main(folders: Sequence[Path], *, pictures: str = "", drawings: str = "") -> str:
    """The content of the page without scripts and style: what changes while runs train."""
    runs = gather(folders)
    if not runs:
        raise HalfmaskError(
            f"there is no run in {', '.join(map(str, folders))}: expected the folder of a run (with a config.yaml), or one that holds some"
        )
    # Tasks know what their metrics are called, and which way those are better.
    for task in {run.task for run in runs}:
        _known(task)
    places = places_of_audits(folders, runs)
    audits = audits_in(places)
    summary = summaries(runs)
    data = chart_data(runs, summary)
    told = [line for place in places for line in audit_sections(place / "audit")]
    sections = {
        "promise": "\n".join(promised(runs, audits, _remark(folders))),
        "tradeoff": _tradeoff(data) if summary else "",
        "numbers": _section("numbers", *numbers(summary), *parts(runs), drawings, *_identity(runs, told)) if summary else "",
        "training": _training(data),
        "pictures": _section("pictures", pictures) if pictures else "",
        "audits": _section("audits", *told) if told else "",
        "certificates": _certificates(runs),
    }
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in _SECTIONS.items() if sections[name])
    return "\n".join(
        [
            "<main>",
            f"<h1>{text(_title(runs))}</h1>",
            *_facts(runs),
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>',
            *filter(None, sections.values()),
            f'<script type="application/json" id="report-data">{as_script(data)}</script>',
            "</main>",
        ]
    )


def _known(task: str) -> bool:
    try:
        task_named(task)
    except (HalfmaskError, ImportError):
        return False
    return True


def _title(runs: Sequence[ReportRun]) -> str:
    groups = list(dict.fromkeys(run.group for run in runs))
    what = groups[0] if len(groups) == 1 else f"{len(groups)} tasks and datasets"
    return f"{runs[0].method}: {what}" if len(runs) == 1 else f"{len(runs)} runs: {what}"


def _facts(runs: Sequence[ReportRun]) -> list[str]:
    """How the runs were made, where that is the same for all."""
    from halfmask.training.config import build_config
    from halfmask.training.sweep import optimiser_line

    words = []
    for run in runs[:1]:
        same = [one for one in runs if one.variant == run.variant]
        words += ["" if len(same) == len(runs) else "Of the first run:"]
        # Settings of another version, or of a task that is not installed, are shown as far as they are known.
        with suppress(HalfmaskError):
            words.append(f"Optimiser: {optimiser_line(build_config(dict(run.config), {}))}.")
        strategies = list(dict.fromkeys(one.strategy for one in runs))
        words.append(f"Strategy {', '.join(strategies)}, {run.config.get('epochs')} epochs, expected batch {run.config.get('batch')}.")
        views = list(dict.fromkeys(one.view for one in runs if one.view))
        words += [f"Public view ψ: {', '.join(views)}."] if views else []
    dates = sorted(str(run.certificate["date"]) for run in runs if run.certificate.get("date"))
    if dates:
        words.append(f"Certified {dates[0]}." if len(dates) == 1 else f"Certified from {dates[0]} to {dates[-1]}.")
    return [f'<p class="small">{text(" ".join(filter(None, words)))}</p>']


def _remark(folders: Sequence[Path]) -> str:
    """What a comparison says of the sum of its parts."""
    from halfmask.training.runs import read_json

    bodies = [read_json(folder / "results.json") for folder in folders]
    return " ".join(str(body["remark"]) for body in bodies if body and body.get("remark"))


def _section(name: str, *body: str) -> str:
    return "\n".join([f'<section id="{name}"><h2>{_SECTIONS[name]}</h2>', *filter(None, body), "</section>"])


def _select(name: str, title: str, values: Sequence[tuple[str, str]]) -> str:
    options = "".join(f'<option value="{text(value)}">{text(words)}</option>' for value, words in values)
    return f'<label>{text(title)}<select data-switch="{text(name)}" id="switch-{text(name)}">{options}</select></label>'


def _chart(name: str, about: str) -> str:
    return f'<div class="chart" id="{name}" role="img" aria-label="{text(about)}"></div>'


def _tradeoff(data: Mapping[str, Any]) -> str:
    switches = [_select("metric", "Metric", [(one["name"], one["title"]) for one in data["metrics"]])]
    for one in data["switches"]:
        if len(one["values"]) > 1:
            every = [] if one["name"] == "group" else [("*", "all")]
            switches.append(_select(one["name"], one["title"], [*((value, value) for value in one["values"]), *every]))
    if data["published"]:
        layers = [(str(number), layer["title"]) for number, layer in enumerate(data["published"])]
        switches.append(_select("published", "Published figures (theirs)", [("", "none"), *layers]))
    return _section(
        "tradeoff",
        f'<div class="switches" role="group" aria-label="What the charts and tables show">{"".join(switches)}</div>',
        _chart("tradeoff-chart", "Score of each method against ε; the table below has its numbers"),
        '<p class="small" id="tradeoff-notes" aria-live="polite"></p>',
        "<noscript><p>Charts need JavaScript; the tables below have all their numbers.</p></noscript>",
    )


def _identity(runs: Sequence[ReportRun], told: Sequence[str]) -> list[str]:
    """What a paper prints of attacks on generated pictures: no score against ε, so that it has a table, where no audit shows it already."""
    if not any(run.task == "generate" for run in runs) or any(SOURCE in line for line in told):
        return []
    ways = list(dict.fromkeys(way for found in PUBLISHED.values() for way in found))
    rows = [(way, *(f"{found[way]:.2%}" for found in PUBLISHED.values())) for way in ways]
    shown = table(("pictures hidden by", *(f"named on {dataset}" for dataset in PUBLISHED)), rows, "Published figures, theirs")
    return [folded(f"Published, theirs and not ours: {SOURCE}", shown)]


def _training(data: Mapping[str, Any]) -> str:
    body = []
    if data["curves"]:
        body += [
            "<h3>Curves</h3>",
            f'<div class="switches">{_select("curve", "Shown", list(data["curves"].items()))}</div>',
            _chart("curves-chart", "What the log tells of each epoch"),
        ]
    if any(run["spectrum"] for run in data["runs"]):
        body += [
            "<h3>The subspace's spectrum</h3>",
            _chart("spectrum-chart", "Energy of public gradients, direction by direction"),
            '<p class="small">Energy of public gradients along each direction; a mark shows how many directions were kept.</p>',
        ]
    return _section("training", *body) if body else ""


def _certificates(runs: Sequence[ReportRun]) -> str:
    papers = [
        folded(run.name if len(runs) > 1 else "The whole certificate", f'<div class="paper">{markdown(_lower(run.statement))}</div>')
        for run in runs
        if run.statement
    ]
    return _section("certificates", *papers) if papers else ""


def _lower(statement: str) -> str:
    """A certificate's headings, three levels down: the page has its own above them."""
    return "\n".join(f"###{line}" if line.startswith("#") else line for line in statement.splitlines())
