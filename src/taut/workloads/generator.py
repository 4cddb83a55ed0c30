"""The load: a data source whose rows arrive by a schedule, whatever the reader does.

Row ``n`` arrives at ``start + n / rate``. A query that falls behind finds its backlog waiting,
so latencies never leave out the time that a slow reader kept the load from being offered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from taut.workloads.windows import WorkloadError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

FORMAT = "taut-load"
RANGES = "taut-load-ranges"
# Spark asks an idle source again after 10 ms, from one process per source.
_LONGEST_WAIT_S = 0.05
_CHUNK = 65_536
_MICRO = 1_000_000

_registered: WeakSet[SparkSession] = WeakSet()


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each row arrives. Integers throughout: the same to the microsecond in every process.

    Examples
    --------
    >>> schedule = Schedule(start_us=0, rate=1_000)
    >>> schedule.arrival_us(5), schedule.rows_by(5_000), schedule.rows_by(4_999)
    (5000, 6, 5)
    """

    start_us: int
    rate: int
    total: int | None = None

    def __post_init__(self) -> None:
        if self.rate < 1:
            raise WorkloadError(f"rate={self.rate}: must be at least 1 row a second")
        if self.total is not None and self.total < 0:
            raise WorkloadError(f"total={self.total}: must be 0 rows or more")

    def arrival_us(self, n: int) -> int:
        """When row ``n`` arrives, in epoch microseconds."""
        return self.start_us + n * _MICRO // self.rate

    def rows_by(self, now_us: int) -> int:
        """How many rows have arrived by ``now_us``: row ``n`` is one iff its arrival is."""
        elapsed = now_us - self.start_us
        if elapsed < 0:
            return 0
        rows = -(-(elapsed + 1) * self.rate // _MICRO)
        return rows if self.total is None else min(rows, self.total)


def schedule_from(options: Mapping[str, str]) -> Schedule:
    """Read ``start``, ``rate`` and ``total`` from the options of a data source."""
    total = options.get("total")
    return Schedule(
        round(_number(options, "start", float) * _MICRO),
        int(_number(options, "rate", int)),
        None if total is None else int(_number(options, "total", int)),
    )


def _number(options: Mapping[str, str], name: str, kind: type[int] | type[float]) -> float:
    given = options.get(name)
    try:
        return kind(given)  # type: ignore[arg-type]  # None is refused below like any other text
    except (TypeError, ValueError):
        raise WorkloadError(
            f"{FORMAT} option {name}={given!r}: must be a number, as in "
            '.option("start", "1790000000.0").option("rate", "1000")'
        ) from None


class LoadSource(DataSource):
    """``spark.readStream.format("taut-load")``: ``n``, the number of the row, and ``arrival_us``.

    Options: ``start`` (epoch seconds), ``rate`` (rows a second), ``total`` (stop after so many
    rows), ``partitions`` (tasks a batch), ``maxRowsPerBatch``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "n bigint, arrival_us bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        # Spark hands the options over in a map that forgets the case of its keys.
        options = {key.lower(): value for key, value in self.options.items()}
        most = options.get("maxrowsperbatch")
        return LoadReader(
            schedule_from(options),
            max(1, int(options.get("partitions", "1"))),
            None if most is None else int(most),
        )


@dataclass(frozen=True)
class Rows(InputPartition):
    """Rows ``low`` to ``high`` (exclusive)."""

    low: int
    high: int


class LoadReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches from the schedule; holds nothing that cannot be pickled to an executor."""

    def __init__(self, schedule: Schedule, partitions: int, most: int | None = None) -> None:
        self._schedule = schedule
        self._partitions = partitions
        self._most = most
        self._bound: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._bound = self._scheduled()

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        rows = arrived(self._schedule, start["rows"]) if self._bound is None else self._bound
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, start["rows"] + limit.max_rows)
        return {"rows": max(rows, start["rows"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        low, high = start["rows"], end["rows"]
        parts = min(self._partitions, high - low)
        cuts = [low + (high - low) * part // max(parts, 1) for part in range(parts + 1)]
        return [Rows(a, b) for a, b in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        assert isinstance(partition, Rows)
        for low in range(partition.low, partition.high, _CHUNK):
            numbers = np.arange(low, min(low + _CHUNK, partition.high), dtype=np.int64)
            arrivals = self._schedule.start_us + numbers * _MICRO // self._schedule.rate
            columns = [pa.array(numbers), pa.array(arrivals)]
            yield pa.RecordBatch.from_arrays(columns, names=["n", "arrival_us"])

    def _scheduled(self) -> int:
        return self._schedule.rows_by(time.time_ns() // 1_000)


def arrived(schedule: Schedule, read: int) -> int:
    """How many rows have arrived; waits a little for the next when ``read`` are all there are."""
    rows = schedule.rows_by(time.time_ns() // 1_000)
    if rows <= read:
        due_us = schedule.arrival_us(read) - time.time_ns() // 1_000
        time.sleep(min(_LONGEST_WAIT_S, max(0.001, due_us / _MICRO)))
        rows = schedule.rows_by(time.time_ns() // 1_000)
    return max(rows, read)


class RangeSource(DataSource):
    """``spark.readStream.format("taut-load-ranges")``: a batch is one row, its range of numbers.

    A :class:`LoadSource` costs each batch a task in a Python worker, 60 to 70 ms here. This one
    hands the range over with the offsets, and the rows are made from it inside the JVM, so that a
    batch costs what it costs with Spark's own sources. Options: ``start``, ``rate``.
    """

    @classmethod
    def name(cls) -> str:
        return RANGES

    def schema(self) -> str:
        return "low bigint, high bigint, start_us bigint, rate bigint"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return RangeReader(schedule_from({k.lower(): v for k, v in self.options.items()}))


class RangeReader(SimpleDataSourceStreamReader):
    """Plans batches from the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, ...]], dict[str, int]]:
        end = {"rows": arrived(self._schedule, start["rows"])}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[int, ...]]:
        low, high = start["rows"], end["rows"]
        schedule = self._schedule
        return iter([(low, high, schedule.start_us, schedule.rate)] if high > low else [])


@dataclass(frozen=True, slots=True)
class Load:
    """What one query is offered.

    Parameters
    ----------
    start : float
        When row 0 arrives, epoch seconds.
    rate : int
        Rows a second.
    total : int, optional
        Stop after so many rows.
    partitions : int
        Tasks that read one batch.
    max_rows_per_batch : int, optional
        Admit at most so many rows a batch.
    """

    start: float
    rate: int
    total: int | None = None
    partitions: int = 1
    max_rows_per_batch: int | None = None

    @property
    def schedule(self) -> Schedule:
        """When each row arrives."""
        return Schedule(round(self.start * _MICRO), self.rate, self.total)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The rows as a streaming DataFrame: their number ``n``, and ``arrival_us``.

        Start and rate come as values, whatever the source: as literals they would be in the code
        that Spark generates, and every run would have all of it compiled and warmed up anew.
        """
        from pyspark.sql import functions as F

        if spark not in _registered:
            spark.dataSource.register(LoadSource)
            spark.dataSource.register(RangeSource)
            _registered.add(spark)
        options = {"start": repr(self.start), "rate": str(self.rate)}
        if self.total is None and self.partitions == 1 and self.max_rows_per_batch is None:
            ranges = spark.readStream.format(RANGES).options(**options).load()
            numbers = F.explode(F.sequence("low", F.col("high") - 1))
            return ranges.select(numbers.alias("n"), "start_us", "rate").select("n", _arrival())
        options["partitions"] = str(self.partitions)
        if self.total is not None:
            options["total"] = str(self.total)
        if self.max_rows_per_batch is not None:
            options["maxRowsPerBatch"] = str(self.max_rows_per_batch)
        return spark.readStream.format(FORMAT).options(**options).load()

    def batch(self, spark: SparkSession) -> DataFrame:
        """The same rows, all at once; needs ``total``."""
        if self.total is None:
            raise WorkloadError("Load(total=None).batch(): a batch needs a bound, such as total=10")
        from pyspark.sql import functions as F

        start, rate = (
            F.lit(value).cast("bigint").alias(name)
            for name, value in (("start_us", self.schedule.start_us), ("rate", self.rate))
        )
        numbers = spark.range(self.total).select(F.col("id").alias("n"), start, rate)
        return numbers.select("n", _arrival())


def _arrival() -> Column:
    from pyspark.sql import functions as F

    # Integer division as in Schedule.arrival_us: a double would lose microseconds.
    return F.expr(f"start_us + n * {_MICRO} div rate").alias("arrival_us")
