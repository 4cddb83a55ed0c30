"""A query that Spark runs by itself: no gate, no turns; told to those who watch all the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from taut.slo import Slo
from taut.spark.checkpoint import CheckpointLock
from taut.spark.freely import FreeBatches
from taut.spark.gate import Interrupted
from taut.spark.sinks import SinkFunction
from taut.spark.source.control import Sources
from taut.spark.started import Stands, StartedQuery, Status
from taut.spark.watching import Watching
from taut.spark.window import Shape, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StockQuery(StartedQuery):
    """A query that Spark runs by itself, as the baselines do."""

    cpu_seconds = 0.0

    def __init__(
        self,
        name: str,
        sink: SinkFunction,
        slo: Slo | None,
        shape: Shape,
        lock: CheckpointLock,
        sources: Sources,
        watching: Watching | None = None,
    ) -> None:
        self.name = name
        self.slo = slo
        self.shape = shape
        self.sink = sink
        self.resident = sources.resident
        self._sources = sources
        self._lock_file = lock
        self._ending = False
        # rows of a resident query are out long before its batch is
        closes = None if self.resident else shape
        self._batches = FreeBatches(name, closes, slo.seconds if slo else 0.0, watching)
        self._jvm: Any = None

    def begin(self, writer: Any, spark: SparkSession, pool: str | None) -> None:
        """Start it, in a scheduler pool of its own if one is named."""
        self._sources.announce()
        self._jvm = spark._jvm
        key = "spark.scheduler.pool"
        before = spark.sparkContext.getLocalProperty(key)
        if pool is not None:
            spark.sparkContext.setLocalProperty(key, pool)
        try:
            self.query = writer.foreachBatch(self._write).start()
        finally:
            if pool is not None:
                spark.sparkContext._jsc.setLocalProperty(key, before)

    @property
    def window(self) -> Window | None:
        """The window of its plan."""
        return self.shape.window

    def stands(self, now: float) -> Stands | None:
        """It runs, or it has ended."""
        return Stands("running", self.started_at, None, None) if self.active else None

    def status(self) -> Status:
        """Where the query stands."""
        error = self.error()
        state = "running" if self.active else "failed" if error else "ended"
        last = self.query.lastProgress if self.begun else None
        return Status(self.name, state, batches=last["batchId"] + 1 if last else 0, error=error)

    def drain(self) -> None:
        """Nothing holds it, so there is nothing to let go."""

    def end(self, deadline: float) -> bool:
        """Stop it as Spark does, which interrupts a running batch."""
        self._ending = True
        self.query.stop()
        self.release()
        self._sources.hear_out(deadline)
        return True

    def _write(self, df: DataFrame, batch_id: int) -> None:
        run = time.time()
        try:
            self.sink(df, batch_id)
        except Exception:
            # whatever an interrupted sink says: Spark's look at a long error overflows its stack
            if self._ending:
                raise Interrupted from None
            raise
        written = time.time()
        query = self.query if self.begun else None
        began = time.thread_time()
        self._batches.wrote(self._jvm, query, batch_id, run, written)
        self.cpu_seconds += time.thread_time() - began
