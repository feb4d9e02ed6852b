"""Audits for reading: a section for each, from the file it left, and a page of them.

What an audit found on private people is not for release. Its section says so on the audit's own page, and is left out of every other.
"""

from __future__ import annotations

import html
import json
import os
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from halfmask.report import canvas
from halfmask.report.audit_tables import Body, summary, word
from halfmask.report.gather import is_own
from halfmask.report.markup import document, image, style, table
from halfmask.report.overlay import save_png
from halfmask.report.tradeoff_tables import html_sections
from halfmask.report.verdicts import QUICK, verdict

_TITLES = {
    "mechanism": "Audit of the mechanism",
    "loss": "Audit of the loss: what can one unit do to a step?",
    "masks": "Audit of the masks: does anything protected reach the public half?",
    "model": "Audit of the model: who was in the training set?",
    "identity": "Audit of the features: does the network know its people?",
    "planted": "Audit of the recipe: can planted people be found in the model?",
    "inversion": "Audit of one step: can a person be drawn again?",
    "view": "Audit of the view: what does ψ give away?",
    "tradeoff": "Utility against identity: what is left of what people do, and of who they are?",
}
# What an audit is about that is not about a run.
_UNNAMED = {
    "mechanism": "the mechanism, with canaries",
    "masks": "a recipe, with clips of noise",
    "inversion": "one step on drawn people",
    "view": "views of drawn people",
    "tradeoff": "pictures that hide people",
}
# Beside the drawing of a trade-off: the same people, hidden in every way.
PEOPLE_SHEET = "tradeoff-people.png"
# What a generator draws beside the training pictures that are nearest: of drawn people alone.
NEAREST_SHEET = "tradeoff-nearest.png"


def write_audit(folder: Path, body: Body, picture: np.ndarray | None = None) -> Path:
    """Write an audit's file, with the date, and its picture, and the page of all audits in the folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds")} | dict(body)
    path = folder / f"{body['audit']}.json"
    _replace(path, json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n", bool(body.get("not_for_release")))
    if picture is not None:
        save_png(path.with_suffix(".png"), picture)
    page = folder / "index.html"
    sections = audit_sections(folder, whole=True)
    # The page shows every audit of the folder, so it is as private as the most private of them.
    secret = len(sections) > len(audit_sections(folder))
    _replace(page, document("Audits", style(), "\n".join(["<main><h1>Audits</h1>", *sections, "</main>"])), secret)
    return page


def _replace(path: Path, text: str, secret: bool) -> None:
    """Write a file anew, readable by its owner alone where it says something about private people, whatever was there before."""
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if secret else 0o644), "w") as file:
        file.write(text)
    os.replace(draft, path)


def audit_sections(folder: Path, whole: bool = False) -> list[str]:
    """The sections of all audits in a folder, in a fixed order; none if there is no such folder.

    Args:
        whole: also those that are not for release.
    """
    parts: list[str] = []
    for name in _TITLES:
        path = folder / f"{name}.json"
        if folder.is_symlink() or not is_own(path):
            continue
        body = json.loads(path.read_text())
        if body.get("not_for_release") and not whole:
            continue
        parts += audit_section(body, path.with_suffix(".png"))
    return parts


def audit_section(body: Body, picture: Path | None = None) -> list[str]:
    """One audit: what was found, how sure that is, and what it cannot see."""
    parts = [f"<h2>{html.escape(_TITLES[body['audit']])}</h2>", *_opening(body)]
    if body.get("not_for_release"):
        parts.append(f'<p class="remark"><strong>Not for release:</strong> {html.escape(body["not_for_release"])}.</p>')
    found = summary(body)
    parts += [f"<p>{html.escape(' '.join(found.lines))}</p>", table(found.head, found.rows, _TITLES[body["audit"]], words=True)]
    parts += [f'<p class="remark"><strong>FAIL</strong> {html.escape(line)}</p>' for line in found.failures]
    if body["audit"] == "mechanism":
        parts += _every_check(body)
    if picture is not None and is_own(picture):
        parts.append(image(picture.read_bytes(), _TITLES[body["audit"]]))
    if body["audit"] == "tradeoff":
        parts += html_sections(body)
        sheets = {PEOPLE_SHEET: "The same people in every way", NEAREST_SHEET: "Generated, and the training picture that is nearest"}
        for name, title in sheets.items():
            sheet = None if picture is None else picture.with_name(name)
            if sheet is not None and is_own(sheet):
                parts.append(f"<h3>{title}</h3>{image(sheet.read_bytes(), title)}")
    parts.append(f'<p class="small">How sure: {html.escape(body["confidence"])}. Seed {body["seed"]}.</p>')
    parts.append("<details><summary>What it cannot see</summary><ul>")
    parts += [f"<li>{html.escape(line)}</li>" for line in body["cannot_see"]]
    return [*parts, "</ul></details>"]


def _opening(body: Body) -> list[str]:
    """What was audited, when, and the one-line verdict, before anything else; and a banner where it was done in a hurry."""
    found = verdict(body)
    run, date = found.run or _UNNAMED.get(found.audit, "a run that is not named"), found.date or "on a day that is not known"
    banner = [f'<p class="remark" role="note"><strong>{html.escape(QUICK)}</strong></p>'] if found.quick else []
    return [*banner, f'<p class="promise"><strong>{html.escape(f"{run}, {date}: {found.word}.")}</strong> {html.escape(found.line)}.</p>']


def _every_check(body: Body) -> list[str]:
    """All attacks and checks of the mechanism, behind a line to click on."""
    parts = []
    for method in body["methods"]:
        rows = [
            (a["name"], a["refused"] or f"{a['right']} of {a['guesses']} guesses right: ε ≥ {a['lower_bound']:.2f}", word(a))
            for a in method["attacks"]
        ]
        rows += [(c["check"], f"{c['found']} (expected {c['expected']})", word(c)) for c in method["checks"]]
        parts += [
            f"<details><summary>{html.escape(method['method'])}: every attack and check</summary>",
            table(("check", "found", "result"), rows, words=True),
            "</details>",
        ]
    return parts


def pose_against_identity(body: Body) -> np.ndarray | None:
    """A chart of what a view keeps of the pose against what it keeps of the person; None where the pose was not measured."""
    points = [(row, row["identity"], row["pose"]["pckh@0.5"]) for row in body["rows"] if "pose" in row]
    if not points:
        return None
    width, height, left, bottom, top, right = 960, 560, 80, 490, 60, 640
    picture = canvas.blank(width, height)
    x_ticks = canvas.nice_ticks(0, 100 * max(identity["high"] for _, identity, _ in points))
    y_ticks = canvas.nice_ticks(0, max(pose for _, _, pose in points))

    def place(x: float, y: float) -> canvas.Point:
        return left + (right - left) * x / x_ticks[-1], bottom - (bottom - top) * y / y_ticks[-1]

    for tick in x_ticks:
        canvas.draw_line(picture, place(tick, 0), place(tick, y_ticks[-1]), canvas.GRID)
        canvas.draw_text(picture, f"{tick:g}", (place(tick, 0)[0], bottom + 18), 0.45, align="centre")
    for tick in y_ticks:
        canvas.draw_line(picture, place(0, tick), place(x_ticks[-1], tick), canvas.GRID)
        canvas.draw_text(picture, f"{tick:g}", (left - 10, place(0, tick)[1]), 0.45, align="right")
    chance = 100 * body["chance"]
    canvas.draw_line(picture, place(chance, 0), place(chance, y_ticks[-1]), canvas.FAINT_INK, 1, "dash")
    kinds = list(dict.fromkeys(row["view"] for row, _, _ in points))
    # Views of like strength lie close together: numbers at the dots, alternately above and below, and names beside the chart.
    for number, (row, identity, pose) in enumerate(sorted(points, key=lambda point: -point[1]["value"]), 1):
        colour = canvas.PALETTE[kinds.index(row["view"]) % len(canvas.PALETTE)]
        low, high = place(100 * identity["low"], pose), place(100 * identity["high"], pose)
        canvas.draw_error_bar(picture, low, high, colour)
        at = place(100 * identity["value"], pose)
        canvas.draw_dot(picture, at, 5, colour)
        canvas.draw_text(picture, str(number), (at[0], at[1] + (16 if number % 2 else -16)), 0.5, colour, align="centre")
        name = f"{number}  {row['view']} {row['strength']}".strip()
        canvas.draw_text(picture, name, (right + 30, top + 24 * number), 0.48, colour)
    canvas.draw_text(picture, "What a view keeps: the pose against the person", (left, 28), 0.65)
    canvas.draw_text(
        picture, "pictures whose person is named, % (95 % interval; dashed: chance)", ((left + right) / 2, height - 22), 0.5, align="centre"
    )
    canvas.draw_text(picture, "PCKh@0.5 on views, after a short training on views", (left, top - 14), 0.45, canvas.FAINT_INK)
    return picture
