"""A driver whose reducers meet faults: ``python reduce_driver.py MASTER``.

Takes FAULT, FOLDER and options as JSON from its input, a line each time with tabs between, and
leaves FOLDER/ended with what went wrong, or nothing. For each it counts 8,000 rows by key in
batches of 2,000, by reducers with little memory. Every row that is worked on comes out with the
count that it made of its key; odd rows arrived too long ago and are put aside. The fault strikes
once, in the third batch, and leaves FOLDER/there (the id of a process to be killed from outside).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import wait_until
from tests.spark.struck import LONGEST, executor_pid, lose_output, serve

import taut
from taut.workloads.generator import Load

ROWS, BATCH, KEYS = 8_000, 2_000, 300
MARK = 4_502
START = 1_790_000_000.0
LATER = 4_000_000_000
"""In epoch seconds; what arrives then is never late."""


def key_of(n: int) -> int:
    """Few keys come often, most seldom."""
    return (n * n) % KEYS if n % 3 else n % 7


def counting(folder: str, fault: str, windowed: bool) -> taut.Job:
    """Counts rows, and tells each with its count; meets its fault at one row, the first time."""

    def update(time: float, key: int, n: int, count: int) -> tuple[int, list[tuple[int, ...]]]:
        there = Path(folder) / "there"
        if n == MARK and not there.exists():
            strike(there)
        return count + 1, [(key, n, count + 1)]

    def strike(there: Path) -> None:
        if fault == "task":
            there.touch()
            raise OSError("the first attempt fails")
        if fault == "worker":
            there.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if fault in ("executor", "driver"):
            ready = there.with_suffix(".part")
            ready.write_text(str(executor_pid()))
            ready.rename(there)
            threading.Event().wait(LONGEST)

    def finalize(key: int, window: Any, count: int) -> list[tuple[int, ...]]:
        return [(key, -1, count)]

    return taut.Job(
        init=(lambda key, window: 0) if windowed else (lambda key: 0),
        update=update,
        finalize=finalize if windowed else None,
        window="2 seconds" if windowed else None,
        key="int",
        value="int",
        output="key int, n int, count int",
        name="counting",
    )


def run(spark: SparkSession, folder: Path, fault: str, options: dict[str, Any]) -> None:
    windowed = options.pop("windowed", False)
    load = Load(START, 1_000, total=ROWS, max_rows_per_batch=BATCH, partitions=2)
    n = F.col("n").cast("int")
    rows = load.stream(spark).select(
        n.alias("value"),
        F.udf(key_of, "int")("n").alias("key"),
        F.timestamp_micros((F.lit(START) * 1_000_000).cast("long") + F.col("n") * 1_000).alias(
            "time"
        ),
        F.timestamp_seconds(F.when(n % 2 == 0, F.lit(LATER)).otherwise(F.lit(START))).alias(
            "arrival"
        ),
    )
    if windowed:
        rows = rows.withWatermark("time", "0 seconds")
    reduced = taut.map_reduce(
        rows,
        counting(str(folder), fault, windowed),
        time="time",
        slo="p99 <= 5 s",
        memory="12 KB",
        **options,
    )
    results = taut.sink("json", path=str(folder / "out"))
    aside = taut.sink("json", path=str(folder / "shed"))
    there = folder / "there"

    def shed(df: DataFrame, batch_id: int) -> None:
        if fault == "output" and not there.exists():
            df = df.mapInArrow(lose_output(str(folder)), df.schema)
        if fault == "sink" and batch_id == 2 and not there.exists():
            there.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        aside(df, batch_id)

    writer = reduced.frame.writeStream.foreachBatch(reduced.sink(results, shed=shed))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if fault == "between" and not there.exists():
        query = writer.trigger(processingTime="1 hour").start()
        wait_until(lambda: query.lastProgress is not None)
        there.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    serve(sys.argv[1], run)
