"""What the batches of a query took, phase by phase, from what Spark keeps of them anyway.

The progress of a query says when a batch started and how long the driver was at it; the status
store has its stages; the sink is timed by being called. Nothing listens, no job is added.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from taut.planning.profile import Sample, Windows
from taut.planning.settings import Settings
from taut.spark.gate import JvmLatch
from taut.spark.reduce.outcome import BatchStats, ReduceSink
from taut.spark.sinks import SinkFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.05
_BETWEEN_S = 0.05
"""What Spark may need between two batches that follow each other."""
_KEPT = 1_000
"""Batches remembered: Spark keeps the progress of fewer."""
_PLANNING = ("latestOffset", "getOffset", "getBatch", "queryPlanning")


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that ran side by side; ``reduces`` if they read what others had shuffled."""

    began: float
    ended: float
    tasks: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that has been written, and the start of the one that followed."""

    number: int
    start: float
    written: float
    next_start: float
    sample: Sample


class Meter:
    """A sink that times the one it calls, and may hold its query after some batches.

    ``windows`` are those that the job has, if any; ``batches`` how many it runs before it is held
    for the first time, None for without end.
    """

    def __init__(
        self,
        spark: SparkSession,
        sink: SinkFunction,
        settings: Settings,
        windows: Windows | None = None,
        batches: int | None = None,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._settings = settings
        self._windows = windows
        self.written: dict[int, float] = {}
        self._let_go: dict[int, float] = {}
        self._counts: dict[int, Observation] = {}
        self._latch = JvmLatch(spark._jvm)
        self._left = batches
        self._closing = False
        self.held = threading.Event()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch, and note when it was out and how many rows that were."""
        if isinstance(self._sink, ReduceSink):
            self._sink(df, batch_id)
        else:
            self._count_and_write(df, batch_id)
        self.written[batch_id] = time.time()
        for kept in (self.written, self._counts, self._let_go):
            kept.pop(batch_id - _KEPT, None)
        if self._left is not None:
            self._left -= 1
        if self._closing or (self._left is not None and self._left <= 0):
            self.held.set()
            self._latch.wait()
            self._let_go[batch_id] = time.time()

    def resume(self, batches: int) -> None:
        """Let a query that is held run so many more."""
        self._left = batches
        self.held.clear()
        self._latch.open()

    def hold(self) -> None:
        """Let it run no more than the batch that comes next."""
        self._left = 0

    def stop(self, query: StreamingQuery, within: float = 30.0) -> None:
        """End the query after the batch that runs: Spark tells of an interrupted one at length."""
        self._closing = True
        limit = time.monotonic() + within
        while query.isActive and not self.held.wait(_LOOK_S) and time.monotonic() < limit:
            pass
        query.stop()

    def batches(
        self, progress: Sequence[Any], stages: Sequence[Stage] | None = None
    ) -> list[Batch]:
        """Those that were written, counted and followed by another, of ``query.recentProgress``.

        ``stages``, where somebody has read them already, or none are needed. Where they are read
        here, batches of which Spark has forgotten some are left out.
        """
        told: dict[int, BatchStats] = {}
        if isinstance(self._sink, ReduceSink):
            told = {batch.batch: batch for batch in self._sink.stats().batches}
        starts = {int(each["batchId"]): each for each in progress}
        numbers = sorted(number for number in starts if number in self.written)
        counts = any(_done(count) for count in list(self._counts.values()))
        following = [
            (a, b)
            for a, b in pairwise(numbers)
            # told by a listener some time after the batch, and never of a sink that runs nothing
            if b == a + 1 and (not counts or a not in self._counts or _done(self._counts[a]))
        ]
        if not following:
            return []
        if stages is None:
            stages = read_stages(self._spark, _epoch(starts[following[0][0]]["timestamp"]))
            oldest = min((stage.began for stage in stages), default=math.inf)
            known = [(a, b) for a, b in following if _epoch(starts[a]["timestamp"]) >= oldest]
            # the oldest stage is one of the first batch, unless Spark has forgotten some
            following = known if len(known) < len(following) - 1 else following
        times = [each["eventTime"] for each in progress]
        first = min((_epoch(each["min"]) for each in times if "min" in each), default=0.0)
        return [
            self._batch(
                starts[a],
                _epoch(starts[b]["timestamp"]),
                stages,
                told.get(a),
                _swept(starts.get(a - 1), starts[a]),
                self._filled(first, starts[a]),
            )
            for a, b in following
        ]

    def _batch(
        self,
        progress: Any,
        next_start: float,
        stages: Sequence[Stage],
        told: BatchStats | None,
        swept: float,
        filled: float,
    ) -> Batch:
        number, start = int(progress["batchId"]), _epoch(progress["timestamp"])
        written, out = self.written[number], self._count(number)
        rows = int(progress["numInputRows"])
        states = sum(int(one["numRowsTotal"]) for one in progress["stateOperators"])
        if told is not None:
            # a source may give ranges that only become rows later: reducers have counted
            written, rows, out = told.written, told.rows, told.results
            states = told.hot + told.cold
        took = {name: ms / 1e3 for name, ms in progress["durationMs"].items()}
        mine = [stage for stage in stages if start <= stage.began and stage.ended <= written]
        spent = {
            "plan": sum(took.get(name, 0.0) for name in _PLANNING),
            "log": took.get("walCommit", 0.0),
            "map": sum(stage.ended - stage.began for stage in mine if not stage.reduces),
            "reduce": sum(stage.ended - stage.began for stage in mine if stage.reduces),
        }
        spent["write"] = max(0.0, written - start - sum(spent.values()))
        # while it was held, nothing was done; nor while it waited for its interval, or for rows: a
        # Taut source waits for those for a tenth of a second while it plans, and that does count
        held = self._let_go.get(number, self.written[number]) - self.written[number]
        ended = start + took["triggerExecution"]
        if next_start - ended < _BETWEEN_S:
            ended = next_start
        spent["after"] = max(0.0, ended - written - held)
        sample = Sample(
            lanes=max((s.tasks for s in mine if not s.reduces), default=self._settings.lanes),
            reducers=max((s.tasks for s in mine if s.reduces), default=self._settings.reducers),
            rows=rows,
            out=out,
            state_rows=states,
            seconds=spent,
            swept=swept,
            filled=filled,
        )
        return Batch(number, start, written, next_start, sample)

    def _filled(self, first: float, progress: Any) -> float:
        """Seconds of rows in the only window that is open, if there is only one."""
        times = progress["eventTime"]
        if self._windows is None or "max" not in times or "watermark" not in times:
            return 0.0
        return self._windows.filled(first, _epoch(times["watermark"]), _epoch(times["max"]))

    def _count_and_write(self, df: DataFrame, batch_id: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        # counted while it is written: a second action would run the batch again
        self._counts[batch_id] = count = Observation()
        self._sink(df.observe(count, F.count(F.lit(1)).alias("rows")), batch_id)

    def _count(self, number: int) -> int:
        count = self._counts.get(number)
        return 0 if count is None or not _done(count) else int(count.get["rows"])


def read_stages(spark: SparkSession, since: float) -> list[Stage]:
    """Stages that Spark still remembers, from a moment on, as its own status store has them."""
    jvm = spark._jvm
    assert jvm is not None
    store = spark.sparkContext._jsc.sc().statusStore()
    nothing = jvm.java.util.Collections.emptyList()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    quantiles = gateway.new_array(jvm.double, 0)
    found = store.stageList(nothing, False, False, quantiles, nothing)
    told = []
    for index in range(found.size()):
        stage = found.apply(index)
        began, ended = stage.submissionTime(), stage.completionTime()
        if began.isEmpty() or ended.isEmpty():
            continue
        start = began.get().getTime() / 1e3
        if start < since:
            # newest first
            break
        reduces = stage.shuffleReadRecords() > 0
        told.append(Stage(start, ended.get().getTime() / 1e3, stage.numTasks(), reduces))
    return told


def _swept(before: Any, progress: Any) -> float:
    """Seconds by which the watermark went on from one batch to the next."""
    told = [each["eventTime"] for each in (before, progress) if each is not None]
    marks = [_epoch(times["watermark"]) for times in told if "watermark" in times]
    if len(marks) < 2:
        return 0.0
    first, last = marks
    # from the epoch on: the first rows, not rows of fifty years
    return max(0.0, last - first) if first > 0.0 else 0.0


def _done(count: Observation) -> bool:
    return count._jo is not None and bool(count._jo.future().isCompleted())


def _epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
