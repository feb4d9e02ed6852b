"""Small pieces of HTML that every page is made of. Whatever comes from a folder is escaped here, and nowhere else need be."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files

from markdown_it import MarkdownIt

# Neither HTML nor links nor pictures: what a certificate says is text, whatever a dataset is called.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink", "entity"])


@lru_cache(maxsize=4)
def asset(name: str) -> str:
    """A file that pages carry inside."""
    return (files("halfmask.report") / "assets" / name).read_text()


def style() -> str:
    """How every page looks."""
    return asset("report.css")


def text(words: object) -> str:
    """Anything, as text."""
    return html.escape(str(words))


@lru_cache(maxsize=512)
def markdown(words: str) -> str:
    """A certificate, or a part of one, as HTML."""
    return str(_MARKDOWN.render(words))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], about: str = "", marks: Sequence[Mapping[str, str]] = (), words: bool = False
) -> str:
    """A table that scrolls by itself where it is wide, never with its page; by keyboard too.

    Args:
        about: what it shows, for those who do not see it.
        marks: `data-…` values of each row, which switches hide it by.
        words: its cells hold sentences, which go over several lines.
    """
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    lines = []
    for number, row in enumerate(rows):
        given = "".join(f' data-{name}="{text(value)}"' for name, value in (marks[number] if marks else {}).items())
        first, *rest = row
        lines.append(f'<tr{given}><th scope="row">{text(first)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in rest)}</tr>')
    label = f' role="region" aria-label="{text(about)}"' if about else ""
    kind = "scroll words" if words else "scroll"
    return f'<div class="{kind}" tabindex="0"{label}><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def folded(title: str, body: str, opened: bool = False) -> str:
    """Something to be opened."""
    return f"<details{' open' if opened else ''}><summary>{text(title)}</summary>{body}</details>"


def listed(lines: Iterable[str]) -> str:
    """A list. Two asterisks on both sides of words, as certificates have them, make them strong."""
    return f"<ul>{''.join(f'<li>{strong(line)}</li>' for line in lines)}</ul>"


def strong(words: str) -> str:
    """Text in which words between two asterisks are strong."""
    first, *rest = text(words).split("**")
    return first + "".join(part if number % 2 else f"<strong>{part}</strong>" for number, part in enumerate(rest))


def image(data: bytes, about: str, kind: str = "png") -> str:
    """A picture inside a page, so that the page can be sent as one file."""
    return f'<img alt="{text(about)}" src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'


def document(title: str, style: str, body: str, scripts: Sequence[str] = (), live: bool = False) -> str:
    """A whole page, which may run these scripts and no other, and talk to nobody.

    Args:
        live: it was served, and may ask its own server for more.
    """
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    own = " 'self'" if live else ""
    # Charts are styled by their script, hence the inline styles; a blob is a chart that its reader saves as a picture.
    nobody = "'none'"
    policy = (
        f"default-src 'none'; script-src {(allowed + own).strip() or nobody}; style-src 'unsafe-inline'; img-src data: blob:{own}; "
        f"base-uri 'none'; form-action {own.strip() or nobody}; connect-src {own.strip() or nobody}"
    )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{text(title)}</title><style>{style}</style></head><body>",
            body,
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )
