"""Small pictures as inline SVG: marks over time against a limit, and who ran when.

Colours are classes, which the page's style sets for light and dark. Marks are drawn as one path
of dots for each class, a few bytes a mark. Every picture says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 960.0
MARKS = 320
"""Marks in a picture at most: of more, the worst of each stretch is drawn."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 10.0, 8.0, 22.0


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places on the sheet."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        width = self.high - self.low
        part = (value - self.low) / width if width > 0.0 else 0.0
        return self.start + part * (self.end - self.start)


@dataclass(slots=True)
class Sheet:
    """A picture that is being drawn."""

    title: str
    told: str
    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> None:
        """A word, with its baseline at y."""
        name = f' class="{kind}"' if kind else ""
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{name}>{escape(text)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.parts.append(f'<path class="{kind}" d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"/>')

    def dots(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Marks of one class; its style says how they look."""
        path = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in points)
        if path:
            self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def bars(self, stretches: Iterable[tuple[float, float]], y: float, kind: str) -> None:
        """Stretches on one line, as thick as the class says."""
        path = "".join(f"M{_n(a)} {_n(y)}h{_n(max(0.3, b - a))}" for a, b in stretches)
        if path:
            self.parts.append(f'<path class="{kind}" d="{path}"/>')

    def done(self) -> str:
        """The picture as it stands in a page."""
        return (
            f'<svg viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.told)}</desc>"
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A value at a time, and whether it is one to point at."""

    at: float
    value: float
    bad: bool = False


def thinned(marks: Sequence[Mark], most: int = MARKS) -> tuple[list[Mark], int]:
    """The worst mark of each stretch, and how many marks stand behind one at most."""
    if len(marks) <= most:
        return list(marks), 1
    low, high = marks[0].at, marks[-1].at
    step = (high - low) / most or 1.0
    worst: dict[int, Mark] = {}
    counts: dict[int, int] = {}
    for mark in marks:
        n = min(most - 1, int((mark.at - low) / step))
        counts[n] = counts.get(n, 0) + 1
        if n not in worst or (mark.bad, mark.value) > (worst[n].bad, worst[n].value):
            worst[n] = mark
    return [worst[n] for n in sorted(worst)], max(counts.values())


def over_time(
    title: str,
    marks: Sequence[Mark],
    since: float,
    until: float,
    *,
    limit: float | None = None,
    top: float | None = None,
    width: float = WIDTH / 2,
    height: float = 132.0,
    unit: str = "s",
) -> str:
    """Values over time as marks, with a line at the limit. Times count from ``since``."""
    drawn, behind = thinned(marks)
    most = max([mark.value for mark in drawn] + ([limit * 1.25] if limit else []), default=1.0)
    high = nice_top(top if top is not None else most)
    x = Scale(since, max(until, since + 1e-3), _LEFT, width - _RIGHT)
    y = Scale(0.0, high, height - _BOTTOM, _TOP)
    bad = sum(mark.bad for mark in marks)
    told = f"{len(marks):,} results, {bad:,} of them late" if limit else f"{len(marks):,} values"
    if limit:
        told += f"; the line is the objective, {limit:g} {unit}"
    if behind > 1:
        told += f"; each mark is the worst of up to {behind}"
    sheet = Sheet(title, told, width, height)
    _frame(sheet, x, y, high, unit)
    if limit:
        sheet.line(x.start, y(limit), x.end, y(limit), "limit")
    sheet.dots([(x(m.at), y(min(m.value, high))) for m in drawn if not m.bad], "ok")
    sheet.dots([(x(m.at), y(min(m.value, high))) for m in drawn if m.bad], "bad")
    return sheet.done()


@dataclass(frozen=True, slots=True)
class Row:
    """A query on the timeline: what it did when, by class, and when something late came out."""

    name: str
    stretches: dict[str, list[tuple[float, float]]]
    late: list[float]


def timeline(
    title: str, rows: Sequence[Row], since: float, until: float, zero: float | None = None
) -> str:
    """Who was held and who ran, when. What is nearer than half a point is drawn as one.

    Times are shown from ``zero`` on, or else from ``since``.
    """
    zero = since if zero is None else zero
    left = min(220.0, 16.0 + 7.0 * max((len(row.name) for row in rows), default=4))
    height = _TOP + 18.0 * len(rows) + _BOTTOM
    x = Scale(since, max(until, since + 1e-3), left, WIDTH - _RIGHT)
    near = 0.5 * (until - since) / (x.end - x.start)
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.stretches))
    told = f"{until - since:,.0f} s of {len(rows)} queries: {', '.join(kinds)}; late results marked"
    sheet = Sheet(title, told, WIDTH, height)
    for at in ticks(since - zero, until - zero, 8):
        sheet.line(x(zero + at), _TOP, x(zero + at), height - _BOTTOM, "grid")
        sheet.text(x(zero + at), height - 7.0, clock(at), "middle")
    for n, row in enumerate(rows):
        y = _TOP + 18.0 * n + 9.0
        name = row.name if len(row.name) <= 28 else row.name[:27] + "…"
        sheet.text(left - 8.0, y + 4.0, name, "end")
        for kind, stretches in row.stretches.items():
            them = joined(stretches, near, since, until)
            sheet.bars([(x(a), x(b)) for a, b in them], y, kind)
        late = sorted({round(x(at), 1) for at in row.late if since <= at <= until})
        sheet.dots([(at, y - 7.0) for at in late], "flag")
    return sheet.done()


def joined(
    stretches: Iterable[tuple[float, float]], near: float, since: float, until: float
) -> list[tuple[float, float]]:
    """Stretches inside a time, those that are near to each other as one.

    >>> joined([(0, 2), (2.1, 3), (5, 9)], near=0.5, since=1, until=8)
    [(1, 3), (5, 8)]
    """
    found: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if end <= since or begin >= until:
            continue
        begin, end = max(begin, since), min(end, until)  # noqa: PLW2901 -- cut to the sheet
        if found and begin - found[-1][1] <= near:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0.0, 10.0, 5)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    if not high > low:
        return [low]
    step = _round_up((high - low) / about)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def nice_top(value: float) -> float:
    """A round number at or above a value."""
    if not value > 0.0 or not math.isfinite(value):
        return 1.0
    step = _round_up(value / 4.0)
    return step * math.ceil(value / step - 1e-9)


def clock(seconds: float) -> str:
    """A time since the start.

    >>> clock(5.0), clock(0.5), clock(90.0), clock(62.5), clock(5400.0)
    ('5 s', '0.5 s', '1:30', '1:02.5', '1:30:00')
    """
    if seconds < 60.0:
        return f"{seconds:g} s"
    tenths = round(10.0 * seconds)
    hours, minutes, rest = tenths // 36000, tenths // 600 % 60, tenths // 10 % 60
    part = f".{tenths % 10}" if tenths % 10 else ""
    shown = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    return f"{shown}:{rest:02}{part}"


def _frame(sheet: Sheet, x: Scale, y: Scale, high: float, unit: str) -> None:
    for value in ticks(0.0, high, 4):
        sheet.line(x.start, y(value), x.end, y(value), "grid")
        sheet.text(x.start - 6.0, y(value) + 4.0, f"{value:g} {unit}", "end")
    for at in ticks(0.0, x.high - x.low, 4):
        sheet.text(x(x.low + at), sheet.height - 6.0, clock(at), "middle")


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, ...; of seconds above a minute those of a clock."""
    for step in (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0):
        if 50.0 < value <= step:
            return step
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * n for n in (1.0, 2.0, 5.0, 10.0) if value <= size * n * (1.0 + 1e-9))


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
