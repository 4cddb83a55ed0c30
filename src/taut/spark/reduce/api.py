"""``taut.map_reduce``: keyed state that keeps its deadlines."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut.errors import JobError, StartError
from taut.policy.deadline import CHOICES
from taut.slo import Slo
from taut.spark.ddl import columns
from taut.spark.reduce.blobs import PACKED_DDL, RESULT
from taut.spark.reduce.job import Job, order
from taut.spark.reduce.mapper import Mapper, refuse_types
from taut.spark.reduce.outcome import ReduceSink, rows_of, shed_of
from taut.spark.reduce.reducers import Reducers
from taut.spark.reduce.terms import Terms
from taut.spark.sinks import SinkFunction, file_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LATE = ("side-output", "process", "fail")
ON_ERROR = ("fail", "side-output")
_PATIENCE = 10.0
"""Objectives that a row is kept for with readmit=True."""
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_WATERMARK = "spark.watermarkDelayMs"
"""What Spark notes with the column that a watermark is on."""
_OWN_WORKERS = "TAUT_REDUCE"
"""In the environment of reducers' workers: Spark then keeps them apart from those of maps."""


def map_reduce(
    df: DataFrame,
    job: Job | Sequence[Job],
    *,
    slo: str | Slo | None = None,
    key: str | None = "key",
    value: str = "value",
    time: str | None = None,
    arrival: str = "arrival",
    late: str = "side-output",
    readmit: bool = False,
    on_error: str = "fail",
    memory: str | int | None = None,
    reducers: int | None = None,
    policy: str = "cost-aware",
) -> Reduced:
    """Map rows, and reduce them with state for every key, by deadline.

    Parameters
    ----------
    df
        A streaming DataFrame.
    job
        A :class:`taut.Job`, or several that take each other's output.
    slo
        The objective, such as ``"p99 <= 1 s"``: its bound is what a row has from its arrival until
        its results are out. Without one every row is worked on.
    key, value, time, arrival
        Columns: what ``map`` is given, and when rows arrived. The time is the arrival by default;
        a job with windows needs a watermark on it. ``key=None`` gives None.
    late
        What becomes of rows that cannot be on time: ``"side-output"``, ``"process"`` when there
        is time, or ``"fail"``.
    readmit
        Keep rows that cannot be on time for a while, and work on them when there is time; what
        has waited for ten times the objective goes to the side output.
    on_error
        A row on which a function fails: ``"fail"`` the query, or ``"side-output"``.
    memory
        For the states of each reducer in a worker, such as ``"64 MB"``; what is used least goes to
        Spark's state store. Without it all stays in memory.
    reducers
        How many; by default one for each shuffle partition. A checkpoint keeps the number that it
        was begun with.
    policy
        How rows are chosen: ``"cost-aware"``, ``"edf"``, ``"dover"`` or ``"fifo"``.

    Returns
    -------
    Reduced
        Its ``frame`` is to be started with its ``sink``.
    """
    from taut.spark.reduce.processor import Processor

    levels = order([job] if isinstance(job, Job) else job)
    terms = _terms(slo, late, readmit, on_error, memory, policy)
    _refuse(df, levels, key, value, time or arrival, arrival, late, slo, policy)
    jobs = [each for level in levels for each in level]
    among = _reducers(df.sparkSession, reducers)
    windowed = any(each.windows is not None for each in jobs)
    keep_bad = terms.keep_bad
    frame = _input(df, key, value, time or arrival, arrival)
    mode = "EventTime" if windowed else "ProcessingTime" if terms.waits else "None"
    for depth, level in enumerate(levels):
        mapper = Mapper(tuple(level), among, tuple(jobs), keep_bad, terms.waits)
        mapped = frame.mapInArrow(mapper.further if depth else mapper.first, PACKED_DDL)
        frame = _reduced(mapped, Processor(level, terms, windowed, among), mode)
    return Reduced(frame, {each.name: each for each in jobs}, terms)


class Reduced:
    """What :func:`map_reduce` makes: start its ``frame`` with its ``sink``.

    Attributes
    ----------
    frame
        A streaming DataFrame of results, rows put aside and statistics, packed.

    Examples
    --------
    >>> counts = taut.map_reduce(lines, job, slo="p99 <= 1 s")      # doctest: +SKIP
    >>> runtime.start(                                              # doctest: +SKIP
    ...     counts.frame, name="counts", checkpoint="checkpoints/counts",
    ...     sink=counts.sink(taut.sink("parquet", path="out"),
    ...                      shed=taut.sink("parquet", path="late")),
    ... )
    """

    def __init__(self, frame: DataFrame, jobs: Mapping[str, Job], terms: Terms) -> None:
        self.frame = frame
        self._jobs = dict(jobs)
        self._terms = terms
        taken = {job.after for job in jobs.values()}
        self._last = [name for name in jobs if name not in taken]

    def sink(
        self,
        results: SinkFunction | Mapping[str, SinkFunction],
        shed: SinkFunction | None = None,
    ) -> ReduceSink:
        """A sink for ``frame``: one for the results, and one for rows that are put aside.

        Parameters
        ----------
        results
            Called with the rows that came out of the last job; a mapping by name for several.
        shed
            Called with rows that were not worked on: job, time, key, value, arrival, deadline,
            when they were predicted to be out, the reason, and the row as text where it could not
            be mapped.
        """
        if shed is None and self._may_shed():
            raise StartError(
                f"shed= is missing: with late={self._terms.late!r}"
                f"{', on_error=' + repr('side-output') if self._terms.keep_bad else ''} rows may "
                "be put aside, and need a sink of their own, such as taut.sink('parquet', path=...)"
            )
        if not isinstance(results, Mapping):
            if len(self._last) > 1:
                names = ", ".join(self._last)
                raise StartError(f"results: there are several jobs; give a sink for each: {names}")
            results = {self._last[0]: results}
        paths = [path for each in [*results.values(), shed] if each for path in file_paths(each)]
        if len(set(paths)) < len(paths):
            raise StartError(f"paths {', '.join(paths)}: results and shed need one each")
        for name, each in results.items():
            if name not in self._jobs or not callable(each):
                raise StartError(
                    f"results={{{name!r}: ...}}: needs a sink, a function of a DataFrame and a "
                    f"batch, for one of {', '.join(map(repr, self._jobs))}"
                )
        return ReduceSink(self._jobs, self._terms, results, shed, self.frame.sparkSession)

    def results(self, batch: DataFrame, job: str | None = None) -> DataFrame:
        """The results in a batch of ``frame``, for a ``foreachBatch`` of your own."""
        if job is None and len(self._last) > 1:
            raise StartError(f"job= is missing: results of one of {', '.join(self._last)}")
        name = self._last[0] if job is None else job
        if name not in self._jobs:
            raise StartError(f"job={name!r}: one of {', '.join(self._jobs)}")
        return rows_of(batch, self._jobs[name], RESULT)

    def shed(self, batch: DataFrame) -> DataFrame:
        """The rows that were put aside in a batch of ``frame``."""
        return shed_of(batch, self._jobs)

    def _may_shed(self) -> bool:
        windowed = any(job.windows is not None for job in self._jobs.values())
        return (
            (self._terms.chooses and self._terms.late == "side-output")
            or self._terms.keep_bad
            or windowed
        )


def _terms(
    slo: str | Slo | None, late: str, readmit: bool, on_error: str, memory: Any, policy: str
) -> Terms:
    for what, given, known in (
        ("late", late, LATE),
        ("on_error", on_error, ON_ERROR),
        ("policy", policy, tuple(CHOICES)),
    ):
        if given not in known:
            raise StartError(f"{what}={given!r}: one of {', '.join(map(repr, known))}")
    objective = math.inf if slo is None else Slo(slo).seconds
    patience = 0.0
    if readmit and (slo is None or late != "side-output"):
        raise StartError(
            "readmit=True: needs slo= and late='side-output'; late='process' keeps rows for "
            "as long as it takes"
        )
    if readmit:
        patience = _PATIENCE * objective
    elif slo is not None and late == "process":
        patience = math.inf
    return Terms(objective, policy, late, patience, on_error == "side-output", _bytes(memory))


def _bytes(memory: str | int | None) -> float:
    if memory is None:
        return math.inf
    match = _SIZE.fullmatch(memory) if isinstance(memory, str) else None
    if match:
        size: float = float(match[1]) * 1024.0 ** " kmgt".index(match[2].lower() or " ")
    elif isinstance(memory, int) and not isinstance(memory, bool):
        size = float(memory)
    else:
        raise StartError(f"memory={memory!r}: bytes, or text such as '64 MB'")
    if size < 1.0:
        raise StartError(f"memory={memory!r}: at least a byte is needed")
    return size


def _refuse(
    df: DataFrame,
    levels: Sequence[Sequence[Job]],
    key: str | None,
    value: str,
    time: str,
    arrival: str,
    late: str,
    slo: str | Slo | None,
    policy: str,
) -> None:
    if not getattr(df, "isStreaming", False):
        raise StartError(
            f"df {df!r}: a streaming DataFrame is needed, such as spark.readStream... gives"
        )
    if not hasattr(df, "_jdf"):
        raise StartError("df is of a Spark Connect session: a classic one is needed")
    if late == "fail" and (slo is None or policy == "fifo"):
        raise StartError(
            "late='fail': needs slo=, and a policy that knows what is late: fifo works on all rows"
        )
    for what, column in (("key", key), ("value", value), ("arrival", arrival), ("time", time)):
        if column is not None and column not in df.columns:
            raise StartError(
                f"{what}={column!r}: df has no such column; it has {', '.join(df.columns)}"
            )
    for what, column in (("time", time), ("arrival", arrival)):
        if df.schema[column].dataType.typeName() not in ("timestamp", "timestamp_ntz"):
            kind = df.schema[column].dataType.simpleString()
            raise StartError(f"{what}={column!r} is {kind}: a timestamp is needed")
    for job in levels[0]:
        if job.map is None:
            _refuse_columns(df.schema, job, key, value)
    windowed = [job.name for level in levels for job in level if job.windows is not None]
    if windowed and _WATERMARK not in df.schema[time].metadata:
        others = [field.name for field in df.schema if _WATERMARK in field.metadata]
        has = f"df a watermark on {', '.join(others)}" if others else "df no watermark"
        raise StartError(
            f"job {windowed[0]!r} has windows by time={time!r}, and {has}, to close them by: "
            f"df.withWatermark({time!r}, '1 second')"
        )
    provider = df.sparkSession.conf.get(_PROVIDER, "") or ""
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise StartError(
            f"{_PROVIDER}={provider!r}: Spark keeps such state in RocksDB only; taut.session() "
            "sets it, by itself it is org.apache.spark.sql.execution.streaming.state."
            "RocksDBStateStoreProvider"
        )


def _refuse_columns(schema: StructType, job: Job, key: str | None, value: str) -> None:
    """Columns that a job without a map takes as they are."""
    if key is None:
        raise JobError(f"job {job.name!r}: key=None needs map=, to make keys")
    for what, column in (("key", key), ("value", value)):
        try:
            given = columns({what: schema[column].dataType.simpleString()})
        except ValueError:
            continue  # a type that has no name here: the mapper sees it as it comes
        refuse_types(job, what, given.field(what).type)


def _input(df: DataFrame, key: str | None, value: str, time: str, arrival: str) -> DataFrame:
    from pyspark.sql import functions as F

    return df.select(
        F.col(time).cast("timestamp").alias("time"),
        F.col(arrival).cast("timestamp").alias("arrival"),
        (F.lit(None).cast("string") if key is None else F.col(key)).alias("key"),
        F.col(value).alias("value"),
        F.current_timestamp().alias("stamp"),
    )


def _reduced(mapped: DataFrame, processor: Any, mode: str) -> DataFrame:
    environment = mapped.sparkSession.sparkContext.environment
    environment[_OWN_WORKERS] = "1"
    try:
        return mapped.groupBy("reducer").transformWithStateInPandas(
            processor, PACKED_DDL, "Append", mode
        )
    finally:
        del environment[_OWN_WORKERS]


def _reducers(spark: SparkSession, many: int | None) -> Reducers:
    if many is not None and (isinstance(many, bool) or not isinstance(many, int) or many < 1):
        raise StartError(f"reducers={many!r}: at least 1 is needed")
    return Reducers(many, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
