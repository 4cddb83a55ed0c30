"""Words, figures and tables of a report, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from taut.watch.report.style import STYLE

SIGNS = {
    "met": "✓",
    "missed": "✗",
    "failed": "✗",
    "at risk": "!",
    "no objective": "-",
    "no data": "?",
}
"""Beside each verdict, for those who do not see colours."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that is HTML already."""

    html: str


Cell = str | Raw


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page that needs nothing else: no script, no network."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"{''.join(parts)}</body></html>\n"
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    numbers_from: int = 1,
    numbers_to: int | None = None,
) -> str:
    """A table; columns from ``numbers_from`` on, and before ``numbers_to``, hold numbers."""
    numbers = range(len(head))[numbers_from:numbers_to]
    kinds = [' class="n"' if n in numbers else "" for n in range(len(head))]
    top = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{cell(c)}</td>" for c, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def cell(content: Cell) -> str:
    """What stands in a cell."""
    return content.html if isinstance(content, Raw) else escape(content)


def verdict(word: str) -> Raw:
    """A verdict with its sign."""
    return Raw(f'<span class="v v-{word.replace(" ", "-")}">{SIGNS[word]} {escape(word)}</span>')


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph."""
    name = f' class="{kind}"' if kind else ""
    return f"<p{name}>{escape(text)}</p>"


def heading(text: str) -> str:
    """Of a section."""
    return f"<h2>{escape(text)}</h2>"


def picture(svg: str, told: str, key: str = "") -> str:
    """A picture with its caption."""
    return f"<figure>{key}{svg}<figcaption>{escape(told)}</figcaption></figure>"


def seconds(value: float | None) -> str:
    """A latency in a table.

    >>> seconds(0.0123), seconds(1.234), seconds(None)
    ('0.012', '1.23', '-')
    """
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < 0.0995 else f"{value:.2f}"


def percent(share: float | None) -> str:
    """A share; nothing is rounded to 100 % that is not."""
    if share is None:
        return "-"
    shown = f"{100.0 * share:.1f}"
    return "99.9+ %" if shown == "100.0" and share < 1.0 else f"{shown} %"


def when(at: float) -> str:
    """A moment, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def length(value: float) -> str:
    """How long something lasted, in words."""
    if value < 120.0:
        return f"{value:.0f} s"
    minutes = value / 60.0
    return f"{minutes:.0f} minutes" if minutes < 120.0 else f"{minutes / 60.0:.1f} hours"
