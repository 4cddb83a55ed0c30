"""What comes out of a reduce in the driver: results, rows put aside, and how it went."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from taut.spark.reduce.blobs import RESULT, SHED, STATS, result_schema, shed_schema, unpack
from taut.spark.reduce.ending import Ending, here
from taut.spark.reduce.job import Job
from taut.spark.reduce.terms import WRITTEN, Stats, Terms
from taut.spark.sinks import SinkFunction, beside
from taut.spark.window import Window
from taut.watch import hub
from taut.watch.records import Reduced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("taut")
_read_stats = msgspec.msgpack.Decoder(Stats).decode
_BATCHES_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Unpack:
    """Packed rows as rows; pickled to the workers."""

    job: Job
    kind: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The columns of a result, or of what was put aside."""
        result = self.kind == RESULT
        schema = result_schema(self.job) if result else shed_schema(self.job)
        for batch in batches:
            for blob in batch.column("blob"):
                rows = unpack(blob.as_py(), schema)
                if result:
                    rows = rows.select(self.job.schema.names)
                    yield rows.cast(self.job.schema)
                else:
                    name = pa.array([self.job.name] * rows.num_rows, pa.string())
                    yield rows.add_column(0, "job", name)


def rows_of(frame: DataFrame, job: Job, kind: int) -> DataFrame:
    """The rows of a job in a batch: what came out, or what was put aside."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = job.schema
    if kind == SHED:
        schema = pa.schema([("job", pa.string()), *shed_schema(job)])
    mine = frame.where((F.col("kind") == kind) & (F.col("job") == job.name))
    return mine.select("blob").mapInArrow(Unpack(job, kind), from_arrow_schema(schema))


def shed_of(frame: DataFrame, jobs: Mapping[str, Job]) -> DataFrame:
    """What all jobs have put aside in a batch.

    Keys and values of jobs whose types differ are text: keys as such, values as JSON.
    """
    from pyspark.sql import functions as F

    alike = len({(job.key_type, job.value_type) for job in jobs.values()}) == 1
    made: DataFrame | None = None
    for job in jobs.values():
        rows = rows_of(frame, job, SHED)
        if not alike:
            rows = rows.withColumn("key", F.col("key").cast("string"))
            rows = rows.withColumn("value", F.to_json(F.struct("value")))
        made = rows if made is None else made.unionByName(rows)
    assert made is not None
    return made


@dataclass(frozen=True, slots=True)
class BatchStats:
    """How one batch of a reduce went.

    Attributes
    ----------
    batch, written
        Its number, and when its results were out (epoch seconds).
    rows, processed, readmitted, bad, waiting
        Rows that came to reducers; that were worked on, now or after a wait; on which a function
        failed, in a map too; and that wait.
    on_time, late
        Of those worked on: out by their deadline, or not.
    shed
        Rows not worked on, by reason.
    hot, hot_bytes, cold
        Keys in workers' memory and their bytes; keys outside.
    row_us, cold_us
        What a row and a state outside memory are taken to cost.
    predicted
        When the results were expected out.
    began, ended
        When the first reducer began and the last one ended.
    results
        Rows that came out, of all jobs.
    lead, after
        How long it was taken to be from the plan to a reducer, and from its end until all is out.
    deadlines, shed_deadlines
        Of rows that were worked on in this batch, and of those that never will be: deadlines, to a
        hundredth of the objective, and how many rows have each.
    """

    batch: int
    written: float
    rows: int
    processed: int
    readmitted: int
    bad: int
    waiting: int
    on_time: int
    late: int
    shed: Mapping[str, int]
    hot: int
    hot_bytes: int
    cold: int
    row_us: float
    cold_us: float
    predicted: float
    began: float
    ended: float
    deadlines: Sequence[tuple[float, int]] = ()
    shed_deadlines: Sequence[tuple[float, int]] = ()
    results: int = 0
    lead: float = 0.0
    after: float = 0.0

    @classmethod
    def of(
        cls,
        batch: int,
        written: float,
        told: Sequence[Stats],
        aside: int,
        timed: bool,
        last: Iterable[Stats],
    ) -> BatchStats:
        """From what reducers tell.

        Parameters
        ----------
        told, aside
            In this batch, and how many rows were put aside in all.
        timed
            Whether there is an objective.
        last
            What each reducer told last, in this batch or before: how its keys stand.
        """
        stand = list(last)
        shed: Counter[str] = Counter()
        for stats in told:
            shed.update(stats.shed)
        deadlines = [pair for stats in told for pair in stats.deadlines]
        on_time = sum(rows for deadline, rows in deadlines if deadline >= written)
        bad = sum(stats.bad for stats in told)
        kept = sum(stats.kept for stats in told)
        readmitted = sum(stats.readmitted for stats in told)
        if not timed:
            on_time = kept - bad
        return cls(
            batch=batch,
            written=written,
            rows=sum(stats.rows for stats in told),
            processed=kept + readmitted - bad,
            readmitted=readmitted,
            bad=aside - shed.total(),
            waiting=sum(stats.waiting for stats in stand),
            on_time=on_time,
            late=kept + readmitted - bad - on_time,
            shed=dict(shed),
            hot=sum(stats.hot for stats in stand),
            hot_bytes=sum(stats.hot_bytes for stats in stand),
            cold=sum(stats.cold for stats in stand),
            row_us=max((stats.row_us for stats in told), default=0.0),
            cold_us=max((stats.cold_us for stats in told), default=0.0),
            predicted=max((stats.predicted for stats in told), default=written),
            began=min((stats.began for stats in told), default=written),
            ended=max((stats.ended for stats in told), default=written),
            deadlines=deadlines,
            shed_deadlines=[pair for stats in told for pair in stats.shed_deadlines],
            results=sum(stats.results for stats in told),
            lead=max((stats.lead for stats in told), default=0.0),
            after=max((stats.after for stats in told), default=0.0),
        )


@dataclass(slots=True)
class ReduceStats:
    """How a reduce has gone so far; ``batches`` has the last thousand one by one."""

    rows: int = 0
    processed: int = 0
    on_time: int = 0
    late: int = 0
    readmitted: int = 0
    bad: int = 0
    waiting: int = 0
    results: int = 0
    shed: dict[str, int] = field(default_factory=dict)
    batches: list[BatchStats] = field(default_factory=list)

    @property
    def on_time_share(self) -> float:
        """Of the rows that came, those that were out on time; 1 without any."""
        return self.on_time / self.rows if self.rows else 1.0


class ReduceSink:
    """Writes the results of a batch and what was put aside, and hears how it went."""

    def __init__(
        self,
        jobs: Mapping[str, Job],
        terms: Terms,
        results: Mapping[str, SinkFunction],
        shed: SinkFunction | None,
        spark: SparkSession | None = None,
    ) -> None:
        self._jobs = jobs
        self._terms = terms
        self._results = results
        self._shed = shed
        self._lock = threading.Lock()
        self._first = True
        self._warned = False
        self._stats = ReduceStats()
        self._last: dict[tuple[int, str], Stats] = {}
        self._ending = Ending(spark)
        self._spark = spark
        self._query: str | None = None

    @property
    def parts(self) -> list[SinkFunction]:
        """The sinks that it writes to."""
        return [*self._results.values(), *([self._shed] if self._shed else [])]

    def beside(self, name: str) -> ReduceSink:
        """One that has heard nothing yet, whose files go beside those of this one."""
        results = {job: beside(sink, name) for job, sink in self._results.items()}
        shed = None if self._shed is None else beside(self._shed, name)
        return ReduceSink(self._jobs, self._terms, results, shed, self._spark)

    @property
    def window(self) -> Window | None:
        """The window of the job that comes last, if it has one."""
        windows = list(self._jobs.values())[-1].windows
        return windows.window if windows is not None else None

    def stats(self) -> ReduceStats:
        """How it has gone since this sink was made."""
        with self._lock:
            s = self._stats
            return ReduceStats(
                s.rows, s.processed, s.on_time, s.late, s.readmitted, s.bad, s.waiting,
                s.results, dict(s.shed), list(s.batches),
            )  # fmt: skip

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch. It is computed once: what both parts see is the same."""
        from pyspark.sql import functions as F

        df.persist()
        try:
            for name, sink in self._results.items():
                sink(rows_of(df, self._jobs[name], RESULT), batch_id)
            written = time.time()
            stats = F.when(F.col("kind") == STATS, F.col("blob")).alias("stats")
            heard = df.where(F.col("kind").isin(STATS, SHED)).select("rows", stats).collect()
            told = [_read_stats(row.stats) for row in heard if row.stats is not None]
            aside = sum(row.rows for row in heard if row.stats is None)
            # a batch that comes again after a crash may have put rows aside then
            if self._shed is not None and (aside or self._first):
                self._shed(shed_of(df, self._jobs), batch_id)
        finally:
            df.unpersist()
        again, self._first = self._first, False
        df.sparkSession.sparkContext.setLocalProperty(WRITTEN, f"{batch_id}:{written!r}")
        batch = self.hear(batch_id, written, told, aside)
        # the first may be one without rows that was begun before, with rows to come after it
        if self._terms.waits and not (batch.rows or batch.waiting or again):
            self._ending.after(batch_id)

    def _warn(self, batch_id: int, told: Sequence[Stats]) -> None:
        """Say once that no row is expected on time, whatever is chosen."""
        alone = max((stats.lead + stats.after for stats in told), default=0.0)
        if alone > self._terms.objective and not self._warned:
            self._warned = True
            log.warning(
                "batch %d is taken to need %.2f s before and after its rows are worked on, and "
                "they are to be out within %g s: none is expected on time. Give it more time, or "
                "the machine less to do",
                batch_id,
                alone,
                self._terms.objective,
            )

    def hear(self, batch_id: int, written: float, told: Sequence[Stats], aside: int) -> BatchStats:
        """Count what reducers tell of a batch; a reducer that was not called stands as before."""
        for each in sorted(told, key=lambda each: each.ended):
            self._last[each.reducer, each.job] = each
        self._warn(batch_id, told)
        timed = self._terms.objective < math.inf
        batch = BatchStats.of(batch_id, written, told, aside, timed, self._last.values())
        with self._lock:
            s = self._stats
            s.rows += batch.rows
            s.processed += batch.processed
            s.on_time += batch.on_time
            s.late += batch.late
            s.readmitted += batch.readmitted
            s.bad += batch.bad
            s.waiting = batch.waiting
            s.results += batch.results
            for reason, rows in batch.shed.items():
                s.shed[reason] = s.shed.get(reason, 0) + rows
            s.batches.append(batch)
            del s.batches[:-_BATCHES_KEPT]
        if hub.heard():
            hub.tell(self._record(batch))
        return batch

    def _record(self, batch: BatchStats) -> Reduced:
        """For those who watch."""
        if self._query is None:
            self._query = self._name()
        objective = self._terms.objective
        same = ("batch", "rows", "processed", "waiting", "on_time", "late", "bad", "hot",
                "hot_bytes", "cold", "began", "ended", "predicted")  # fmt: skip
        return Reduced(
            at=batch.written,
            query=self._query,
            objective=objective if objective < math.inf else None,
            shed=dict(batch.shed),
            **{name: getattr(batch, name) for name in same},
        )

    def _name(self) -> str:
        """Of the query in whose sink we are; of the last job where it has none."""
        try:
            query = None if self._spark is None else here(self._spark)
        except Exception as error:  # who watches must not end what is watched
            log.warning("watch: the name of a reduce's query cannot be found: %r", error)
            query = None
        return (query and query.name) or next(reversed(list(self._jobs)), "")
