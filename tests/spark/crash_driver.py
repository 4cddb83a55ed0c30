"""A driver to be killed: ``python crash_driver.py FOLDER MOMENT``.

Runs a windowed query under a Runtime, over input that lies in the past, and stands still at
MOMENT (held, sink or batch) after leaving a file FOLDER/there. With MOMENT ``none`` it runs to
the end of the input.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut
from taut.policy import Decision, LeastSlack, QueryView
from taut.workloads.generator import Load

ROWS, RATE, START = 12_000, 1_000, 1_790_000_000.0
BATCH = 1_500


class Grants:
    """Least slack for so many turns, then no more."""

    def __init__(self, turns: int) -> None:
        self.left = turns

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        decision = LeastSlack().decide(now, queries) if self.left > 0 else Decision(None)
        self.left -= decision.run is not None
        return decision


def totals(spark: SparkSession, folder: Path, moment: str) -> DataFrame:
    there = str(folder / "there")

    def slow(n: int) -> int:
        if moment == "batch" and n == 4 * BATCH + 7:
            Path(there).touch()
            threading.Event().wait()
        return n

    rows = Load(START, RATE, total=ROWS, max_rows_per_batch=BATCH).stream(spark)
    at = F.timestamp_micros((F.lit(START) * 1_000_000).cast("long") + F.col("n") * 1_000)
    passed = F.udf(slow, "long")("n")
    events = rows.select(passed.alias("n"), at.alias("at")).withWatermark("at", "0 seconds")
    window = F.window("at", "1 second")
    return (
        events.groupBy(window)
        .agg(F.count("n"), F.sum("n"))
        .select(F.unix_seconds("window.end").alias("end"), "count(n)", "sum(n)")
    )


def main(folder: Path, moment: str) -> None:
    spark = taut.session(master="local[2]")
    written = taut.sink("json", path=str(folder / "out"))

    def sink(df: DataFrame, batch_id: int) -> None:
        if moment == "sink" and batch_id == 4:
            half = folder / "out" / f"batch_id={batch_id}" / "part-half.json"
            half.parent.mkdir(parents=True)
            half.write_text('{"end": 1, "count(n)": 1, "sum')
            (folder / "there").touch()
            threading.Event().wait()
        written(df, batch_id)

    policy = Grants(2) if moment == "held" else "least-slack"
    runtime = taut.Runtime(spark, policy, hold_limit="1 h" if moment == "held" else "60 s")
    query = runtime.start(
        totals(spark, folder, moment),
        name="totals",
        sink=sink,
        checkpoint=folder / "checkpoint",
        available_now=moment == "none",
    )
    if moment == "held":
        while not (query.status().state == "held" and query.status().batches >= 3):
            query.wait(0.05)
        (folder / "there").touch()
    runtime.await_termination()
    runtime.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
