"""The server's pages: the report with what is training above it, the calculator, and the place for a picture.

Scripts and styles are files of this package, fetched from the server itself; a page holds none of its own but what a report brings.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from halfmask.privacy.adjacency import Adjacency
from halfmask.serve.calculator import UNITS
from halfmask.serve.pictures import LARGEST_BYTES, LARGEST_PIXELS

_TABS = {"/": "Report", "/calculator": "Calculator", "/look": "Try a picture"}
# The one that reports carry inside.
_PLOTLY = "plotly-basic.min.js"
_SCRIPTS = ("frame.js", "live.js", "calculator.js", "look.js")
# Models that look at a picture unless others are chosen.
_CHOSEN = 12
# An empty one: browsers ask for an icon, and there is none.
_ICON = '<link rel="icon" href="data:,">'


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """A script or a style, and its kind; None where there is none of that name."""
    if name not in (*_SCRIPTS, _PLOTLY, "serve.css"):
        return None
    room = "halfmask.report" if name == _PLOTLY else "halfmask.serve"
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    return resources.files(room).joinpath(f"assets/{name}").read_bytes(), f"{kind}; charset=utf-8"


def with_live(report: str, title: str, version: str) -> str:
    """A report with the server's bar above it, and what is training; the rest of it is left as it is."""
    live = (
        f"{_bar('/', title)}"
        '<p class="hm-new" role="status" hidden></p>'
        f'<section class="hm-live" data-version="{html.escape(version)}" aria-label="Runs that are not done" hidden>'
        '<h2></h2><ul class="hm-runs"></ul></section><p class="hm-soft hm-left-out" hidden></p>'
    )
    # A report lets no style in from outside of it.
    head = f"{_ICON}<style>{(asset('serve.css') or (b'', ''))[0].decode()}</style>"
    page = re.sub(r"</head>", lambda found: head + found[0], report, count=1, flags=re.IGNORECASE)
    page = re.sub(r"<body[^>]*>", lambda found: found[0] + live, page, count=1, flags=re.IGNORECASE)
    scripts = '<script src="/static/frame.js"></script><script src="/static/live.js"></script>'
    before, _, after = page.rpartition("</body>")
    return f"{before}{scripts}</body>{after}"


def no_report(reason: str) -> str:
    """In the place of a report, while there is nothing to report."""
    return _page("Nothing to report yet", no_main(reason))


def no_main(reason: str) -> str:
    """The same without the page around it."""
    return f'<main><h1>Nothing to report yet</h1><p class="hm-answer">{html.escape(reason)}</p></main>'


def calculator(title: str) -> str:
    """A form for a plan, and what it costs."""
    fields = [
        _field("size", "Private units N", "3000", "number", 'min="1" step="1"'),
        _field("batch", "Expected batch", "100", "number", 'min="1" step="any"'),
        _field("epochs", "Epochs", "3", "number", 'min="0" step="any"'),
        _field("epsilon", "Privacy budget ε", "0.8", "number", 'min="0" step="any"'),
        _field("delta", "δ, well below 1/N", "1e-5", "text", 'inputmode="decimal"'),
        _choice("adjacency", "What is hidden about a unit", {"zero-out": 0, **{each.value: 0 for each in Adjacency}}),
        _choice("unit", "What a unit is", dict.fromkeys(UNITS)),
        _field("units_per_image", "Units of one image, at most", "1", "number", 'min="1" step="1"'),
        _choice("accountant", "Accountant", dict.fromkeys(("pld", "rdp"))),
        '<button type="submit">Compute</button>',
    ]
    body = (
        "<h1>How much noise a budget buys</h1>"
        '<p class="hm-soft">Before anything is trained: no data are read, and nothing is spent. The numbers are those of '
        "<code>halfmask account</code>.</p>"
        f"<form>{''.join(fields)}</form>"
        '<p class="hm-answer" role="status"></p><div class="hm-more"></div>'
        '<div class="hm-charts"><div id="noise" class="hm-chart"></div><div id="course" class="hm-chart"></div></div>'
    )
    return _page("Calculator", _bar("/calculator", title) + body, _PLOTLY, "calculator.js")


def look(title: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The place for a picture, and the models that can look at it."""
    boxes = [
        f'<label><input type="checkbox" value="{html.escape(run["name"])}"{" checked" if number < _CHOSEN else ""}>'
        f"<span>{html.escape(run['name'])}</span></label>"
        for number, run in enumerate(runs)
    ]
    models = "".join(boxes) or "<p>No run here has released a model yet.</p>"
    body = (
        "<h1>What the models see</h1>"
        '<p class="hm-soft">The picture stays in this machine’s memory while the models look at it, and is not kept. Coordinates are '
        "those of <code>halfmask predict</code>: of one person who fills the picture, or of all faces.</p>"
        '<label class="hm-token" hidden>The token that the terminal shows <input type="text" autocomplete="off" spellcheck="false"></label>'
        f'<label class="hm-drop" data-most="{LARGEST_BYTES}"><strong>Drop a picture here</strong><input type="file" accept="image/*">'
        f'<span class="hm-soft">JPEG, PNG, WebP or BMP, up to {LARGEST_BYTES // 2**20} MiB and {LARGEST_PIXELS // 10**6} million pixels'
        "</span></label>"
        f'<fieldset class="hm-models"><legend>Models</legend>{models}</fieldset>'
        '<p class="hm-answer" role="status">No picture yet.</p><ul class="hm-runs"></ul>'
    )
    return _page("What the models see", _bar("/look", title) + body, "look.js")


def _bar(here: str, title: str) -> str:
    links = [f'<a href="{place}"{" aria-current=page" if place == here else ""}>{word}</a>' for place, word in _TABS.items()]
    return f'<nav class="hm-bar" aria-label="Halfmask"><strong>Halfmask: {html.escape(title)}</strong>{"".join(links)}</nav>'


def _page(title: str, body: str, *scripts: str) -> str:
    loaded = "".join(f'<script src="/static/{name}"></script>' for name in (("frame.js", *scripts) if scripts else ()))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title>{_ICON}<link rel="stylesheet" href="/static/serve.css"></head>'
        f'<body class="hm-page">{body}{loaded}</body></html>\n'
    )


def _field(name: str, words: str, value: str, kind: str, rest: str) -> str:
    return f'<label>{words}<input name="{name}" type="{kind}" value="{value}" required {rest}></label>'


def _choice(name: str, words: str, choices: Mapping[str, object]) -> str:
    return f'<label>{words}<select name="{name}">{"".join(f"<option>{choice}</option>" for choice in choices)}</select></label>'
