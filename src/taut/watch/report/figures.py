"""The figures of a run: a verdict for each query and where the time went. Also what ``--json`` has.

A latency is counted from the moment at which a window can first be complete (its end and the
delay with which its rows usually arrive), for a query without windows from the arrival of the
oldest row of a batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from taut.slo import Slo
from taut.watch.recorded import Recorded
from taut.watch.records import Batch, Expected, Reduced, Source, Started
from taut.watch.report.causes import Cause, Inquiry, gaps

WORST = 8
"""Late results of a query that are told one by one."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """A window or batch that came out: when, after how long, and whether on time (if asked)."""

    out: float
    latency: float
    late: bool
    end: float
    batch: int


class Latency(msgspec.Struct, frozen=True):
    """Seconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class QueryFigures(msgspec.Struct, frozen=True):
    """What became of a query.

    Attributes
    ----------
    verdict
        ``met``, ``at risk`` (met by less than a tenth), ``missed``, ``no objective``, ``no data``.
    observed
        The objective's own measure, in seconds.
    budget
        Share of the late results that the objective allows that is left; below 0 is overdrawn.
    held, planning, running
        Seconds in all.
    phases
        Results that were late, by the phase that took longest of each.
    """

    name: str
    state: str
    verdict: str
    slo: str | None = None
    objective: float | None = None
    window: tuple[float, float, float] | None = None
    observed: float | None = None
    results: int = 0
    late: int = 0
    on_time: float | None = None
    budget: float | None = None
    latency: Latency | None = None
    batches: int = 0
    held: float = 0.0
    planning: float = 0.0
    running: float = 0.0
    phases: dict[str, int] = {}
    worst: tuple[Cause, ...] = ()
    error: str | None = None
    resident: int = 0


class RunFigures(msgspec.Struct, frozen=True):
    """What became of a run. ``running`` has the share of time with so many batches at a time."""

    run: str
    policy: str
    concurrency: int
    hold_limit: float
    began: float
    ended: float
    machine: dict[str, Any]
    queries: tuple[QueryFigures, ...]
    latency: Latency | None
    results: int
    late: int
    on_time: float | None
    turns: dict[str, int]
    running: dict[str, float]
    missing: int
    sources: dict[str, Source]
    reduces: dict[str, Reduced]
    plans: dict[str, Expected]

    @property
    def seconds(self) -> float:
        """How long it was recorded."""
        return self.ended - self.began


def figures(recorded: Recorded) -> RunFigures:
    """All figures of a run."""
    inquiry = Inquiry(recorded.batches)
    queries = tuple(_query(recorded, name, inquiry) for name in recorded.queries)
    latencies = [r.latency for name in recorded.queries for r in results(recorded, name)]
    bounded = [q for q in queries if q.objective is not None]
    counted = sum(q.results for q in bounded)
    late = sum(q.late for q in bounded)
    return RunFigures(
        recorded.run.run,
        recorded.run.policy,
        recorded.run.concurrency,
        recorded.run.hold_limit,
        recorded.begins,
        recorded.ends,
        recorded.run.machine,
        queries,
        _latency(latencies),
        sum(q.results for q in queries),
        late,
        1.0 - late / counted if counted else None,
        dict(Counter(turn.why for turn in recorded.turns)),
        _side_by_side(recorded),
        recorded.missing,
        {name: them[-1] for name, them in recorded.sources.items()},
        {name: _summed(them) for name, them in recorded.reduced.items()},
        {name: them[-1] for name, them in recorded.expected.items()},
    )


def results(recorded: Recorded, name: str) -> list[Result]:
    """What a query has put out, in order."""
    started = recorded.started.get(name)
    bound = started.objective if started is not None else None
    found = []
    for batch in recorded.batches.get(name, ()):
        for end, due in _dues(batch, started):
            latency = batch.written - due
            late = bound is not None and latency > bound + 1e-6
            found.append(Result(batch.written, latency, late, end, batch.batch))
    return found


def _dues(batch: Batch, started: Started | None) -> list[tuple[float, float]]:
    """What came out with a batch: its end, and when it could first be complete."""
    if batch.ends:
        return [(end, end + batch.delay) for end in batch.ends]
    if started is not None and started.window is not None:
        return []
    oldest = batch.planned - batch.input
    return [(oldest, oldest)] if batch.input > 0.0 else []


def _query(recorded: Recorded, name: str, inquiry: Inquiry) -> QueryFigures:
    started = recorded.started.get(name) or Started(recorded.begins, name)
    batches = recorded.batches.get(name, [])
    found = results(recorded, name)
    # records list the last ends only where many windows came out at once; they count them all
    extra = sum(max(0, batch.windows - len(batch.ends)) for batch in batches if batch.ends)
    count = len(found) + extra
    late = _late(found, batches, started)
    latencies = [result.latency for result in found]
    ended = recorded.ended.get(name)
    causes = _causes(recorded, name, inquiry)
    slo = _slo(started)
    allowed = (1.0 - slo.quantile) * count if slo and slo.quantile is not None else 0.0
    return QueryFigures(
        name,
        "running" if ended is None else "failed" if ended.error else "ended",
        _verdict(slo, latencies, late, count),
        started.slo,
        started.objective,
        started.window,
        _observed(slo, latencies),
        count,
        late,
        1.0 - late / count if count and started.objective is not None else None,
        1.0 - late / allowed if allowed > 0.0 else None,
        _latency(latencies),
        len(batches),
        sum(until - since for since, until in gaps(batches)),
        sum(max(0.0, batch.run - batch.begun) for batch in batches),
        sum(max(0.0, batch.written - max(batch.run, batch.begun)) for batch in batches),
        dict(Counter(cause.phase for cause in causes)),
        tuple(sorted(causes, key=lambda cause: -cause.late_by)[:WORST]),
        None if ended is None else ended.error,
        started.resident,
    )


def _late(found: Sequence[Result], batches: Sequence[Batch], started: Started) -> int:
    if started.objective is None:
        return 0
    unlisted = sum(
        max(0, batch.late - sum(r.late for r in found if r.batch == batch.batch))
        for batch in batches
        if batch.ends and batch.windows > len(batch.ends)
    )
    return sum(result.late for result in found) + unlisted


def _causes(recorded: Recorded, name: str, inquiry: Inquiry) -> list[Cause]:
    started = recorded.started.get(name)
    if started is None or started.objective is None:
        return []
    return [
        inquiry.why(batch, end, due, due + started.objective)
        for batch in recorded.batches.get(name, ())
        for end, due in _dues(batch, started)
        if batch.written - due > started.objective + 1e-6
    ]


def _slo(started: Started) -> Slo | None:
    return None if started.slo is None or started.objective is None else Slo(started.slo)


def _observed(slo: Slo | None, latencies: Sequence[float]) -> float | None:
    if slo is None or not latencies:
        return None
    if slo.quantile is None:
        return float(np.mean(latencies))
    return float(np.quantile(latencies, slo.quantile, method="inverted_cdf"))


def _verdict(slo: Slo | None, latencies: Sequence[float], late: int, count: int) -> str:
    if slo is None:
        return "no objective"
    observed = _observed(slo, latencies)
    if observed is None:
        return "no data"
    met = observed <= slo.seconds if slo.quantile is None else slo.allows(min(late, count), count)
    if not met:
        return "missed"
    return "at risk" if observed > 0.9 * slo.seconds else "met"


def _latency(latencies: Sequence[float]) -> Latency | None:
    if not latencies:
        return None
    p50, p90, p99 = (
        float(np.quantile(latencies, share, method="inverted_cdf")) for share in (0.5, 0.9, 0.99)
    )
    return Latency(float(np.mean(latencies)), p50, p90, p99, float(max(latencies)))


def _side_by_side(recorded: Recorded) -> dict[str, float]:
    """The share of the time with so many batches at a time, from the first to the last."""
    events = [
        event
        for batches in recorded.batches.values()
        for batch in batches
        for event in ((batch.begun, 1), (batch.written, -1))
    ]
    events.sort()
    spent: defaultdict[int, float] = defaultdict(float)
    running = 0
    for (at, step), (until, _) in pairwise(events):
        running += step
        spent[running] += until - at
    whole = sum(spent.values())
    return {str(n): spent[n] / whole for n in sorted(spent)} if whole > 0 else {}


def _summed(batches: Sequence[Reduced]) -> Reduced:
    """The last batch of a reduce, with what all of them processed, shed and had late."""
    shed: Counter[str] = Counter()
    for batch in batches:
        shed.update(batch.shed)
    return msgspec.structs.replace(
        batches[-1],
        rows=sum(batch.rows for batch in batches),
        processed=sum(batch.processed for batch in batches),
        on_time=sum(batch.on_time for batch in batches),
        late=sum(batch.late for batch in batches),
        bad=sum(batch.bad for batch in batches),
        shed=dict(shed),
    )
