"""Taxi: a chain of stateless steps over trip records, then a sliding aggregation per grid cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from taut.workloads.columns import Delay, event_time, pick, uniform, windowed, with_watermark
from taut.workloads.windows import Windowing, milliseconds, staggered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from taut.workloads.generator import Load

RATE = 1_000
"""Trips a second and query. Published: 7,000 on 24 cores; this is scaled to two."""
WEST, SOUTH, CELL, COLUMNS, ROWS = -74.05, 40.60, 0.02, 15, 15
"""The grid over the city: its south-west corner, the side of a cell in degrees, its size."""

_NO_DELAY = Delay()


def windows(index: int, of: int, window_s: float) -> Windowing:
    """Sliding windows of ``window_s``, two to each window, as in the published 2 s every 1 s."""
    length = milliseconds(window_s, parts=2)
    return staggered(length, length // 2, index, of)


def record(delay: Delay = _NO_DELAY) -> Column:
    """The comma-separated record of trip ``n``; about one in thirty has a fare no one can use."""
    n = F.col("n")
    cents = (pick(n, 5, 6_000) + 250).cast("string")
    fare = (
        F.when(pick(n, 6, 60) == 0, F.lit("n/a"))
        .when(pick(n, 6, 60) == 1, F.concat(F.lit("-"), cents))
        .otherwise(cents)
    )
    fields = [
        F.unix_micros(event_time(n, delay)).cast("string"),
        pick(n, 1, 13_000).cast("string"),
        F.format_number(WEST - 0.01 + uniform(n, 2) * (CELL * COLUMNS + 0.02), 5),
        F.format_number(SOUTH - 0.01 + uniform(n, 3) * (CELL * ROWS + 0.02), 5),
        (pick(n, 4, 20_000) + 300).cast("string"),
        fare,
        (pick(n, 7, 7)).cast("string"),
        (pick(n, 8, 2_400) + 60).cast("string"),
    ]
    return F.concat_ws(",", *fields)


def trips(numbers: DataFrame, delay: Delay = _NO_DELAY) -> DataFrame:
    """Parse, drop what is bad, derive, map to grid cells: the stateless chain."""
    fields = F.split("record", ",")
    parsed = numbers.select(record(delay).alias("record")).select(
        F.timestamp_micros(fields[0].cast("bigint")).alias("event_time"),
        fields[2].cast("double").alias("longitude"),
        fields[3].cast("double").alias("latitude"),
        fields[4].cast("bigint").alias("meters"),
        fields[5].try_cast("bigint").alias("cents"),
        fields[6].cast("int").alias("passengers"),
        fields[7].cast("bigint").alias("seconds"),
    )
    usable = parsed.where((F.col("cents") > 0) & (F.col("passengers") > 0))
    derived = usable.withColumn(
        "cents_per_km", F.floor(F.col("cents") * 1_000 / F.col("meters"))
    ).withColumn("kmh", F.col("meters") * 3.6 / F.col("seconds"))
    plausible = derived.where(F.col("kmh") < 150)
    located = plausible.withColumn(
        "column", F.floor((F.col("longitude") - WEST) / CELL)
    ).withColumn("row", F.floor((F.col("latitude") - SOUTH) / CELL))
    return (
        located.where(F.col("column").between(0, COLUMNS - 1) & F.col("row").between(0, ROWS - 1))
        .withColumn("cell", F.col("row") * COLUMNS + F.col("column"))
        .select("event_time", "cell", "cents", "meters", "passengers", "cents_per_km")
    )


def fares(numbers: DataFrame, at: Windowing, delay: Delay = _NO_DELAY) -> DataFrame:
    """Trips and takings per cell and sliding window."""
    return (
        with_watermark(trips(numbers, delay), delay)
        .groupBy(windowed("event_time", at).alias("window"), "cell")
        .agg(
            F.count("*").alias("trips"),
            F.sum("cents").alias("total_cents"),
            F.sum("meters").alias("meters"),
            F.sum("passengers").alias("passengers"),
            F.max("cents_per_km").alias("dearest"),
        )
        .select(
            F.col("window.end").alias("end"),
            "cell", "trips", "total_cents", "meters", "passengers", "dearest",
        )
    )  # fmt: skip


def build(
    spark: SparkSession,
    index: int,
    of: int,
    window_s: float,
    load: Load,
    delay: Delay = _NO_DELAY,
) -> DataFrame:
    """Query ``index`` of ``of``."""
    return fares(load.stream(spark), windows(index, of, window_s), delay)
