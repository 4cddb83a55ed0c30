"""A driver whose reducers meet faults: ``python reduce_driver.py MASTER``.

Takes FAULT, FOLDER and options as JSON from its input, a line each time with tabs between, and
leaves FOLDER/ended with what went wrong, or nothing. For each it counts rows by key in batches, by
reducers with little memory. Every row that is worked on comes out with the count that it made of
its key, and is noted in FOLDER/worked by each attempt at its batch. The fault strikes once, in a
batch that is not among the first, and leaves FOLDER/there (the id of a process to be killed from
outside).

Which rows are worked on is the option ``kind``:

plain, windowed
    8,000 rows in batches of 2,000. Odd ones arrived too long ago and are put aside; the others have
    all the time there is.
crowded
    Three batches of 50 rows, so that it is known what rows cost, and two of 400. They arrived when
    their batch was planned, or a second before, and 400 take longer than there is time for: how
    many are worked on goes by what was measured before.
waiting, readmitted
    The same, with ``late="process"`` or ``readmit=True``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from time import sleep
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import wait_until
from tests.spark.struck import LONGEST, executor_pid, lose_output, serve

import taut
from taut.workloads.generator import Load

ROWS, BATCH, KEYS = 8_000, 2_000, 300
CROWD_BATCH, KNOWN = 400, 1_200
CROWD = [n for n in range(2_000) if n >= KNOWN or n % 8 == 0]
MARK, STRUCK_AFTER = 4_502, 5
"""The row at which a fault strikes; of a crowd it is after so many of the batch."""
START = 1_790_000_000.0
LATER = 4_000_000_000
"""In epoch seconds; what arrives then is never late."""
OBJECTIVE, TAKES = 8.0, 0.06
"""Seconds that rows have, and that a row of a crowd takes: those of a batch that arrived with it
are 175 for each reducer, and take longer than they have."""
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "windowed": {},
    "crowded": {},
    "waiting": {"late": "process"},
    "readmitted": {"readmit": True},
}
"""And what they ask for."""


def key_of(n: int) -> int:
    """Few keys come often, most seldom."""
    return (n * n) % KEYS if n % 3 else n % 7


def crowds(kind: str) -> bool:
    """Whether there is no time for all."""
    return kind not in ("plain", "windowed")


def struck(kind: str) -> int:
    """The batch that meets a fault."""
    return 4 if crowds(kind) else 2


def age_of(n: int) -> int:
    """Seconds from the arrival of a row in a crowd to the plan of its batch."""
    return 0 if n % 8 else 1


def counting(folder: str, fault: str, kind: str) -> taut.Job:
    """Counts rows, and tells each with its count; meets its fault at one row, the first time."""
    seen = Counter[int]()
    windowed = kind == "windowed"

    def update(
        time: float, key: int, n: int, count: int
    ) -> tuple[int, list[tuple[int | None, ...]]]:
        there = Path(folder) / "there"
        if is_time(n) and not there.exists():
            strike(there)
        with (Path(folder) / "worked" / attempt()).open("a") as worked:
            worked.write(f"{n}\n")
        if crowds(kind):
            sleep(TAKES)
        return count + 1, [(key, n, count + 1, None)]

    def is_time(n: int) -> bool:
        if not crowds(kind):
            return n == MARK
        seen[n // CROWD_BATCH] += 1
        return n // CROWD_BATCH == struck(kind) and seen[struck(kind)] == STRUCK_AFTER

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
        return [(key, -1, count, round(window.end))]

    return taut.Job(
        init=(lambda key, window: 0) if windowed else (lambda key: 0),
        update=update,
        finalize=finalize if windowed else None,
        window="2 seconds" if windowed else None,
        key="int",
        value="int",
        output="key int, n int, count int, ends bigint",
        name="counting",
    )


def attempt() -> str:
    """The batch, the reducer's partition, and what no other attempt at them has."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{batch} {context.partitionId()} {context.taskAttemptId()} {os.getpid()}"


def load(spark: SparkSession, kind: str) -> DataFrame:
    """Rows with value, key, time and arrival."""
    n, now = F.col("n").cast("int"), F.unix_micros(F.current_timestamp())
    if crowds(kind):
        load = Load(START, 1_000, CROWD[-1] + 1, max_rows_per_batch=CROWD_BATCH, partitions=2)
        rows = load.stream(spark).where((n >= KNOWN) | (n % 8 == 0))
        arrival = F.timestamp_micros(now - F.udf(age_of, "int")("n") * 1_000_000)
    else:
        rows = Load(START, 1_000, ROWS, max_rows_per_batch=BATCH, partitions=2).stream(spark)
        arrival = F.timestamp_seconds(F.when(n % 2 == 0, F.lit(LATER)).otherwise(F.lit(START)))
    time = (F.lit(START) * 1_000_000).cast("long") + F.col("n") * 1_000
    return rows.select(
        n.alias("value"),
        F.udf(key_of, "int")("n").alias("key"),
        F.timestamp_micros(time).alias("time"),
        arrival.alias("arrival"),
    )


def run(spark: SparkSession, folder: Path, fault: str, options: dict[str, Any]) -> None:
    kind = options["kind"]
    (folder / "worked").mkdir(exist_ok=True)
    rows = load(spark, kind)
    if kind == "windowed":
        rows = rows.withWatermark("time", "0 seconds")
    reduced = taut.map_reduce(
        rows,
        counting(str(folder), fault, kind),
        time="time",
        slo=f"p99 <= {OBJECTIVE:g} s",
        memory="12 KB",
        **KINDS[kind],
    )
    results = taut.sink("json", path=str(folder / "out"))
    aside = taut.sink("json", path=str(folder / "shed"))
    there = folder / "there"

    def shed(df: DataFrame, batch_id: int) -> None:
        if fault == "output" and batch_id == struck(kind) and not there.exists():
            df = df.mapInArrow(lose_output(str(folder)), df.schema)
        if fault == "sink" and batch_id == struck(kind) and not there.exists():
            there.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        aside(df, batch_id)

    sink = reduced.sink(results, shed=None if kind == "waiting" else shed)
    writer = reduced.frame.writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if fault == "between" and not there.exists():
        query = writer.trigger(processingTime="1 hour").start()
        wait_until(lambda: query.lastProgress is not None)
        there.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if not KINDS[kind]:
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.start()

    def nothing_left() -> bool:
        batches = sink.stats().batches
        return bool(batches) and not batches[-1].rows and not batches[-1].waiting

    wait_until(lambda: query.exception() or nothing_left(), within=240)
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    query.stop()


if __name__ == "__main__":
    serve(sys.argv[1], run)
