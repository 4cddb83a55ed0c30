"""Linear Road: tolls per road segment from speeds, volumes and accidents, joined per window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from taut.workloads.columns import Delay, event_time, pick, windowed, with_watermark
from taut.workloads.windows import Windowing, milliseconds, staggered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from taut.workloads.generator import Load

RATE = 900
"""Reports a second and query, over its three substreams. Published: 9,750 on 24 cores."""
XWAYS, SEGMENTS, CARS = 2, 10, 200
FREE_FLOW_KMH, FREE_REPORTS = 60, 20
"""A segment faster or emptier than this is free of toll."""
SUBSTREAMS = ("speed", "volume", "accident")

_PANES, _PANES_PER_SLIDE = 5, 3
_PLACE = ("xway", "segment")
_NO_DELAY = Delay()


def windows(index: int, of: int, window_s: float) -> Windowing:
    """Sliding windows of ``window_s`` every 3/5 of it, as in the published 5 s every 3 s."""
    length = milliseconds(window_s, parts=_PANES)
    return staggered(length, length // _PANES * _PANES_PER_SLIDE, index, of)


def panes(at: Windowing) -> Windowing:
    """The tumbling panes that each sliding window is made of."""
    pane = at.length_ms // _PANES
    return Windowing(pane, pane, at.offset_ms % pane)


def reports(numbers: DataFrame, substream: str, delay: Delay = _NO_DELAY) -> DataFrame:
    """Position reports of one substream. One car in forty has stopped for good."""
    n = F.col("n")
    salt = 10 * SUBSTREAMS.index(substream)
    located = numbers.select(
        event_time(n, delay).alias("event_time"),
        pick(n, salt + 11, CARS).alias("car"),
        pick(n, salt + 12, 120).alias("reported"),
        pick(n, salt + 13, 4).alias("lane"),
    )
    car = F.col("car")
    return located.select(
        "event_time", "car", "lane",
        pick(car, 14, XWAYS).alias("xway"),
        pick(car, 15, SEGMENTS).alias("segment"),
        F.when(car % 40 == 0, F.lit(0)).otherwise(F.col("reported")).alias("speed"),
    )  # fmt: skip


def speeds(rows: DataFrame, at: Windowing) -> DataFrame:
    """The mean speed of a segment over a sliding window, in whole km/h."""
    return rows.groupBy(windowed("event_time", at).alias("window"), *_PLACE).agg(
        F.floor(F.avg("speed")).alias("speed")
    )


def volumes(rows: DataFrame, at: Windowing) -> DataFrame:
    """How many reports a segment sent over a sliding window."""
    return rows.groupBy(windowed("event_time", at).alias("window"), *_PLACE).agg(
        F.count("*").alias("volume")
    )


def accidents(rows: DataFrame, at: Windowing) -> DataFrame:
    """How many panes of a sliding window had a car that stood still in a segment.

    Every segment with a report has a row, most of them with 0: an inner join then tells a quiet
    segment from an unknown one, and gives its row at once, where an outer join would have to wait
    for the watermark.
    """
    stopped = rows.groupBy(windowed("event_time", panes(at)).alias("pane"), *_PLACE).agg(
        F.max((F.col("speed") == 0).cast("int")).alias("stopped")
    )
    return stopped.groupBy(windowed(F.window_time("pane"), at).alias("window"), *_PLACE).agg(
        F.sum("stopped").alias("accidents")
    )


def toll() -> Column:
    """Nothing where traffic flows or is blocked; else it grows with the square of the volume."""
    busy = F.col("volume") - FREE_REPORTS
    free = (F.col("speed") >= FREE_FLOW_KMH) | (busy <= 0) | (F.col("accidents") > 0)
    return F.when(free, F.lit(0)).otherwise(2 * busy * busy)


def tolls(sources: dict[str, DataFrame], at: Windowing, delay: Delay = _NO_DELAY) -> DataFrame:
    """Join the three substreams per window and segment."""
    rows = {
        name: with_watermark(reports(numbers, name, delay), delay)
        for name, numbers in sources.items()
    }
    keys = ["window", *_PLACE]
    joined = (
        speeds(rows["speed"], at)
        .join(volumes(rows["volume"], at), keys)
        .join(accidents(rows["accident"], at), keys)
    )
    return joined.select(
        F.col("window.end").alias("end"),
        *_PLACE, "speed", "volume", "accidents", toll().alias("toll"),
    )  # fmt: skip


def substream(load: Load) -> Load:
    """What one of the three substreams brings: a third of the query's rows."""
    share = len(SUBSTREAMS)
    total = None if load.total is None else load.total // share
    return replace(load, rate=max(1, load.rate // share), total=total)


def build(
    spark: SparkSession,
    index: int,
    of: int,
    window_s: float,
    load: Load,
    delay: Delay = _NO_DELAY,
) -> DataFrame:
    """Query ``index`` of ``of``."""
    each = substream(load)
    sources = {name: each.stream(spark) for name in SUBSTREAMS}
    return tolls(sources, windows(index, of, window_s), delay)
