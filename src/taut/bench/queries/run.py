"""One run: N queries of a workload under one policy, from start to stop."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.bench.place import Place
from taut.bench.queries.figures import Run, Sample
from taut.bench.queries.watched import WATCHED, trace_of, watched
from taut.bench.record import BenchError
from taut.slo import Slo
from taut.workloads import Delay, Load, Workload, workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from taut.bench.queries.shown import Shown

_LOOK_EVERY_S = 0.25
_HEALTH_EVERY_S = 2.0
_START_EACH_S = 1.5
_START_EACH_COLD_S = 2.5


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run; one Spec for every policy and round.

    ``rate=None`` takes the workload's own, ``grace_s=None`` the larger of 60 s and 5 windows;
    ``shown`` is the page to look at meanwhile.
    """

    workload: str = "ads"
    queries: int = 16
    window_s: float = 12.0
    seconds: float = 60.0
    rate: int | None = None
    concurrency: int | None = None
    slo: str = "p99 <= 1 s"
    warm_up_bound_s: float | None = None
    grace_s: float | None = None
    shown: Shown | None = None

    @property
    def what(self) -> Workload:
        """The workload itself."""
        return workload(self.workload)

    @property
    def rows_per_s(self) -> int:
        """The rate that each query is offered."""
        return self.what.rate if self.rate is None else self.rate

    @property
    def warm_up_bound(self) -> float:
        """The longest that a run warms up."""
        given = self.warm_up_bound_s
        return max(60.0, 4 * self.window_s) if given is None else given

    @property
    def grace(self) -> float:
        """How long after the measured time a due window may still come."""
        given = self.grace_s
        return max(60.0, 5 * self.window_s) if given is None else given

    def due(self, after: float, before: float) -> list[tuple[int, int]]:
        """Every (query, window end in ms) that is due in ``[after, before)``."""
        return [
            (index, end)
            for index in range(self.queries)
            for end in self.what.due_ms(index, self.queries, self.window_s, after, before)
        ]


class Collector:
    """When each window of each query was first written. One writer per query: no lock."""

    def __init__(self, queries: int) -> None:
        self._written: list[dict[int, float]] = [{} for _ in range(queries)]
        self._closed = False

    def close(self) -> None:
        """From now on batches may be cut short."""
        self._closed = True

    def sink(self, index: int) -> Callable[[DataFrame, int], None]:
        """The sink of query ``index``: takes every row to the driver and notes the time."""
        written = self._written[index]

        def sink(batch: DataFrame, batch_id: int) -> None:
            try:
                rows = batch.collect()
            except Exception:
                # Stopping a query cancels its batch: an error that says nothing about the run.
                # Raised, it was seen to end Spark's stream thread in a StackOverflowError.
                if self._closed:
                    return
                raise
            now = time.time()
            for end in {row["end"] for row in rows}:
                written.setdefault(round(end.timestamp() * 1_000), now)

        return sink

    def first_after(self, since: float) -> int:
        """How many queries have written a window that ended after ``since``."""
        return sum(any(end > since * 1_000 for end in list(written)) for written in self._written)

    def sample(self, due: tuple[int, int]) -> Sample:
        """What became of a window that was due."""
        index, end = due
        at = self._written[index].get(end)
        return Sample(index, end, None if at is None else at - end / 1_000)


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    policy: str
    round: int
    phase: str
    left_s: float
    due: int = 0
    latencies: tuple[float, ...] = ()


Watcher = Callable[[Progress], None]


def warm_jvm(place: Place, spec: Spec, watch: Watcher) -> float:
    """Run the same queries for a while, so that no policy pays for compiling their code.

    Returns how long that took, in seconds.
    """
    begun = time.monotonic()
    short = replace(
        spec, seconds=min(spec.window_s, spec.seconds), warm_up_bound_s=spec.window_s, grace_s=0.0
    )
    run(place, short, "spark-default", 0, lambda now: watch(replace(now, policy="the JVM")))
    return time.monotonic() - begun


def run(place: Place, spec: Spec, policy: str, round_: int, watch: Watcher) -> Run:
    """Start the queries, warm up, measure, wait for what is still due, stop."""
    import taut

    spark = place.spark
    folder = Path(tempfile.mkdtemp(dir=place.folder))
    collector = Collector(spec.queries)
    extra: dict[str, Any] = {} if spec.concurrency is None else {"concurrency": spec.concurrency}
    named = "least-slack" if policy == WATCHED else policy
    runtime = taut.Runtime(spark, policy=named, trace=trace_of(policy, folder), **extra)
    begun = time.monotonic()
    # Queries start on an idle Spark: the first of them would else keep the last from starting.
    each = _START_EACH_S if round_ else _START_EACH_COLD_S
    load = Load(time.time() + each * spec.queries, spec.rows_per_s)
    with contextlib.ExitStack() as end:
        end.callback(shutil.rmtree, folder, ignore_errors=True)
        end.callback(runtime.stop, timeout=30)
        end.callback(collector.close)
        end.callback(watch, Progress(policy, round_, "stopping", 0.0))
        if policy == WATCHED:
            end.enter_context(watched(runtime))
        if spec.shown is not None:
            end.callback(spec.shown.over)
            spec.shown.warming_up(runtime)
        queries = []
        for index in range(spec.queries):
            watch(Progress(policy, round_, "starting", 0.0))
            frame = spec.what.build(spark, index, spec.queries, spec.window_s, load, Delay())
            handle = runtime.start(
                frame,
                name=f"{spec.workload}-{index}",
                sink=collector.sink(index),
                slo=spec.slo,
                checkpoint=str(folder / str(index)),
            )
            queries.append(handle.query)
        stage = _Stage(spec, policy, round_, queries, collector, watch, load.start)
        warm_up_s = stage.warm_up()
        if spec.shown is not None and round_:
            spec.shown.counting(runtime)
        after, samples = stage.measure()
        rows, batches = _work_done(queries, after, after + spec.seconds)
        spent = runtime.overhead()
        return Run(
            policy, round_, samples, spec.seconds, rows, batches, warm_up_s,
            None if spent is None else spent / (time.monotonic() - begun), Slo(spec.slo).seconds,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Stage:
    """A run whose queries are all started."""

    spec: Spec
    policy: str
    round: int
    queries: list[Any]
    collector: Collector
    watch: Watcher
    load_start: float

    def warm_up(self) -> float:
        """Until every query has written a window, and for one window at least."""
        begun = max(time.time(), self.load_start)
        least, most = begun + self.spec.window_s, begun + self.spec.warm_up_bound
        for now in self._ticks():
            warm = self.collector.first_after(begun) == self.spec.queries
            if now >= most or (now >= least and warm):
                return now - begun
            self._tell("warming up", (least if warm else most) - now)
        raise AssertionError("the ticks never end")

    def measure(self) -> tuple[float, tuple[Sample, ...]]:
        """Until every window due in the measured time is out, or the grace is over."""
        after = time.time()
        before = after + self.spec.seconds
        due = self.spec.due(after, before)
        for now in self._ticks():
            samples = tuple(map(self.collector.sample, due))
            out = tuple(s.latency_s for s in samples if s.latency_s is not None)
            over = now >= before and len(out) == len(due)
            if over or now >= before + self.spec.grace:
                self._tell("done", 0.0, len(due), out)
                return after, samples
            so_far = len(due) if now >= before else len(self.spec.due(after, now))
            phase = "measuring" if now < before else "waiting for the last"
            left = (before if now < before else before + self.spec.grace) - now
            self._tell(phase, left, so_far, out)
        raise AssertionError("the ticks never end")

    def _tell(
        self, phase: str, left_s: float, due: int = 0, latencies: tuple[float, ...] = ()
    ) -> None:
        self.watch(Progress(self.policy, self.round, phase, left_s, due, latencies))

    def _ticks(self) -> Iterator[float]:
        looked = 0.0
        while True:
            now = time.time()
            if now - looked >= _HEALTH_EVERY_S:
                looked = now
                self._check_alive()
            yield now
            time.sleep(_LOOK_EVERY_S)

    def _check_alive(self) -> None:
        for query in self.queries:
            if not query.isActive:
                why = query.exception()
                raise BenchError(f"query {query.name} ended under {self.policy}: {why}")


def _work_done(queries: list[Any], after: float, before: float) -> tuple[int, int]:
    """Rows and batches of the batches that began in ``[after, before)``."""
    rows = batches = 0
    for query in queries:
        for progress in query.recentProgress:
            began = datetime.fromisoformat(progress["timestamp"]).timestamp()
            # Spark also reports that an idle query is idle: that is no batch.
            if after <= began < before and "addBatch" in progress["durationMs"]:
                rows += sum(
                    _rows(s["endOffset"]) - _rows(s["startOffset"]) for s in progress.sources
                )
                batches += 1
    return rows, batches


def _rows(offset: object) -> int:
    """Rows up to an offset of the load, whose rows Spark sees as ranges; None before the first."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return int(found["rows"]) if isinstance(found, dict) else 0
