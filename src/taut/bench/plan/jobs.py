"""The jobs that are planned: rows come by a schedule, from the past to profile, live to measure."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import taut
from taut.planning.settings import Settings
from taut.spark.planning.app import App
from taut.spark.sinks import SinkFunction
from taut.workloads.reduce import clicks_load, sessions, windowed_words, words, words_load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORKLOADS = ("words", "windowed-words", "sessions")
WINDOW_S = 1
KEYS = 20_000
_BACKLOG_S = 3_600.0
_NO_CAP = 2**62


@dataclass(slots=True)
class Ends:
    """A sink that fetches results, and knows when the last results of each window were out."""

    window_column: str | None = None
    written: dict[float, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Fetch a batch."""
        import pyarrow.compute as pc

        rows = df.toArrow()
        now = time.time()
        if self.window_column is not None and rows.num_rows:
            ends = pc.unique(rows[self.window_column]).to_pylist()
            with self.lock:
                self.written |= dict.fromkeys(ends, now)

    def out(self) -> dict[float, float]:
        """When the results of each window were out, by its end; a copy."""
        with self.lock:
            return dict(self.written)


def nowhere(df: DataFrame, batch_id: int) -> None:
    """What was put aside: nothing is, as every row is worked on."""
    df.write.format("noop").mode("overwrite").save()


def app(workload: str, rate: int, start: float | None = None, ends: Ends | None = None) -> App:
    """The job on a load of so many rows a second, from ``start`` on; else from an hour ago."""
    windowed = workload == "windowed-words"

    def made(spark: SparkSession, settings: Settings) -> tuple[DataFrame, SinkFunction]:
        begins = time.time() - _BACKLOG_S if start is None else start
        rows = _load(spark, workload, rate, begins, settings)
        if windowed:
            rows = rows.withWatermark("time", "0 seconds")
        reduced = taut.map_reduce(rows, _job(workload), time="time", reducers=settings.reducers)
        results = ends or Ends("end" if windowed else None)
        return reduced.frame, reduced.sink(results, shed=nowhere)

    return made


def _job(workload: str) -> taut.Job:
    if workload == "sessions":
        return sessions()
    return words() if workload == "words" else windowed_words(f"{WINDOW_S} s")


def _load(
    spark: SparkSession, workload: str, rate: int, start: float, settings: Settings
) -> DataFrame:
    # with a cap, if only one that never acts: without one a single lane would read from another
    # source, one that the profile has not seen
    lanes, cap = settings.lanes, settings.cap or _NO_CAP
    if workload == "sessions":
        return clicks_load(spark, rate, start, users=KEYS, partitions=lanes, max_rows_per_batch=cap)
    return words_load(spark, rate, start, keys=KEYS, partitions=lanes, max_rows_per_batch=cap)
