"""One run at given settings and rate: what was its latency?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from taut.bench.place import Place
from taut.bench.plan.jobs import WINDOW_S, Ends, app
from taut.bench.record import BenchError
from taut.bench.rounds import quantile
from taut.planning.plan import Plan
from taut.planning.quantile import Spans
from taut.planning.settings import Settings
from taut.slo import Slo
from taut.spark.planning.app import App, configured, made
from taut.spark.planning.running import Planned
from taut.spark.reduce.outcome import BatchStats, ReduceSink
from taut.spark.sinks import SinkFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LEAD_S = 1.0
_LOOK_S = 0.1
_STARTS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    variant: str
    round: int
    phase: str
    left_s: float = 0.0
    rows: int = 0


Watcher = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """Latency in seconds; of what never came out, as long as it was waited for.

    ``ended``: the run was given up, as its objective was missed whatever came.
    """

    mean: float
    p50: float
    p90: float
    p99: float
    results: int
    ended: bool = False

    def of(self, slo: Slo) -> float:
        """What an objective bounds; only what is measured here."""
        known = {None: self.mean, 0.5: self.p50, 0.9: self.p90, 0.99: self.p99}
        if slo.quantile not in known:
            raise BenchError(f"{slo}: mean, p50, p90 or p99 is needed")
        return known[slo.quantile]


def run(
    place: Place,
    workload: str,
    settings: Settings,
    rate: int,
    seconds: float,
    warm_up: float,
    name: str,
    watch: Watcher,
    patience: float,
    give_up: Slo | None = None,
    plan: Plan | None = None,
    seen: Callable[[Planned], None] = lambda planned: None,
) -> Measured:
    """Let rows arrive for the warm-up and the measured time, and wait for what is not out yet.

    With an objective to give up at, only until it is missed, whatever may still come. With a plan
    it is applied, and ``seen`` is handed the job before that is stopped.
    """
    start = time.time() + _LEAD_S
    ends = Ends("end" if workload == "windowed-words" else None)
    folder = Path(tempfile.mkdtemp(dir=place.folder))
    job, checkpoint = app(workload, rate, start, ends), folder / "checkpoint"
    if plan is None:
        query, sink = _started(place, job, settings, checkpoint)
        planned = None
    else:
        planned, sink = _applied(place, job, plan, checkpoint)
        query = planned.query
    begin = end = start + _STARTS_WITHIN_S + warm_up
    started = False
    try:
        while (now := time.time()) < end + patience:
            if not query.isActive:
                raise BenchError(f"{name}: the query ended: {query.exception()}")
            batches = sink.stats().batches
            rows = sum(batch.rows for batch in batches)
            if rows and not started:
                started, begin = True, now + warm_up
                end = begin + seconds
            # the time from the last arrival on is only for what is not out yet
            if started and now > end and all_out(batches, ends, start, rate, end):
                break
            if give_up and started and now > begin:
                so_far = latency_of(batches, ends, start, rate, begin, end, now)
                if so_far.of(give_up) > give_up.seconds:
                    return replace(so_far, ended=True)
            phase = "warming up" if now < begin else "measuring" if now < end else "waiting"
            watch(Progress(name, 0, phase, max(0.0, end - now), rows))
            time.sleep(_LOOK_S)
        told = latency_of(sink.stats().batches, ends, start, rate, begin, end, end + patience)
        if planned is not None:
            seen(planned)
        return told
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    place: Place, job: App, settings: Settings, checkpoint: Path
) -> tuple[StreamingQuery, ReduceSink]:
    with configured(place.spark, settings):
        frame, sink = made(job, place.spark, settings)
        assert isinstance(sink, ReduceSink)
        writer = frame.writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(**settings.trigger_options()).start(), sink


def _applied(place: Place, job: App, plan: Plan, checkpoint: Path) -> tuple[Planned, ReduceSink]:
    sinks: list[ReduceSink] = []

    def kept(spark: SparkSession, settings: Settings) -> tuple[DataFrame, SinkFunction]:
        frame, sink = made(job, spark, settings)
        assert isinstance(sink, ReduceSink)
        sinks.append(sink)
        return frame, sink

    planned = plan.apply(place.spark, kept, checkpoint)
    return planned, sinks[0]


def latency_of(
    batches: list[BatchStats],
    ends: Ends,
    start: float,
    rate: int,
    begin: float,
    end: float,
    now: float,
) -> Measured:
    """Of rows by their schedule; of windows where there are some."""
    if ends.window_column is not None:
        return of_windows(ends.out(), begin, end, now)
    if batches and batches[0].batch:
        raise BenchError(f"{batches[-1].batch + 1} batches: more than are known; measure for less")
    return of_rows(batches, start, rate, begin, end, now)


def all_out(batches: list[BatchStats], ends: Ends, start: float, rate: int, end: float) -> bool:
    """Whether what arrived until ``end`` is out."""
    if ends.window_column is not None:
        return max(ends.out(), default=0.0) >= end
    return start + sum(batch.rows for batch in batches) / rate >= end


def of_rows(
    batches: list[BatchStats], start: float, rate: int, begin: float, end: float, now: float
) -> Measured:
    """Row n arrived at ``start + n / rate``, and is out with its batch; each counts.

    What is not out is as late as it is now; what has not come yet is taken to be out at once.

    >>> from types import SimpleNamespace as Batch
    >>> two = [Batch(rows=10, written=2.0), Batch(rows=10, written=3.0)]
    >>> told = of_rows(two, 0.0, 10, 0.0, 2.0, 9.0)
    >>> told.mean, told.results
    (1.5, 20)
    """
    spans = []
    first = 0
    for batch in batches:
        low, high = start + first / rate, start + (first + batch.rows) / rate
        first += batch.rows
        if min(high, end) > max(low, begin):
            low, high = max(low, begin), min(high, end)
            spans.append((batch.written - high, high - low, high - low))
    out, come = max(start + first / rate, begin), min(end, now)
    if out < come:
        spans.append((now - come, come - out, come - out))
    if max(out, come) < end:
        spans.append((0.0, 0.0, end - max(out, come)))
    shape = Spans(*(np.array(column) for column in zip(*spans, strict=True)))
    p50, p90, p99 = (shape.quantile(share) for share in (0.5, 0.9, 0.99))
    return Measured(shape.moments().mean, p50, p90, p99, round(rate * float(shape.rows.sum())))


def of_windows(written: dict[float, float], begin: float, end: float, now: float) -> Measured:
    """Of windows that end in the measured time; not out and not come yet is as with rows."""
    due = np.arange(np.ceil(begin / WINDOW_S), np.floor(end / WINDOW_S) + 1) * WINDOW_S
    late = sorted(max(0.0, written.get(float(at), now) - float(at)) for at in due)
    if not late:
        raise BenchError(f"no window ended in {end - begin:g} s: measure for longer")
    p50, p90, p99 = (quantile(late, share) for share in (0.5, 0.9, 0.99))
    return Measured(float(np.mean(late)), p50, p90, p99, len(late))
