"""The report of one run: verdicts, why results were late, who ran when, settings and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from taut.slo import Slo
from taut.watch.recorded import Recorded
from taut.watch.report import html
from taut.watch.report.causes import PHASES, Cause, span
from taut.watch.report.figures import (
    QueryFigures,
    RunFigures,
    last_run,
    last_waits,
    results,
    spans,
)
from taut.watch.report.svg import MARKS, Mark, Row, clock, over_time, timeline
from taut.watch.results import source_name

ZOOM = 30.0
"""Seconds around the worst result that are drawn in full."""
KEY = (
    '<p class="key muted"><i class="held"></i>held<i class="planning"></i>planning'
    '<i class="running"></i>running<i class="flag"></i>a late result came out</p>'
)


_TOLD = {
    "held": "it waited for its turn",
    "early": "a batch was at work that had read too early for it",
    "planning": "from being let go until the plan was made",
    "running": "from then until the rows were out",
    "data": "no rows came; of a query that takes no turns, no batch began",
}


def report(recorded: Recorded, found: RunFigures) -> str:
    """The page."""
    title = f"{found.run or 'A run'}: {found.policy}"
    return html.page(
        title,
        [
            f"<h1>{escape(title)}</h1>",
            html.paragraph(
                f"{html.when(found.began)}, {html.length(found.seconds)}, "
                f"{len(found.queries)} queries, {found.concurrency} at a time",
                "muted",
            ),
            f'<p class="lead">{escape(summary(found))}</p>',
            *_notes(found),
            html.heading("Verdicts"),
            verdicts(found),
            *_late(found),
            *latencies(recorded, found),
            *turns(recorded, found),
            *sources(recorded, found),
            html.heading("Settings and machine"),
            settings(found),
            html.heading("Figures"),
            html.paragraph(
                "Seconds. A latency counts from the moment at which a window could first be "
                "complete (its end and the delay with which its rows usually came), for a query "
                "without windows from the arrival of a row. Delay: from a window's end to then."
            ),
            figures_table(found),
        ],
    )


def summary(found: RunFigures) -> str:
    """The run in a sentence or two."""
    judged = [q for q in found.queries if q.objective is not None and not q.resident]
    met = sum(q.verdict in ("met", "at risk") for q in judged)
    if not found.results:
        return "No result was recorded."
    if not judged:
        return f"{found.results:,} results; no query has an objective."
    if met == len(judged):
        said = f"All {met} queries met their objectives" if met > 1 else "The objective was met"
    else:
        said = f"{met} of {len(judged)} queries met their objectives{_without(judged)}"
    shares = {n: g.on_time for n, g in found.groups.items() if g.on_time is not None}
    on_time = [f"{html.percent(share)} of the {name}" for name, share in shares.items()]
    if on_time:
        said += f": {' and '.join(on_time)} were on time"
    phases = Counter[str]()
    for query in found.queries:
        phases.update(query.phases)
    if phases:
        phase, count = phases.most_common(1)[0]
        late = sum(phases.values())
        most = "The late one" if late == 1 else f"Of {late:,} late ones {count:,}"
        said += f". {most} lost most of {'its' if late == 1 else 'their'} time {_lost(phase)}"
    return said + "."


def _without(judged: Sequence[QueryFigures]) -> str:
    """Those that could not meet an objective, for a sentence."""
    failed = sum(q.verdict == "failed" for q in judged)
    silent = sum(q.silent and q.verdict != "failed" for q in judged)
    told = [
        f"{count} {what}"
        for count, what in ((failed, "failed"), (silent, "gave no result"))
        if count
    ]
    return f" ({', '.join(told)})" if told else ""


def _lost(phase: str) -> str:
    return "being held" if phase == "held" else PHASES[phase]


def _notes(found: RunFigures) -> list[str]:
    notes = [f"{q.name} failed: {q.error}" for q in found.queries if q.error]
    notes += [f"{q.name} gave no result{_waited(q)}." for q in found.queries if _is_silent(q)]
    if found.missing:
        notes.append(
            f"{found.missing:,} records are missing: what is shown is what is left of the run."
        )
    notes += [
        f"{q.name} keeps {q.resident} tasks for good and takes no turns."
        for q in found.queries
        if q.resident
    ]
    return [_list(notes)] if notes else []


def _is_silent(query: QueryFigures) -> bool:
    """Without a result, and not because it failed, which is said."""
    return query.silent and not query.error


def _waited(query: QueryFigures) -> str:
    held = query.held + query.waited
    return f"; it was held for {span(held)}" if held else ""


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def verdicts(found: RunFigures) -> str:
    """A line for each query."""
    return html.table(
        ["query", "verdict", "objective", "observed s", "on time", "late", "budget left", "state"],
        [
            [
                q.name,
                html.verdict(q.verdict),
                q.slo or "-",
                html.seconds(q.observed),
                html.percent(q.on_time),
                f"{q.late:,} of {q.results:,}" if q.objective is not None else "-",
                _budget(q),
                q.state if q.state != "running" else "running at the end",
            ]
            for q in found.queries
        ],
        numbers_from=3,
        numbers_to=7,
    )


def _budget(query: QueryFigures) -> str:
    left = query.budget
    if left is None:
        return "-"
    if left < 0.0 and query.slo is not None and Slo(query.slo).quantile == 1.0:
        return f"{query.late:,} late, none may be"
    return f"{100.0 * left:.0f} %" if left >= 0.0 else f"overdrawn {1.0 - left:.1f} x"


def _late(found: RunFigures) -> list[str]:
    reduces = [q for q in found.queries if q.late and q.shed is not None]
    queries = [q for q in found.queries if q.late and q.shed is None]
    if not queries and not reduces:
        return []
    parts = [html.heading("Why results were late")]
    if reduces:
        parts.append(_list(f"{q.name}: {_missed(q)}" for q in reduces))
    if not queries:
        return parts
    parts += [
        html.paragraph(
            "By the phase in which each late result spent most of its time after it was due:"
        ),
        html.table(
            ["query", "late", *PHASES],
            [
                [
                    q.name,
                    f"{q.late:,}",
                    *(f"{q.phases[phase]:,}" if phase in q.phases else "-" for phase in PHASES),
                ]
                for q in queries
            ],
        ),
        html.paragraph("; ".join(f"{name}: {told}" for name, told in _TOLD.items()) + ".", "muted"),
    ]
    worst = sorted((cause for q in queries for cause in q.worst), key=lambda c: -c.late_by)[:12]
    parts.append(html.paragraph("The worst of them:"))
    parts.append(_list(f"{c.query}, {_result(c, found)}: {c.words}" for c in worst))
    for q in queries:
        rows = [
            [
                _result(cause, found),
                html.seconds(cause.late_by),
                *(html.seconds(cause.seconds[phase]) for phase in PHASES),
                cause.words,
            ]
            for cause in q.worst
        ]
        of = f"{len(rows)} worst of {q.late:,}" if q.late > len(rows) else f"{q.late:,}"
        head = ["result", "late by s", *PHASES, "in words"]
        parts.append(
            f"<details><summary>{escape(q.name)}: {of} late results</summary>"
            f"{html.table(head, rows, 1, -1)}</details>"
        )
    return parts


def _missed(q: QueryFigures) -> str:
    """What became of the rows of a reduce that were not on time."""
    shed = sum((q.shed or {}).values())
    why = ", ".join(f"{reason} {rows:,}" for reason, rows in (q.shed or {}).items() if rows)
    said = f"of {q.results:,} rows {q.late - shed:,} came out late and {shed:,} were shed"
    return f"{said} ({why})." if why else f"{said}."


def _result(cause: Cause, found: RunFigures) -> str:
    return f"due {clock(round(cause.due - found.began, 1))} into the run"


def latencies(recorded: Recorded, found: RunFigures) -> list[str]:
    """A picture of each query's latencies."""
    cells = []
    for query in found.queries:
        marks = [Mark(r.out, r.latency, r.late) for r in results(recorded, query.name)]
        if not marks:
            continue
        svg = over_time(
            f"{query.name}: latency of its results over the run",
            marks,
            found.began,
            found.ended,
            limit=query.objective,
        )
        cells.append(f"<div><h3>{escape(query.name)}</h3>{svg}</div>")
    if not cells:
        return []
    most = max(query.results for query in found.queries)
    told = "Each mark is a result, square where it was late; the dashed line is the objective."
    if most > MARKS:
        told += " Where there are many, each mark is the worst of its stretch of time."
    return [
        html.heading("Latency against objective"),
        html.paragraph(told + " The scales differ.", "muted"),
        f'<div class="grid2">{"".join(cells)}</div>',
    ]


def rows(recorded: Recorded) -> list[Row]:
    """The queries' lines on a timeline, with what each waited for at the end."""
    worked = spans(recorded)
    found = []
    for name in recorded.queries:
        batches = worked[name].of if name in worked else []
        waits, failed = last_waits(recorded, name), last_run(recorded, name)
        if batches or waits:
            did = {
                "held": [*((each.held, each.begun) for each in batches), *waits],
                "planning": [(each.begun, each.run) for each in batches],
                "running": [
                    *((each.run, each.out) for each in batches),
                    *([] if failed is None else [failed]),
                ],
            }
            late = [result.out for result in results(recorded, name) if result.late]
            found.append(Row(name, did, late))
    return found


def turns(recorded: Recorded, found: RunFigures) -> list[str]:
    """Who ran when: the whole run, and the stretch around its worst result."""
    lines = rows(recorded)
    if not lines:
        return []
    parts = [
        html.heading("Turns"),
        html.picture(
            timeline(
                "Who was held and who ran, over the whole run", lines, found.began, found.ended
            ),
            "The whole run. Batches nearer to each other than half a point are drawn as one.",
            KEY,
        ),
    ]
    worst = _worst(recorded, found)
    if worst is not None and found.seconds > 1.5 * ZOOM:
        query, out, latency = worst
        since = max(found.began, min(out - 0.7 * ZOOM, found.ended - ZOOM))
        parts.append(
            html.picture(
                timeline(
                    f"Who ran around the slowest result, of {query}",
                    lines,
                    since,
                    since + ZOOM,
                    found.began,
                ),
                f"{ZOOM:.0f} s around the slowest result: {query}, {html.seconds(latency)} s, "
                f"out {clock(round(out - found.began, 1))} into the run.",
                KEY,
            )
        )
    if found.running:
        shares = ", ".join(f"{n}: {html.percent(share)}" for n, share in found.running.items())
        parts.append(html.paragraph(f"Batches at a time, by share of the time: {shares}."))
    if found.turns:
        why = ", ".join(f"{reason} {count:,}" for reason, count in found.turns.items())
        parts.append(html.paragraph(f"Turns by why they were granted: {why}."))
    return parts


def _worst(recorded: Recorded, found: RunFigures) -> tuple[str, float, float] | None:
    """The result that was furthest past its objective, or else took longest."""
    them = [
        (result.late, result.latency - (query.objective or 0.0), query.name, result)
        for query in found.queries
        for result in results(recorded, query.name)
    ]
    if not them:
        return None
    _, _, name, result = max(them, key=lambda each: each[:2])
    return name, result.out, result.latency


def sources(recorded: Recorded, found: RunFigures) -> list[str]:
    """Sources, reduces and plans, where there were any."""
    parts: list[str] = []
    if found.sources:
        parts += [
            html.heading("Sources"),
            html.table(
                ["source", "offsets issued", "replayed", "timeout s", "lanes", "waiting"],
                [
                    [
                        name,
                        f"{s.issued:,}",
                        f"{s.replayed:,}",
                        html.seconds(s.timeout),
                        str(len(s.lanes)),
                        f"{sum(s.backlog.values()):,} {s.unit}",
                    ]
                    for name, s in found.sources.items()
                ],
            ),
            '<div class="grid2">',
        ]
        for key, them in recorded.sources.items():
            name = source_name(*key)
            marks = [Mark(s.at, float(sum(s.backlog.values()))) for s in them]
            svg = over_time(
                f"{name}: waiting over the run", marks, found.began, found.ended, unit=""
            )
            unit = them[-1].unit
            parts.append(f"<div><h3>{escape(name)}: {escape(unit)} waiting</h3>{svg}</div>")
        parts.append("</div>")
    if found.reduces:
        parts += [
            html.heading("Reduces"),
            html.table(
                ["query", "rows", "on time", "late", "shed", "waiting", "keys hot", "keys cold"],
                [
                    [
                        name,
                        *(f"{n:,}" for n in (r.rows, r.on_time, r.late)),
                        ", ".join(f"{why} {n:,}" for why, n in r.shed.items()) or "0",
                        *(f"{n:,}" for n in (r.waiting, r.hot, r.cold)),
                    ]
                    for name, r in found.reduces.items()
                ],
            ),
        ]
    if found.plans:
        parts += [
            html.heading("Plans"),
            html.table(
                ["query", "measure", "expected s", "between", "observed s", "rate", "planned rate"],
                [
                    [
                        name,
                        p.measure,
                        html.seconds(p.seconds),
                        f"{html.seconds(p.low)} and {html.seconds(p.high)}",
                        html.seconds(p.observed),
                        f"{p.rate:,.0f}",
                        f"{p.planned_rate:,.0f}",
                    ]
                    for name, p in found.plans.items()
                ],
                numbers_from=2,
            ),
        ]
    return parts


def settings(found: RunFigures) -> str:
    """What was set, and what it ran on."""
    return html.table(["setting", "value"], [list(each) for each in setting_rows(found)], 2)


def setting_rows(found: RunFigures) -> list[tuple[str, str]]:
    """Settings and machine by name."""
    known = {
        "run": found.run,
        "policy": found.policy,
        "turns at a time": str(found.concurrency),
        "hold limit": f"{found.hold_limit:g} s",
        "began": html.when(found.began),
        "recorded": html.length(found.seconds),
    }
    return [*known.items(), *_flat(found.machine)]


def _flat(machine: Mapping[str, Any], under: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in machine.items():
        name = f"{under}{key}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{name}.")
        else:
            rows.append((name, str(value)))
    return rows


def figures_table(found: RunFigures) -> str:
    """Every figure of every query."""
    head = [
        "query",
        "results",
        "mean",
        "p50",
        "p90",
        "p99",
        "max",
        "delay",
        "batches",
        "held",
        "planning",
        "running",
    ]
    return html.table(head, [_figures(q) for q in found.queries])


def _figures(q: QueryFigures) -> list[str]:
    latency = q.latency
    measured = (
        ["-"] * 5
        if latency is None
        else [
            html.seconds(value)
            for value in (latency.mean, latency.p50, latency.p90, latency.p99, latency.max)
        ]
    )
    spent = [f"{value:.1f}" for value in (q.held + q.waited, q.planning, q.running)]
    delay = html.seconds(q.delay) if q.window else "-"
    return [q.name, f"{q.results:,}", *measured, delay, f"{q.batches:,}", *spent]
