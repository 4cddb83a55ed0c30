"""Two runs side by side, with what differs."""

from __future__ import annotations

from html import escape

from taut.watch.recorded import Recorded
from taut.watch.report import html
from taut.watch.report.figures import Group, QueryFigures, RunFigures, results
from taut.watch.report.page import KEY, rows, setting_rows, summary
from taut.watch.report.svg import Mark, over_time, timeline

Pair = tuple[RunFigures, RunFigures]

_DELAYS_APART = 0.05
"""Seconds by which learned delays differ for nothing."""


def compare(recorded: tuple[Recorded, Recorded], found: Pair) -> str:
    """The page."""
    a, b = found
    title = f"{_name(a)} and {_name(b)}"
    return html.page(
        title,
        [
            f"<h1>{escape(title)}</h1>",
            html.paragraph(
                f"A is {_name(a)}, {html.when(a.began)}; B is {_name(b)}, {html.when(b.began)}.",
                "muted",
            ),
            html.paragraph(f"A: {summary(a)}"),
            html.paragraph(f"B: {summary(b)}"),
            *_apart(a, b),
            html.paragraph(
                "Latencies count from a window's end, or from the arrival of a row: the delay "
                "after which a window is due is learned in each run. Verdicts and shares on time "
                "count from when it was due.",
                "muted",
            ),
            html.heading("All results"),
            html.table(["figure", "A", "B", "B against A"], _overall(a, b)),
            html.heading("Queries"),
            html.table(
                ["query", "verdict A", "verdict B", "on time A", "on time B", "mean A", "mean B",
                 "p99 A", "p99 B", "p99 B against A", "delay A", "delay B"],
                [_query(name, *_both(name, a, b)) for name in _names(a, b)],
                numbers_from=3,
            ),
            *_pictures(recorded, found),
            html.heading("Turns"),
            *(
                html.picture(
                    timeline(f"Who ran in {label}", rows(each), figures.began, figures.ended),
                    f"{label}: {_name(figures)}.",
                    KEY,
                )
                for label, each, figures in zip("AB", recorded, found, strict=True)
                if each.batches
            ),
            html.heading("Settings and machine"),
            html.table(["setting", "A", "B", ""], _settings(a, b), numbers_from=4),
        ],
    )  # fmt: skip


def change(before: float | None, after: float | None) -> html.Raw:
    """How much a latency differs, in per cent, and whether that is for the better."""
    if before is None or after is None:
        return html.Raw("-")
    if before <= 0.0:
        return html.Raw("same" if after == before else "-")
    part = after / before - 1.0
    if abs(part) < 0.005:
        return html.Raw("same")
    return _judged(f"{100.0 * part:+.0f} %", better=part < 0.0)


def _points(before: float | None, after: float | None) -> html.Raw:
    """How much a share differs, where more is better."""
    if before is None or after is None:
        return html.Raw("-")
    points = 100.0 * (after - before)
    return (
        html.Raw("same") if abs(points) < 0.05 else _judged(f"{points:+.1f} points", points > 0.0)
    )


def _judged(text: str, better: bool) -> html.Raw:
    word = "better" if better else "worse"
    return html.Raw(f'<span class="{word}">{text} ({word})</span>')


def _name(found: RunFigures) -> str:
    return f"{found.run or 'a run'} ({found.policy})"


def _apart(a: RunFigures, b: RunFigures) -> list[str]:
    """What makes the two hard to compare."""
    notes = []
    only = {label: sorted({q.name for q in x.queries} - {q.name for q in y.queries})
            for label, x, y in (("A", a, b), ("B", b, a))}  # fmt: skip
    notes += [f"Only in {label}: {', '.join(names)}." for label, names in only.items() if names]
    objectives = {q.name: q.slo for q in a.queries}
    differ = [q.name for q in b.queries if objectives.get(q.name, q.slo) != q.slo]
    if differ:
        notes.append(f"Objectives differ: {', '.join(differ)}.")
    for q in b.queries:
        before = next((each for each in a.queries if each.name == q.name), None)
        if before is not None and _due_apart(before, q):
            notes.append(
                f"{q.name}: its windows were due {html.seconds(before.delay)} s after their end in "
                f"A and {html.seconds(q.delay)} s in B, as the delay was learned, so that being on "
                "time is not the same in both."
            )
    if a.machine != b.machine:
        notes.append("The machines or their settings differ: see below.")
    return [html.paragraph(note) for note in notes]


def _due_apart(a: QueryFigures, b: QueryFigures) -> bool:
    """Whether the same latency counts as another in the two: by a tenth of what it is held to."""
    if not (a.windowed and b.windowed and a.from_end and b.from_end):
        return False
    scale = a.objective or min(a.from_end.mean, b.from_end.mean)
    return abs(a.delay - b.delay) > max(_DELAYS_APART, 0.1 * scale)


def _overall(a: RunFigures, b: RunFigures) -> list[list[html.Cell]]:
    table: list[list[html.Cell]] = []
    for name in dict.fromkeys([*a.groups, *b.groups]):
        first, second = (each.groups.get(name) or Group(0, 0, None, None) for each in (a, b))
        shares = first.on_time, second.on_time
        table.append([name, f"{first.results:,}", f"{second.results:,}", "-"])
        table.append([f"{name} on time", *map(html.percent, shares), _points(*shares)])
        for measure in ("mean", "p50", "p90", "p99", "max"):
            values = [getattr(each.from_end, measure, None) for each in (first, second)]
            shown = [html.seconds(value) for value in values]
            table.append([f"{name}, {measure} s", *shown, change(*values)])
    counts = [sum(q.batches for q in each.queries) for each in (a, b)]
    lengths = [max(each.seconds, 1e-9) for each in (a, b)]
    table.append(
        ["batches a second", *(f"{n / s:.1f}" for n, s in zip(counts, lengths, strict=True)), "-"]
    )
    return table


def _names(a: RunFigures, b: RunFigures) -> list[str]:
    return list(dict.fromkeys(q.name for each in (a, b) for q in each.queries))


def _both(
    name: str, a: RunFigures, b: RunFigures
) -> tuple[QueryFigures | None, QueryFigures | None]:
    first, second = ({q.name: q for q in each.queries}.get(name) for each in (a, b))
    return first, second


def _query(name: str, a: QueryFigures | None, b: QueryFigures | None) -> list[html.Cell]:
    both = (a, b)
    p99 = [q.from_end.p99 if q and q.from_end else None for q in both]
    return [
        name,
        *(html.verdict(q.verdict) if q else "-" for q in both),
        *(html.percent(q.on_time) if q else "-" for q in both),
        *(html.seconds(q.from_end.mean) if q and q.from_end else "-" for q in both),
        *(html.seconds(value) for value in p99),
        change(p99[0], p99[1]),
        *(html.seconds(q.delay) if q and q.windowed and q.from_end else "-" for q in both),
    ]


def _pictures(recorded: tuple[Recorded, Recorded], found: Pair) -> list[str]:
    """A query's latencies in both, on one scale."""
    parts = [
        html.heading("Latency against objective"),
        html.paragraph(
            "A on the left, B on the right, on the same scales, from a window's end or the arrival "
            "of a row; square marks are late, the dashed line is the objective after the usual "
            "delay.",
            "muted",
        ),
        '<div class="grid2">',
    ]
    longest = max(each.seconds for each in found)
    for name in _names(*found):
        them = [[Mark(r.out, r.out - r.end, r.late) for r in results(each, name)]
                for each in recorded]  # fmt: skip
        values = [mark.value for marks in them for mark in marks]
        if not values:
            continue
        limits = [_limit(q) for q in _both(name, *found)]
        top = max([*values, *(1.25 * limit for limit in limits if limit is not None)])
        for label, marks, each, limit in zip("AB", them, found, limits, strict=True):
            svg = over_time(
                f"{name} in {label}: latency of its results",
                marks,
                each.began,
                each.began + longest,
                limit=limit,
                top=top,
            )
            parts.append(f"<div><h3>{escape(name)}, {label}</h3>{svg}</div>")
    return [*parts, "</div>"]


def _limit(q: QueryFigures | None) -> float | None:
    """The objective from a window's end, or from the arrival of a row."""
    if q is None or q.objective is None:
        return None
    return q.objective + (q.delay if q.windowed else 0.0)


def _settings(a: RunFigures, b: RunFigures) -> list[list[html.Cell]]:
    first, second = dict(setting_rows(a)), dict(setting_rows(b))
    return [
        [
            name,
            first.get(name, "-"),
            second.get(name, "-"),
            "" if first.get(name) == second.get(name) else "differs",
        ]
        for name in dict.fromkeys([*first, *second])
    ]
