"""A driver on a cluster: ``python cluster_driver.py MASTER FOLDER``.

Runs windowed queries over one bounded input, under stock Spark and under Taut, then a live one,
and leaves FOLDER/rows.json: the rows of each, and the executors that ran tasks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.cluster import CONF

import taut
from taut.workloads.generator import Load

START = 1_790_000_000.0


def counts(rows: DataFrame, start: float, rate: int, seconds: int) -> DataFrame:
    """Rows a window, with the processes that they passed through."""

    def here(n: int) -> str:
        return f"{os.getppid()}"

    at = F.timestamp_micros(
        (F.lit(start) * 1_000_000).cast("long") + (F.col("n") * (1_000_000 // rate))
    )
    events = rows.select("n", at.alias("at"), F.udf(here, "string")("n").alias("worker"))
    return (
        events.withWatermark("at", "0 seconds")
        .groupBy(F.window("at", f"{seconds} seconds"))
        .agg(
            F.count("n").alias("rows"), F.sum("n").alias("sum"), F.collect_set("worker").alias("by")
        )
    )


def bounded(spark: SparkSession, folder: Path, policy: str) -> list[list[object]]:
    sinks = [taut.sink("memory") for _ in range(2)]
    with taut.Runtime(spark, policy) as runtime:
        for i, sink in enumerate(sinks):
            rows = Load(START, 1_000, total=9_000, max_rows_per_batch=2_000, partitions=2)
            runtime.start(
                counts(rows.stream(spark), START, 1_000, 1 + i),
                name=f"{policy}-{i}",
                sink=sink,
                checkpoint=folder / policy / str(i),
                available_now=True,
            )
        runtime.await_termination()
    return [
        [i, row["window"].end.timestamp(), row["rows"], row["sum"]]
        for i, sink in enumerate(sinks)
        for row in sink.rows()
    ]


def live(spark: SparkSession, folder: Path) -> dict[str, object]:
    sink = taut.sink("memory")
    start = float(int(time.time()))
    rows = Load(start, 200, partitions=2)
    with taut.Runtime(spark) as runtime:
        query = runtime.start(
            counts(rows.stream(spark), start, 200, 2),
            name="live",
            sink=sink,
            slo="p99 <= 5 s",
            checkpoint=folder / "live",
        )
        while query.status().windows < 3:
            query.wait(0.1)
            if query.error():
                raise RuntimeError(query.error())
    found = sorted(sink.rows(), key=lambda row: row["window"].end)
    return {
        "ends": [row["window"].end.timestamp() for row in found],
        "rows": [row["rows"] for row in found],
        "by": sorted({worker for row in found for worker in row["by"]}),
    }


def main(master: str, folder: Path) -> None:
    spark = taut.session(master=master, conf=CONF)
    found = {
        "stock": bounded(spark, folder, "spark-default"),
        "taut": bounded(spark, folder, "least-slack"),
        "live": live(spark, folder),
        "executors": spark.sparkContext._jsc.sc().getExecutorIds().size(),
    }
    (folder / "rows.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
