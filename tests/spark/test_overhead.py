"""What Taut itself uses of the machine, with sixteen queries on a real Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut

pytestmark = pytest.mark.spark

QUERIES, WINDOW_S = 16, 12


def counts(spark: SparkSession, index: int) -> DataFrame:
    """Windows that do not all end in the same moment."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    start = f"{index * WINDOW_S * 1_000 // QUERIES} milliseconds"
    window = F.window("timestamp", f"{WINDOW_S} seconds", f"{WINDOW_S} seconds", start)
    return rows.withWatermark("timestamp", "0 seconds").groupBy(window).count()


def test_deciding_takes_less_than_one_percent_of_one_core(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """CPU seconds, not time: a busy machine makes them no more."""
    with taut.Runtime(spark) as runtime:
        for i in range(QUERIES):
            runtime.start(
                counts(spark, i),
                name=f"q{i}",
                sink=lambda df, _: df.collect(),
                slo="p99 <= 1 s",
                checkpoint=tmp_path / str(i),
            )
        queries = list(runtime.queries.values())
        eventually(lambda: all(q.status().windows >= 1 for q in queries))
        shares = []
        for _ in range(3):
            begun, spent = time.monotonic(), runtime.overhead()
            eventually(lambda begun=begun: time.monotonic() - begun > WINDOW_S)
            shares.append((runtime.overhead() - spent) / (time.monotonic() - begun))
            if shares[-1] <= 0.01:
                break
    # the least: what else runs on the machine can only add to it
    assert 0.0 < min(shares) <= 0.01, shares
