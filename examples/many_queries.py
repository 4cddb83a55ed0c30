"""Eight windowed queries on one Spark, each result out soon after its window ends.

python examples/many_queries.py [SECONDS]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut


def per_sensor(spark: SparkSession, offset_s: int) -> DataFrame:
    """Readings per sensor in windows of eight seconds that start at an offset."""
    readings = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    window = F.window("timestamp", "8 seconds", startTime=f"{offset_s} seconds")
    return (
        readings.withWatermark("timestamp", "0 seconds")
        .groupBy(window, (F.col("value") % 20).alias("sensor"))
        .count()
    )


def main(seconds: float) -> None:
    """Run for a while, tell how each query does, stop."""
    spark = taut.session()
    folder = Path(tempfile.mkdtemp(prefix="taut-example-"))
    with taut.Runtime(spark) as runtime:
        for i in range(8):
            runtime.start(
                per_sensor(spark, i),
                name=f"sensors-{i}",
                sink=taut.sink("parquet", path=str(folder / f"out-{i}")),
                slo="p99 <= 2 s",
                checkpoint=folder / f"checkpoint-{i}",
            )
        runtime.await_termination(timeout=seconds)
        for query in runtime.queries.values():
            now = query.status()
            latency = "-" if now.last_latency is None else f"{now.last_latency:.2f} s"
            print(
                f"{now.name}: {now.state}, {now.windows} windows out, {now.late} late, "
                f"last after {latency}"
            )
    print(f"results: {folder}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
