"""More words than one machine can count in time: who is on time, in arrival order and by deadline?

python examples/overload.py [SECONDS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import taut
from taut.workloads.reduce import words, words_load

OBJECTIVE = "p99 <= 6 s"


def busy(micros: int = 80) -> taut.Job:
    """Word count whose updates take a while, as real ones do."""
    counting = words()
    assert counting.update is not None

    def update(at: float, word: str, n: int, total: int) -> tuple[int, object]:
        until = time.perf_counter() + micros * 1e-6
        while time.perf_counter() < until:
            pass
        return counting.update(at, word, n, total)

    return taut.Job(
        name="words", init=counting.init, update=update, key=counting.key, value=counting.value,
        output=counting.output,
    )  # fmt: skip


def count(spark: SparkSession, policy: str, seconds: float, folder: Path) -> taut.ReduceStats:
    """Count for a while under one policy."""
    cores = spark.sparkContext.defaultParallelism
    rows = words_load(spark, rate=30_000 * cores, start=time.time() + 5.0)
    reduced = taut.map_reduce(rows, busy(), slo=OBJECTIVE, policy=policy)

    def nowhere(df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("overwrite").save()

    sink = reduced.sink(nowhere, shed=nowhere)
    writer = reduced.frame.writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(folder / policy)).start()
    while not sink.stats().rows:
        query.awaitTermination(1)  # the first batch has everything to load
    query.awaitTermination(int(seconds))
    query.stop()
    return sink.stats()


def main(seconds: float) -> None:
    """Both policies, one after the other."""
    spark = taut.session()
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("fifo", "cost-aware"):
            stats = count(spark, policy, seconds, Path(folder))
            lately = stats.batches[len(stats.batches) // 2 :]
            rows = sum(batch.rows for batch in lately)
            share = sum(batch.on_time for batch in lately) / max(1, rows)
            shed = sum(stats.shed.values())
            print(f"{policy}: {100 * share:.0f} % of {rows:,} rows on time, {shed:,} put aside")
    spark.stop()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 40.0)
