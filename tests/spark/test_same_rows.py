"""R1: the rows are exactly those that stock Spark produces, whatever the shape of the query."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import taut
from taut.workloads.generator import Load

ROWS, RATE = 9_000, 1_000
START = 1_790_000_000.0

Build = Callable[[SparkSession], DataFrame]


def events(spark: SparkSession, total: int = ROWS, delay: str = "0 seconds") -> DataFrame:
    rows = Load(START, RATE, total=total, max_rows_per_batch=1_700).stream(spark)
    at = F.timestamp_micros((F.lit(START) * 1_000_000).cast("long") + F.col("n") * 1_000)
    return rows.select("n", at.alias("at")).withWatermark("at", delay)


def tumbling(spark: SparkSession) -> DataFrame:
    window = F.window("at", "2 seconds", startTime="500 milliseconds")
    return events(spark).groupBy(window, F.col("n") % 7).count().select("window.end", "count")


def sliding(spark: SparkSession) -> DataFrame:
    return events(spark).groupBy(F.window("at", "3 seconds", "1 second")).agg(F.sum("n"))


def session(spark: SparkSession) -> DataFrame:
    gaps = events(spark).where("n % 2000 < 900")
    return gaps.groupBy(F.session_window("at", "300 milliseconds"), F.col("n") % 3).count()


def join(spark: SparkSession) -> DataFrame:
    left = events(spark, delay="1 second").where("n % 5 = 0").alias("l")
    right = events(spark, delay="1 second").select(
        (F.col("n") - 3).alias("m"), F.col("at").alias("then")
    )
    return left.join(
        right, F.expr("n = m and then >= at and then <= at + interval 10 milliseconds")
    )


def deduplicated(spark: SparkSession) -> DataFrame:
    keyed = events(spark, delay="2 seconds").withColumn("key", F.expr("n div 4"))
    return keyed.dropDuplicatesWithinWatermark(["key"]).select("key")


def without_window(spark: SparkSession) -> DataFrame:
    return events(spark).where("n % 3 = 1").select("n")


def empty(spark: SparkSession) -> DataFrame:
    return events(spark, total=0).groupBy(F.window("at", "2 seconds")).count()


SHAPES: dict[str, Build] = {
    f.__name__: f for f in (tumbling, sliding, session, join, deduplicated, without_window, empty)
}


def canonical(rows: list[Row]) -> list[str]:
    return sorted(map(str, rows))


@pytest.fixture(scope="module")
def stock(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What Spark by itself makes of the same input."""
    folder = tmp_path_factory.mktemp("stock")
    found = {}
    for name, build in SHAPES.items():
        sink = taut.sink("memory")
        writer = build(spark).writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / name)).start()
        query.awaitTermination()
        found[name] = canonical(sink.rows())
    return found


def test_the_shapes_are_not_trivial(stock: dict[str, list[str]]) -> None:
    assert {name for name, rows in stock.items() if not rows} == {"empty"}


@pytest.mark.spark
@pytest.mark.parametrize("policy", ["least-slack", "streambox"])
def test_all_shapes_at_once(
    spark: SparkSession,
    stock: dict[str, list[str]],
    tmp_path: Path,
    policy: str,
    eventually: Callable[..., None],
) -> None:
    sinks = {name: taut.sink("memory") for name in SHAPES}
    with taut.Runtime(spark, policy, hold_limit="2 s") as runtime:
        for name, build in SHAPES.items():
            runtime.start(build(spark), name=name, sink=sinks[name], checkpoint=tmp_path / name)
        eventually(lambda: all(len(sinks[n].rows()) >= len(stock[n]) for n in SHAPES), within=180)
    for name in SHAPES:
        assert canonical(sinks[name].rows()) == stock[name], name


@pytest.mark.spark
def test_available_now_ends_by_itself(
    spark: SparkSession, stock: dict[str, list[str]], tmp_path: Path
) -> None:
    sinks = {name: taut.sink("memory") for name in ("tumbling", "without_window")}
    with taut.Runtime(spark) as runtime:
        for name, sink in sinks.items():
            runtime.start(
                SHAPES[name](spark),
                name=name,
                sink=sink,
                checkpoint=tmp_path / name,
                slo="p99 <= 1 s",
                available_now=True,
            )
        assert runtime.await_termination(timeout="120 s")
    for name, sink in sinks.items():
        assert canonical(sink.rows()) == stock[name], name


def test_the_input_lies_in_the_past() -> None:
    assert time.time() > START + ROWS / RATE
