"""A driver whose lanes meet faults: ``python source_driver.py MASTER``.

Takes FAULT, FOLDER and the options of the source as JSON from its input, a line each time with tabs
between, and leaves FOLDER/ended with what went wrong, or nothing. For each it reads 6,000 rows
through a Taut source in batches of 3,000, shuffles them, and writes them through an idempotent
sink. The fault strikes once, in the first batch, and leaves FOLDER/there (the id of a process,
where one is to be killed or stopped from outside). Where FAULT begins with "resident " all rows are
one resident batch. A sink in the lanes leaves what it saw in FOLDER/lanes.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import wait_until
from tests.spark.struck import LONGEST, executor_pid, lose_output, serve

import taut
from taut.spark.source.frames import Client

ROWS, START = 6_000, 1_790_000_000.0
MARK = 1_234


def trouble(folder: str, fault: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An operator that meets its fault at one row, the first time."""

    def operator(row: dict[str, Any]) -> dict[str, Any]:
        there = Path(folder) / "there"
        if row["n"] == MARK and there.exists():
            (Path(folder) / "again").touch()
        elif row["n"] == MARK:
            if fault == "task":
                there.touch()
                raise OSError("the first attempt fails")
            if fault == "connection":
                there.touch()
                for client in [each for each in gc.get_objects() if isinstance(each, Client)]:
                    client._socket.shutdown(socket.SHUT_RDWR)
            if fault in ("executor", "freeze", "driver"):
                who = executor_pid() if fault == "executor" else os.getpid()
                ready = there.with_suffix(".part")
                ready.write_text(str(who))
                ready.rename(there)
                if fault == "freeze":
                    wait_until((Path(folder) / "thawed").exists)
                else:
                    threading.Event().wait(LONGEST)
        return {"n": row["n"], "lane": context_partition()}

    return operator


def in_lane(folder: str) -> Callable[[pa.RecordBatch], None]:
    """A sink in the lane, which sees rows again where a task is tried again."""
    out = Path(folder) / "lanes"

    def write(rows: pa.RecordBatch) -> None:
        out.mkdir(exist_ok=True)
        with (out / f"{os.getpid()}").open("a") as file:
            file.writelines(f"{n}\n" for n in rows.column("n").to_pylist())

    return write


def context_partition() -> int:
    context = TaskContext.get()
    return -1 if context is None else context.partitionId()


def run(spark: SparkSession, folder: Path, fault: str, options: dict[str, str]) -> None:
    resident = fault.startswith("resident ")
    fault = fault.removeprefix("resident ")
    timing = {"timing": "resident"} if resident else {"maxOffsetsPerTrigger": ROWS // 2}
    rows = (
        taut.read(
            spark,
            "schedule",
            start=START,
            rate=1_000,
            total=ROWS,
            partitions=3,
            lanes=4,
            startingOffsets="earliest",
            beat="200 ms",
            silence="1 s",
            **timing,
            **{"chunk": "100"} | options,
        )
        .map(trouble(str(folder), fault), "n bigint, lane int")
        .to(in_lane(str(folder)))
        .load()
    )
    if fault == "output":
        rows = rows.repartition(2, "n").mapInArrow(lose_output(str(folder)), rows.schema)
    sink = taut.sink("json", path=str(folder / "out"))

    def write(df: DataFrame, batch_id: int) -> None:
        sink(df.select("n", "lane", "log_partition", "log_offset"), batch_id)

    writer = rows.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    there = folder / "there"
    if fault == "between" and not there.exists():
        query = writer.trigger(processingTime="1 hour").start()
        wait_until(lambda: query.lastProgress is not None)
        there.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    serve(sys.argv[1], run)
