"""The figures of a run: a verdict for each query and where the time went. Also what ``--json`` has.

A latency is counted as the objective is: from the moment at which a window can first be complete
(its end and the delay with which its rows usually arrive), for a query without windows from the
arrival of a row.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from taut.slo import Slo
from taut.watch.recorded import Recorded
from taut.watch.records import Batch, Expected, Reduced, Source, Started
from taut.watch.report.causes import Cause, Inquiry, Spans
from taut.watch.results import ends, rows_reduced, source_name, spread, stated
from taut.watch.verdict import FAILED, budget, measured

Array = NDArray[np.float64]
WORST = 8
"""Late results of a query that are told one by one."""


class Result(msgspec.Struct, frozen=True, array_like=True):
    """A window that came out, or the oldest row of a batch: when, after how long, whether late."""

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
        ``met``, ``at risk`` (met by less than a tenth), ``missed``, ``no objective``, ``no data``
        or ``failed``.
    observed
        The objective's own measure, in seconds.
    budget
        Share of the late results that the objective allows that is left; below 0 is overdrawn.
    delay
        Seconds after its end at which a window could first be complete, the median.
    from_end
        As ``latency``, but from a window's end: the delay is learned in each run, so that only this
        can be compared between two. The same where there are no windows.
    held, planning, running
        Seconds in all, of its batches.
    waited
        Seconds that it was held after its last batch.
    phases
        Results that were late, by the phase that took longest of each; not of a reduce.
    shed
        Rows of a reduce that were not worked on, by reason: they are among the late ones. None for
        any other query.
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
    delay: float = 0.0
    batches: int = 0
    held: float = 0.0
    planning: float = 0.0
    running: float = 0.0
    phases: dict[str, int] = {}
    worst: tuple[Cause, ...] = ()
    error: str | None = None
    resident: int = 0
    windowed: bool = False
    shed: dict[str, int] | None = None
    waited: float = 0.0
    from_end: Latency | None = None

    @property
    def silent(self) -> bool:
        """Whether it has an objective and gave no result that could be held against it."""
        return self.objective is not None and not self.results and not self.resident


class Group(msgspec.Struct, frozen=True):
    """All windows of a run, or all rows of its queries without windows: they do not add up.

    ``late`` and ``on_time`` are of those with an objective; ``from_end`` is as for a query.
    """

    results: int
    late: int
    on_time: float | None
    latency: Latency | None
    from_end: Latency | None = None


class RunFigures(msgspec.Struct, frozen=True):
    """What became of a run.

    Attributes
    ----------
    groups
        Of all queries together: ``windows``, and ``rows`` where there are no windows.
    running
        The share of time with so many batches at a time.
    """

    run: str
    policy: str
    concurrency: int
    hold_limit: float
    began: float
    ended: float
    machine: dict[str, Any]
    queries: tuple[QueryFigures, ...]
    groups: dict[str, Group]
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

    @property
    def results(self) -> int:
        """Windows and rows."""
        return sum(group.results for group in self.groups.values())


def figures(recorded: Recorded) -> RunFigures:
    """All figures of a run."""
    inquiry = Inquiry(spans(recorded))
    them = [_query(recorded, name, inquiry) for name in recorded.queries]
    queries = tuple(query for query, *_ in them)
    groups = {
        "windows": _group([each for each in them if each[0].windowed]),
        "rows": _group([each for each in them if not each[0].windowed]),
    }
    return RunFigures(
        recorded.run.run,
        recorded.run.policy,
        recorded.run.concurrency,
        recorded.run.hold_limit,
        recorded.begins,
        recorded.ends,
        recorded.run.machine,
        queries,
        {name: group for name, group in groups.items() if group.results},
        dict(Counter(turn.why for them in recorded.turns.values() for turn in them)),
        _side_by_side(recorded),
        recorded.missing,
        {source_name(*key): each[-1] for key, each in recorded.sources.items()},
        {name: _summed(each) for name, each in recorded.reduced.items()},
        {name: each[-1] for name, each in recorded.expected.items()},
    )


def _group(them: Sequence[tuple[QueryFigures, Array, Array]]) -> Group:
    bounded = [query for query, *_ in them if query.objective is not None]
    counted, late = sum(q.results for q in bounded), sum(q.late for q in bounded)
    return Group(
        sum(query.results for query, *_ in them),
        late,
        1.0 - late / counted if counted else None,
        *(_latency(np.concatenate([each[n] for each in them])) if them else None for n in (1, 2)),
    )


def spans(recorded: Recorded) -> dict[str, Spans]:
    """When each query was held and at work."""
    return {
        name: Spans(recorded.batches[name], recorded.held_since(name))
        for name in recorded.queries
        if name in recorded.batches and not _resident(recorded, name)
    }


def last_waits(recorded: Recorded, name: str) -> list[tuple[float, float]]:
    """When a query was held after its last batch, until the end if it got no turn any more."""
    turns = recorded.turns.get(name)
    if _resident(recorded, name):
        return []
    if not turns:
        # where others had turns, it waited for one from its start on
        started = recorded.started.get(name)
        if not recorded.turns or started is None or name in recorded.batches:
            return []
        return [(started.at, max(started.at, _end(recorded, name)))]
    last = recorded.batches[name][-1] if name in recorded.batches else None
    after = [turn for turn in turns if last is None or turn.at >= last.written]
    if not after and last is not None and not last.goes_on:
        return [(last.written, max(last.written, _end(recorded, name)))]
    return [(min(turn.held_since, turn.at), turn.at) for turn in after]


def last_run(recorded: Recorded, name: str) -> tuple[float, float] | None:
    """The batch in which a query failed: from its turn on. What else is not out may never begin."""
    ended, turns = recorded.ended.get(name), recorded.turns.get(name)
    if ended is None or not ended.error or not turns or _resident(recorded, name):
        return None
    began = max([turns[-1].at, *(each.written for each in recorded.batches.get(name, ())[-1:])])
    return began, max(began, ended.at)


def _end(recorded: Recorded, name: str) -> float:
    ended = recorded.ended.get(name)
    return recorded.ends if ended is None else ended.at


def results(recorded: Recorded, name: str) -> list[Result]:
    """What a query has put out, in order: its windows, or of every batch the oldest row."""
    started = recorded.started.get(name)
    bound = started.objective if started is not None else None
    windowed = _windowed(recorded, name)
    found = []
    for batch in _telling(recorded, name):
        for end, due in _dues(batch, windowed):
            latency = batch.written - due
            late = bound is not None and latency > bound + 1e-6
            found.append(Result(batch.written, latency, late, end, batch.batch))
    return found


def _resident(recorded: Recorded, name: str) -> bool:
    """Whether its rows are out long before its batches are."""
    started = recorded.started.get(name)
    return started is not None and started.resident > 0


def _telling(recorded: Recorded, name: str) -> Sequence[Batch]:
    """The batches that tell the latency of its results: of a reduce rows are counted instead."""
    if _resident(recorded, name) or name in recorded.reduced:
        return ()
    return recorded.batches.get(name, ())


def _windowed(recorded: Recorded, name: str) -> bool:
    """Whether its results are windows; batches before its window was learned had none."""
    started = recorded.started.get(name)
    known = started is not None and started.window is not None
    return known or any(batch.windows for batch in recorded.batches.get(name, ()))


def _dues(batch: Batch, windowed: bool) -> list[tuple[float, float]]:
    """What came out with a batch: its end, and when it could first be complete."""
    if windowed:
        return [(end, end + max(0.0, batch.delay)) for end in batch.ends]
    oldest = batch.planned - batch.input
    return [(oldest, oldest)] if batch.input > 0.0 else []


def _measured(recorded: Recorded, name: str) -> tuple[Array, Array, int, int]:
    """Latencies, those from windows' ends, results, and how many late; as a board counts them."""
    started = recorded.started.get(name)
    bound = math.inf if started is None or started.objective is None else started.objective
    window = started.window if started is not None else None
    windowed = _windowed(recorded, name)
    parts, delays = [np.zeros(0)], [np.zeros(0)]
    count = late = 0
    for batch in _telling(recorded, name):
        if windowed:
            delay = max(0.0, batch.delay)
            parts.append(batch.written - ends(batch, window) - delay)
            delays.append(np.full(len(parts[-1]), delay))
            count += batch.windows
            late += min(batch.late, batch.windows)
        else:
            parts.append(spread(batch))
            count += len(parts[-1])
            late += int((parts[-1] > bound).sum())
            delays.append(np.zeros(len(parts[-1])))
    for reduced in recorded.reduced.get(name, ()):
        rows, missed = rows_reduced(reduced)
        count += rows
        late += missed
    latencies = np.concatenate(parts)
    return latencies, latencies + np.concatenate(delays), count, late


def _query(recorded: Recorded, name: str, inquiry: Inquiry) -> tuple[QueryFigures, Array, Array]:
    started = recorded.started.get(name) or Started(recorded.begins, name)
    batches = recorded.batches.get(name, [])
    latencies, from_end, count, late = _measured(recorded, name)
    objective = started.objective
    reduced = recorded.reduced.get(name)
    if objective is None and reduced:
        objective = reduced[-1].objective
    ended = recorded.ended.get(name)
    causes = _causes(recorded, name, inquiry)
    phases: Counter[str] = Counter()
    for cause, rows in causes:
        if rows:
            phases[cause.phase] += rows
    slo = stated(started)
    observed = _observed(slo, latencies) if objective is not None else None
    worked = Spans(batches, recorded.held_since(name)).of
    figures = QueryFigures(
        name,
        "running" if ended is None else "failed" if ended.error else "ended",
        FAILED if ended and ended.error else measured(slo, objective, observed, count, late),
        started.slo,
        objective,
        started.window,
        observed,
        count,
        late,
        1.0 - late / count if count and objective is not None else None,
        budget(slo, count, late) if count else None,
        _latency(latencies),
        float(np.median([batch.delay for batch in batches])) if batches else 0.0,
        len(batches),
        sum(span.begun - span.held for span in worked),
        sum(span.run - span.begun for span in worked),
        sum(span.out - span.run for span in worked),
        dict(phases),
        tuple(sorted((cause for cause, _ in causes), key=lambda cause: -cause.late_by)[:WORST]),
        None if ended is None else ended.error,
        started.resident,
        _windowed(recorded, name),
        _summed(reduced).shed if reduced else None,
        sum(until - since for since, until in last_waits(recorded, name)),
        _latency(from_end),
    )
    return figures, latencies, from_end


def _causes(recorded: Recorded, name: str, inquiry: Inquiry) -> list[tuple[Cause, int]]:
    """Why results were late, and of how many rows that tells; a window counts as one."""
    started = recorded.started.get(name)
    if started is None or started.objective is None:
        return []
    bound, windowed = started.objective, _windowed(recorded, name)
    return [
        (
            inquiry.why(name, batch, end, due, due + bound),
            1 if windowed else int((spread(batch) > bound).sum()),
        )
        for batch in _telling(recorded, name)
        for end, due in _dues(batch, windowed)
        if batch.written - due > bound + 1e-6
    ]


def _observed(slo: Slo | None, latencies: Array) -> float | None:
    """The objective's own measure; where that cannot be read, the largest."""
    if not len(latencies):
        return None
    if slo is not None and slo.quantile is None:
        return float(latencies.mean())
    rank = slo.quantile if slo is not None and slo.quantile is not None else 1.0
    return float(np.quantile(latencies, rank, method="inverted_cdf"))


def _latency(latencies: Array) -> Latency | None:
    if not len(latencies):
        return None
    p50, p90, p99 = np.quantile(latencies, (0.5, 0.9, 0.99), method="inverted_cdf").tolist()
    return Latency(float(latencies.mean()), p50, p90, p99, float(latencies.max()))


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
