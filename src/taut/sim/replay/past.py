"""From the records of a run to what its queries can be replayed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from taut.sim.replay.costs import Cost, Pace, begun_at, fit
from taut.sim.replay.query import Front, Past, Result
from taut.watch.recorded import Recorded
from taut.watch.records import Batch, Started

ROWS_EVERY = 1.0
"""Seconds between two rows of a query without windows whose latency is taken."""


def pasts(recorded: Recorded, cores: float | None = None) -> tuple[Pace, list[Past], list[str]]:
    """The pace of batches side by side, what is known of each query, and what is left out."""
    left_out = []
    batches = {}
    for name in recorded.queries:
        started = recorded.started.get(name)
        if started is not None and started.resident:
            left_out.append(f"{name}: its source is resident, so it takes no turns")
        elif not recorded.batches.get(name):
            left_out.append(f"{name}: wrote no batch")
        else:
            batches[name] = recorded.batches[name]
    pace, costs = fit(batches, cores or _cores(recorded))
    found = [_past(recorded, name, them, costs[name]) for name, them in batches.items()]
    left_out += [
        f"{past.name}: no result that could be compared; it runs all the same"
        for past in found
        if not past.results
    ]
    return pace, found, left_out


def results(batches: Sequence[Batch], started: Started | None, zero: float = 0.0) -> list[Result]:
    """What came out and when, on a clock that begins at ``zero``."""
    bound = math.inf if started is None or started.objective is None else started.objective
    found = [
        Result(end - zero, end - zero + batch.delay + bound, batch.written - zero)
        for batch in batches
        for end in batch.ends
    ]
    if not found and (started is None or started.window is None):
        found = [
            Result(row - zero, row - zero + bound, batch.written - zero)
            for batch in batches
            for row in _rows(batch, zero)
        ]
    unique = {round(each.end, 6): each for each in reversed(found)}
    return [unique[end] for end in sorted(unique)]


def _rows(batch: Batch, zero: float) -> list[float]:
    """Rows that a batch has read, one for every so many seconds of arrivals.

    Those that came before the run, while a query was down, no policy could have put out earlier.
    """
    since = max(zero, batch.planned - batch.input)
    first = math.floor(since / ROWS_EVERY) + 1
    last = math.floor(batch.planned / ROWS_EVERY)
    return [n * ROWS_EVERY for n in range(first, last + 1)]


def _cores(recorded: Recorded) -> float:
    cores = recorded.run.machine.get("cores")
    return (
        float(cores)
        if isinstance(cores, int | float) and cores > 0
        else float(max(1, recorded.run.concurrency))
    )


def _past(recorded: Recorded, name: str, batches: Sequence[Batch], cost: Cost) -> Past:
    zero, started = recorded.begins, recorded.started.get(name)
    out = results(batches, started, zero)
    windowed = any(batch.ends for batch in batches) or (
        started is not None and started.window is not None
    )
    ended = recorded.ended.get(name)
    return Past(
        name,
        objective=(started.objective if started else None) or 0.0,
        slide=_slide(started, out) if windowed else None,
        results=tuple(out),
        begins=max(0.0, min(batches[0].planned, batches[0].begun) - zero),
        ends=None if ended is None else ended.at - zero,
        front=Front(_reads(batches, zero), _gaps(recorded, name, batches, zero)),
        cost=cost,
        times=tuple(at - zero for at in begun_at(batches)),
    )


def _slide(started: Started | None, out: Sequence[Result]) -> float:
    if started is not None and started.window is not None:
        return started.window[1]
    steps = [after.end - before.end for before, after in pairwise(out)]
    return min(steps, default=math.inf)


def _reads(batches: Sequence[Batch], zero: float) -> list[tuple[float, float]]:
    """Up to when a batch had read, and the watermark that this led to: that of the next one."""
    first = batches[0]
    before = [(first.planned - first.input, first.watermark)] if first.input > 0.0 else []
    after = [
        (before.planned, after.watermark)
        for before, after in pairwise(batches)
        if after.batch != before.batch
    ]
    return [(read - zero, mark - zero) for read, mark in before + after if mark > 0.0]


def _gaps(
    recorded: Recorded, name: str, batches: Sequence[Batch], zero: float
) -> list[tuple[float, float]]:
    """From a read until the batch that was planned without a turn: data came only then."""
    granted = {turn.at for turn in recorded.turns.get(name, ()) if turn.why == "planned"}
    return [
        (before.planned - zero, after.planned - zero)
        for before, after in pairwise(batches)
        if after.granted in granted and after.planned <= after.granted
    ]
